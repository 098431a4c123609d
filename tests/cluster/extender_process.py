"""The extender as it runs in production: a process of its own, with its own service account."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from .components import answers
from .processes import Program
from .waiting import wait_for

REPOSITORY = Path(__file__).parents[2]

#: How long its pages are waited for. Three control planes share the machine of the tests, whose
#: own host may take it away for seconds; whoever promises an answer sooner is tested for it.
PATIENCE_S = 30.0
#: What each of its workers writes first.
_BEGINS = b'"extender starts"'


class Extender(Program):
    """`gang-extender serve` against one control plane."""

    port_count = 2

    def __init__(
        self,
        name: str,
        logs: Path,
        *,
        kubeconfig: Path,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, logs, {"PYTHONPATH": str(REPOSITORY), **(environment or {})})
        self._kubeconfig = kubeconfig
        self._arguments = arguments
        #: Where in the log each of our starts begins.
        self._starts_at: list[int] = []

    @property
    def url(self) -> str:
        """Where kube-scheduler asks."""
        return f"{self._scheme('--tls-cert-file=')}://127.0.0.1:{self.ports[0]}"

    @property
    def ops_url(self) -> str:
        """Where people and probes ask."""
        return f"{self._scheme('--ops-tls-cert-file=')}://127.0.0.1:{self.ports[1]}"

    def _scheme(self, flag: str) -> str:
        return "https" if any(each.startswith(flag) for each in self._arguments) else "http"

    def command(self) -> list[str | Path]:
        return [
            sys.executable,
            *("-m", "extender", "serve"),
            f"--kubeconfig={self._kubeconfig}",
            f"--listen=127.0.0.1:{self.ports[0]}",
            f"--ops-listen=127.0.0.1:{self.ports[1]}",
            *self._arguments,
        ]

    @property
    def fell(self) -> bool:
        """Whether it has ended though nobody ended it: whom we end we forget."""
        return self._process is not None and self._process.poll() is not None

    @property
    def restarted(self) -> int:
        """How often its arbiter began a worker in place of one that had ended by itself."""
        log = self.log_file.read_bytes() if self.log_file.exists() else b""
        parts = (log[start:end] for start, end in pairwise([*self._starts_at, len(log)]))
        return sum(max(0, part.count(_BEGINS) - 1) for part in parts)

    def ask(self, path: str, patience_s: float = PATIENCE_S) -> tuple[int, str]:
        """Give status and text of a page of its operations port."""
        with urllib3.PoolManager(retries=False, timeout=patience_s) as http:
            answer = http.request("GET", f"{self.ops_url}{path}")
        return answer.status, answer.data.decode()

    def page(self, path: str) -> str:
        """What its operations port says, whatever the status."""
        return self.ask(path)[1]

    def metrics(self) -> str:
        """Give all its metrics, as soon as it has no more to do with other pages."""

        def read() -> str:
            status, text = self.ask("/metrics")
            return text if status == 200 else ""

        return wait_for(read, PATIENCE_S, "the extender tells its metrics", every_s=0.2)

    def metric(self, name: str, **labels: str) -> float:
        """Give a sample of its metrics, zero while there is none."""
        # Asked again and again, and there are thousands of other lines.
        lines = [line for line in self.metrics().splitlines(True) if line.startswith(name)]
        return sum(
            sample.value
            for family in text_string_to_metric_families("".join(lines))
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        )

    @property
    def held(self) -> int:
        """Count the bind calls that wait at the barrier."""
        return int(self.metric("gang_extender_waiting_binds"))

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/readyz")

    def _launch(self) -> None:
        self._starts_at.append(self._log_size())
        super()._launch()

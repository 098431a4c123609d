"""The extender as its own process with its own service account, as in production."""

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

#: Timeout for its pages. Several control planes share the machine, and its host may take the
#: processors for seconds; tests of response times have limits of their own.
PAGE_TIMEOUT_S = 30.0
#: The first log line of each worker process.
_FIRST_LINE = b'"extender starts"'


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
        #: The size of the log at each start.
        self._starts_at: list[int] = []

    @property
    def url(self) -> str:
        """Return the URL of the hooks."""
        return f"{self._scheme('--tls-cert-file=')}://127.0.0.1:{self.ports[0]}"

    @property
    def ops_url(self) -> str:
        """Return the URL of the operations port."""
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
    def has_crashed(self) -> bool:
        """Return whether it has ended without being stopped by the test."""
        return self._process is not None and self._process.poll() is not None

    @property
    def worker_restarts(self) -> int:
        """Return how often the master process has replaced a worker."""
        log = self.log_file.read_bytes() if self.log_file.exists() else b""
        parts = (log[start:end] for start, end in pairwise([*self._starts_at, len(log)]))
        return sum(max(0, part.count(_FIRST_LINE) - 1) for part in parts)

    def get(self, path: str, timeout_s: float = PAGE_TIMEOUT_S) -> tuple[int, str]:
        """Return status and text of a page of the operations port."""
        with urllib3.PoolManager(retries=False, timeout=timeout_s) as http:
            answer = http.request("GET", f"{self.ops_url}{path}")
        return answer.status, answer.data.decode()

    def page(self, path: str) -> str:
        """Return the text of a page, whatever the status."""
        return self.get(path)[1]

    def metrics(self) -> str:
        """Return all metrics, as soon as other pages leave time for them."""

        def read() -> str:
            status, text = self.get("/metrics")
            return text if status == 200 else ""

        return wait_for(read, PAGE_TIMEOUT_S, "the extender serves its metrics", every_s=0.2)

    def metric(self, name: str, **labels: str) -> float:
        """Return a sample of its metrics, zero if there is none."""
        # Parsing all lines is slow: there are thousands, and tests poll.
        lines = [line for line in self.metrics().splitlines(True) if line.startswith(name)]
        return sum(
            sample.value
            for family in text_string_to_metric_families("".join(lines))
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        )

    @property
    def waiting_binds(self) -> int:
        """Return the number of bind calls that wait for their gang."""
        return int(self.metric("gang_extender_waiting_binds"))

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/readyz")

    def _launch(self) -> None:
        self._starts_at.append(self._log_size())
        super()._launch()

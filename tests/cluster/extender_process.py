"""The extender as it runs in production: a process of its own, with its own service account."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .components import answers
from .processes import Program

REPOSITORY = Path(__file__).parents[2]


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

    @property
    def url(self) -> str:
        """Where kube-scheduler asks."""
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def ops_url(self) -> str:
        """Where people and probes ask."""
        return f"http://127.0.0.1:{self.ports[1]}"

    def command(self) -> list[str | Path]:
        return [
            sys.executable,
            *("-m", "extender", "serve"),
            f"--kubeconfig={self._kubeconfig}",
            f"--listen=127.0.0.1:{self.ports[0]}",
            f"--ops-listen=127.0.0.1:{self.ports[1]}",
            *self._arguments,
        ]

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/readyz")

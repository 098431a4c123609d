"""A kube-scheduler without an extender, in place of the pair.

The effect of an attack then is the cluster's own: an API server that reads large objects, a
kube-scheduler that compares thousands of names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane

_PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}, qps: 5000, burst: 10000}}
leaderElection: {{leaderElect: false}}
profiles: [{{schedulerName: gang-scheduler}}]
"""


class BareScheduler:
    """Has the interface of `InstalledPair`, without an extender."""

    ops_url = "http://127.0.0.1:1"
    peak_mb = 0.0
    restarts: Sequence[str] = ()
    ports: Mapping[str, int] = {}

    def __init__(self, plane: ControlPlane) -> None:
        self.policy = plane.folder / "policy.yaml"
        self._scheduler = plane.scheduler(_PROFILE.format(kubeconfig=plane.kubeconfig("scheduler")))

    def __enter__(self) -> Self:
        self._scheduler.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scheduler.__exit__(kind, error, trace)

    def reset_peak(self) -> None:
        """Do nothing."""

    def use_server(self, server: str) -> None:
        """Do nothing."""

    def slowest_calls(self) -> str:
        return ""

    def scheduler_s(self) -> float:
        return 0.0

    def cpu_s(self) -> tuple[float, float]:
        return 0.0, 0.0

    def refused(self) -> dict[str, float]:
        return {}

    def findings(self) -> list[Object]:
        return []

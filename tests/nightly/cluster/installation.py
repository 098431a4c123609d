"""A cluster in which the documented commands install the extender, with running pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests import objects
from tests.cluster.api import Object
from tests.cluster.components import WRITES
from tests.cluster.control_plane import ControlPlane
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for
from tests.nightly.cluster.applied import AppliedPod
from tests.nightly.cluster.kubelet import Kubelet

from .shell import Shell

POD = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True, slots=True)
class Installation:
    """A control plane, a shell for the documented commands, and a kubelet."""

    plane: ControlPlane
    shell: Shell
    kubelet: Kubelet

    def pods(self, count: int = 2) -> list[AppliedPod]:
        """Wait until *count* extender pods are ready, and return them."""

        def ready() -> list[AppliedPod]:
            return [pod for pod in self.kubelet.pods() if pod.is_ready()]

        return wait_for(
            lambda: len(found := ready()) == count and found,
            120,
            f"{count} extender pods are ready",
            seeing=lambda: [self.kubelet.problems[-3:], *self._statuses()],
        )

    def _statuses(self) -> list[object]:
        sets = self.plane.api.list("replicasets.apps/v1", EXTENDER_NAMESPACE)
        pods = self.plane.api.list("pods", EXTENDER_NAMESPACE)
        return [each["status"] for each in (*sets, *pods)]

    def leader_and_standby(self) -> tuple[AppliedPod, AppliedPod]:
        """Return leader and standby, by their /readyz."""

        def distinguished() -> tuple[AppliedPod, AppliedPod] | None:
            pods = self.pods()
            leads = [pod.container("extender").answers("/readyz") for pod in pods]
            if sorted(leads) != [False, True]:
                return None
            return pods[leads.index(True)], pods[leads.index(False)]

        found = wait_for(distinguished, 120, "one of two leads", seeing=self._statuses)
        assert found is not None
        return found

    def end(self, pod: AppliedPod) -> None:
        """Delete an extender pod, and wait until it is stopped."""
        self.plane.api.delete("pods", pod.name, EXTENDER_NAMESPACE)
        wait_for(lambda: pod not in self.kubelet.pods(), 60, f"{pod.name} is stopped")

    def start_gang(self, name: str, scheduler: str, size: int = 3) -> list[str]:
        """Create a gang, wait until all members are bound, and return their nodes."""
        api = self.plane.api
        wanted = objects.pods(size, name, "default", gang=name, scheduler=scheduler, cpu="100m")
        api.create(objects.pod_group(name, "default", size), *wanted)
        return self.nodes([pod["metadata"]["name"] for pod in wanted])

    def nodes(self, pods: list[str], namespace: str = "default") -> list[str]:
        """Wait until these pods are bound, and return their nodes."""

        def found() -> list[str | None]:
            api = self.plane.api
            return [objects.node_of(api.get("pods", name, namespace)) for name in pods]

        wait_for(lambda: all(found()), 60, f"all of {pods} are bound", seeing=self._why(pods))
        return [node for node in found() if node]

    def _why(self, pods: list[str]) -> object:
        def seen() -> object:
            statuses = [each.get("status", {}) for each in self.plane.api.list("pods", "default")]
            return [statuses, sorted(set(self.refused())), self.kubelet.problems[-3:]]

        return seen

    def requests_of(self, pod: AppliedPod) -> list[Object]:
        """Return all requests of one pod to the API server, by the pod name in its token."""
        return [
            event
            for event in self.plane.audited(pod.user)
            if event["user"].get("extra", {}).get(POD) == [pod.name]
        ]

    def writes_of(self, pod: AppliedPod, since: datetime) -> list[str]:
        """Return all writes of one pod since then, without leases."""
        return [
            f"{event['verb']} {event['requestURI']}"
            for event in self.requests_of(pod)
            if event["verb"] in WRITES
            and event["objectRef"]["resource"] != "leases"
            and event["responseStatus"]["code"] < 300
            and datetime.fromisoformat(event["requestReceivedTimestamp"]) > since
        ]

    def refused(self) -> list[str]:
        """Return all forbidden requests of the extender's accounts."""
        account = f"system:serviceaccount:{EXTENDER_NAMESPACE}:"
        return [
            f"{event['user']['username']}: {event['verb']} {event['requestURI']}"
            for event in self.plane.audit_events()
            if event["user"].get("username", "").startswith(account)
            and event.get("responseStatus", {}).get("code") == 403
        ]


@contextmanager
def empty_cluster(folder: Path, nodes: int = 3) -> Iterator[Installation]:
    """Run a new cluster with controllers, without the extender."""
    with (
        ControlPlane(folder, audit_reads=True, service_accounts=True) as plane,
        plane.controllers(),
        Kubelet(plane, EXTENDER_NAMESPACE) as kubelet,
    ):
        plane.api.create(*(objects.node(f"node-{index}") for index in range(nodes)))
        plane.wait_until_nodes_are_ready([f"node-{index}" for index in range(nodes)])
        yield Installation(plane, Shell(plane), kubelet)

"""A cluster that has nothing but what people type in, with all that was applied running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests import objects
from tests.cluster.api import Object
from tests.cluster.applied import AppliedPod
from tests.cluster.components import WRITES
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet import Kubelet
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

from .typed import Shell

POD = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True, slots=True)
class Installation:
    """What a test looks at, and how people would."""

    plane: ControlPlane
    shell: Shell
    kubelet: Kubelet

    def pods(self, count: int = 2) -> list[AppliedPod]:
        """What was applied, when so many run and are ready."""

        def ready() -> list[AppliedPod]:
            return [pod for pod in self.kubelet.pods() if pod.is_ready()]

        return wait_for(
            lambda: len(found := ready()) == count and found,
            120,
            f"{count} pods of ours are ready",
            seeing=lambda: [self.kubelet.problems[-3:], *self._seen()],
        )

    def _seen(self) -> list[object]:
        sets = self.plane.api.list("replicasets.apps/v1", EXTENDER_NAMESPACE)
        pods = self.plane.api.list("pods", EXTENDER_NAMESPACE)
        return [each["status"] for each in (*sets, *pods)]

    def leader_and_standby(self) -> tuple[AppliedPod, AppliedPod]:
        """Tell the two apart by what their extenders say of themselves."""

        def told_apart() -> tuple[AppliedPod, AppliedPod] | None:
            pods = self.pods()
            leads = [pod.container("extender").answers("/readyz") for pod in pods]
            if sorted(leads) != [False, True]:
                return None
            return pods[leads.index(True)], pods[leads.index(False)]

        found = wait_for(told_apart, 120, "one of two leads", seeing=self._seen)
        assert found is not None
        return found

    def end(self, pod: AppliedPod) -> None:
        """Delete a pod of ours, and wait until it is asked to end."""
        self.plane.api.delete("pods", pod.name, EXTENDER_NAMESPACE)
        wait_for(lambda: pod not in self.kubelet.pods(), 60, f"{pod.name} is on its way out")

    def start_gang(self, name: str, scheduler: str, size: int = 3) -> list[str]:
        """Hand in a gang, and give the nodes of its members once all have one."""
        api = self.plane.api
        wanted = objects.pods(size, name, "default", gang=name, scheduler=scheduler, cpu="100m")
        api.create(objects.pod_group(name, "default", size), *wanted)
        return self.nodes([pod["metadata"]["name"] for pod in wanted])

    def nodes(self, pods: list[str], namespace: str = "default") -> list[str]:
        """Where these pods are, once each has a node."""

        def found() -> list[str | None]:
            api = self.plane.api
            return [objects.node_of(api.get("pods", name, namespace)) for name in pods]

        wait_for(lambda: all(found()), 60, f"all of {pods} are bound", seeing=self._why(pods))
        return [node for node in found() if node]

    def _why(self, pods: list[str]) -> object:
        def seen() -> object:
            told = [each.get("status", {}) for each in self.plane.api.list("pods", "default")]
            return [told, sorted(set(self.refused())), self.kubelet.problems[-3:]]

        return seen

    def asked_by(self, pod: AppliedPod) -> list[Object]:
        """All that one pod asked of the API server; its token says which it is."""
        return [
            event
            for event in self.plane.audited(pod.user)
            if event["user"].get("extra", {}).get(POD) == [pod.name]
        ]

    def acts_of(self, pod: AppliedPod, since: datetime) -> list[str]:
        """All that one pod changed in the cluster since then, but for leases."""
        return [
            f"{event['verb']} {event['requestURI']}"
            for event in self.asked_by(pod)
            if event["verb"] in WRITES
            and event["objectRef"]["resource"] != "leases"
            and event["responseStatus"]["code"] < 300
            and datetime.fromisoformat(event["requestReceivedTimestamp"]) > since
        ]

    def refused(self) -> list[str]:
        """All that ours asked of the API server and had no right to."""
        account = f"system:serviceaccount:{EXTENDER_NAMESPACE}:"
        return [
            f"{event['user']['username']}: {event['verb']} {event['requestURI']}"
            for event in self.plane.audit_events()
            if event["user"].get("username", "").startswith(account)
            and event.get("responseStatus", {}).get("code") == 403
        ]


@contextmanager
def empty_cluster(folder: Path, nodes: int = 3) -> Iterator[Installation]:
    """A cluster as it comes: its own scheduler and controllers run, nothing of ours is there."""
    with (
        ControlPlane(folder, audit_reads=True, service_accounts=True) as plane,
        plane.controllers(),
        Kubelet(plane, EXTENDER_NAMESPACE) as kubelet,
    ):
        plane.api.create(*(objects.node(f"node-{index}") for index in range(nodes)))
        plane.wait_until_nodes_are_ready([f"node-{index}" for index in range(nodes)])
        yield Installation(plane, Shell(plane), kubelet)

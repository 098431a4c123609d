"""The actions and waits of a scene on one lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests import objects
from tests.cluster.api import Object
from tests.cluster.waiting import wait_for
from tests.nightly.faults.breaches import Bounds
from tests.nightly.faults.fault_points import Script
from tests.nightly.faults.record import Asked

from .lane import NODES, SCHEDULER, Lane

#: Timeout of each wait of a scene, after any fault.
TIMEOUT_S = 60.0
#: A pod that starts wrongly does so within this time.
_START_S = 1.0
#: The verdict holds the extender to changes older than this; the observer may see them later.
_OLD_CHANGE_S = Bounds().lag_s + 0.5
OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "0b8f3c1e-0000-4000-8000-000000000017",
    "controller": True,
}


class WrongEnd(AssertionError):
    """A pod started that must not, which time cannot explain."""


@dataclass
class SceneRun:
    """One scene on one lane; names begin with *prefix*, which differs between scenes."""

    lane: Lane
    prefix: str
    script: Script
    timeout_s: float = TIMEOUT_S

    def name(self, gang: str) -> str:
        return f"{self.prefix}-{gang}"

    def group(self, gang: str, minimum: int, **spec: Any) -> None:
        self.lane.api.create(
            objects.pod_group(self.name(gang), self.lane.namespace, minimum, **spec)
        )

    def add(self, gang: str, *indexes: int, owned: bool = False, **pod: Any) -> None:
        """Create members of a gang that has a PodGroup."""
        name, facts = self.name(gang), {"scheduler": SCHEDULER, **pod}
        for index in indexes:
            made = objects.pod(f"{name}-{index}", self.lane.namespace, gang=name, **facts)
            if owned:
                made["metadata"]["ownerReferences"] = [OWNER]
            self.lane.api.create(made)

    def gang(self, gang: str, size: int, *, minimum: int | None = None, **more: Any) -> None:
        """Create a gang with all its members; *more* is queue, priority or owners."""
        priority = more.get("priority")
        group = {"queue": more.get("queue")}
        if priority:
            group["priorityClassName"] = priority
        self.group(gang, minimum or size, **group)
        pod = {"priority": priority} if priority else {}
        self.add(gang, *range(size), **pod)

    def delete(self, gang: str, *indexes: int) -> None:
        for index in indexes:
            self.lane.api.delete(
                "pods", f"{self.name(gang)}-{index}", self.lane.namespace, grace_seconds=0
            )

    def bound(self, gang: str) -> int:
        """Return how many members were ever bound."""
        return len(self.lane.binds.of(f"{self.name(gang)}-"))

    def ended(self, gang: str) -> int:
        """Return how many members have ended."""
        prefix = f"{self.name(gang)}-"
        return sum(name.startswith(prefix) for name in self.lane.binds.ended)

    def wait_until_bound(self, gang: str, count: int) -> None:
        wait_for(
            lambda: self.bound(gang) >= count,
            self.timeout_s,
            f"{count} of {gang} are bound",
            seeing=lambda: self.bound(gang),
        )

    def wait_until_ended(self, gang: str, count: int) -> None:
        wait_for(
            lambda: self.ended(gang) >= count,
            self.timeout_s,
            f"{count} of {gang} have ended",
            seeing=lambda: self.ended(gang),
        )

    def wait_until_phase(self, gang: str, *phases: str) -> None:
        """Wait until its PodGroup has one of *phases*."""

        def phase() -> str:
            found = self.lane.api.get(objects.POD_GROUPS, self.name(gang), self.lane.namespace)
            return str(found.get("status", {}).get("phase", ""))

        wait_for(
            lambda: phase() in phases,
            self.timeout_s,
            f"{gang} is {phases}",
            seeing=phase,
            every_s=0.1,
        )

    def wait_until_called(self, site: str, count: int, seconds: float = 10) -> None:
        """Wait for *count* calls, which a fault may prevent."""
        try:
            wait_for(lambda: self.script.counts().get(site, 0) >= count, seconds, site)
        except AssertionError:
            return

    def wait_until_no_bind_waits(self) -> None:
        wait_for(
            lambda: not self._binds_open() and self.lane.has_no_waiting_binds,
            self.timeout_s,
            "no bind waits",
            every_s=0.05,
        )

    def _binds_open(self) -> int:
        """Return the number of bind calls without a response; the extender may not know them."""
        ended = sum(call.site == "hook-bind" for call in tuple(self.script.calls))
        return self.script.counts().get("hook-bind", 0) - ended

    # Pods that must not start

    def count_starts(self, gang: str) -> int:
        """Return how many members were bound, after enough time to start."""
        with suppress(AssertionError):
            wait_for(lambda: self.bound(gang), _START_S, "a member starts")
        return self.bound(gang)

    def assert_none_bound(self, gang: str, why_not: str) -> None:
        """Raise WrongEnd if a member of the gang was bound."""
        if bound := self.bound(gang):
            raise WrongEnd(f"{bound} of {gang} bound {why_not}")

    def assert_none_bound_to(self, node: str, gang: str, why_not: str) -> None:
        """Raise WrongEnd if a member of the gang was bound to that node."""
        seen = self.lane.binds.of(f"{self.name(gang)}-")
        if names := [bind.pod for bind in seen if bind.node == node]:
            raise WrongEnd(f"{', '.join(names)} bound to {node} {why_not}")

    # Administrators

    def node_of_a_waiting_bind(self) -> str:
        """Return the node of the first bind call."""
        asked = (each.node for each in self.lane.record.of(Asked) if each.hook == "bind")
        return next(asked, NODES[0])

    @contextmanager
    def closed(self, queue: str) -> Iterator[None]:
        """Close a queue; the extender has known it for long when the block begins."""
        self._set_state(queue, "Closed")
        try:
            self._wait_until_known("Queue", queue, lambda it: it["status"]["state"] == "Closed")
            yield
        finally:
            self._set_state(queue, "Open")

    @contextmanager
    def cordoned(self, node: str) -> Iterator[None]:
        """Cordon a node; the extender has known it for long when the block begins."""
        self._cordon(node, True)
        try:
            self._wait_until_known("Node", node, lambda it: bool(it["spec"]["unschedulable"]))
            yield
        finally:
            self._cordon(node, None)

    def _set_state(self, queue: str, state: str) -> None:
        status = {"status": {"state": state}}
        self.lane.api.patch(objects.QUEUES, queue, status, subresource="status")

    def _cordon(self, node: str, is_cordoned: bool | None) -> None:
        self.lane.api.patch("nodes", node, {"spec": {"unschedulable": is_cordoned}})

    def _wait_until_known(self, kind: str, name: str, is_changed: Callable[[Object], bool]) -> None:
        """Wait until the extender plans with the change, and the change is old."""
        since = self.lane.record.now()
        wait_for(
            lambda: is_changed(self.lane.planned_with(kind, name)),
            self.timeout_s,
            f"the extender knows the change of {name}",
            every_s=0.1,
        )
        wait_for(
            lambda: self.lane.record.now() - since > _OLD_CHANGE_S,
            2 * _OLD_CHANGE_S,
            "the change is old",
        )

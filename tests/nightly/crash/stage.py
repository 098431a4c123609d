"""One lane for one scene, in the words that the stories are told in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests import objects
from tests.cluster.api import Object
from tests.cluster.faults import Script
from tests.cluster.waiting import wait_for
from tests.nightly.faults.breaches import Bounds
from tests.nightly.faults.record import Asked

from .lane import NODES, SCHEDULER, Lane

#: How long a scene may wait for anything, after whatever fault.
PATIENCE_S = 60.0
#: Whoever may start has done so by then, or nothing went wrong and it is slow.
_LOOK_S = 1.0
#: News of which the verdict excuses nobody any more; the observer may have heard it a bit later.
_OLD_NEWS_S = Bounds().lag_s + 0.5
OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "0b8f3c1e-0000-4000-8000-000000000017",
    "controller": True,
}


class WrongEnd(AssertionError):
    """Somebody started who must not: no lack of time explains that."""


@dataclass
class Stage:
    """One lane for one scene; names begin with *prefix*, so that no two scenes share any."""

    lane: Lane
    prefix: str
    script: Script
    patience_s: float = PATIENCE_S

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
        """Count the members that were ever seen on a node."""
        return len(self.lane.binds.of(f"{self.name(gang)}-"))

    def ended(self, gang: str) -> int:
        """Count those that have left their node."""
        prefix = f"{self.name(gang)}-"
        return sum(name.startswith(prefix) for name in self.lane.binds.ended)

    def wait_until_bound(self, gang: str, count: int) -> None:
        wait_for(
            lambda: self.bound(gang) >= count,
            self.patience_s,
            f"{count} of {gang} are bound",
            seeing=lambda: self.bound(gang),
        )

    def wait_until_ended(self, gang: str, count: int) -> None:
        wait_for(
            lambda: self.ended(gang) >= count,
            self.patience_s,
            f"{count} of {gang} have left",
            seeing=lambda: self.ended(gang),
        )

    def wait_until_phase(self, gang: str, *phases: str) -> None:
        """Wait until its PodGroup says so."""

        def phase() -> str:
            found = self.lane.api.get(objects.POD_GROUPS, self.name(gang), self.lane.namespace)
            return str(found.get("status", {}).get("phase", ""))

        wait_for(
            lambda: phase() in phases,
            self.patience_s,
            f"{gang} is {phases}",
            seeing=phase,
            every_s=0.1,
        )

    def wait_until_asked(self, site: str, count: int, seconds: float = 10) -> None:
        """Wait for so many calls; a fault may be that they do not come."""
        try:
            wait_for(lambda: self.script.counts().get(site, 0) >= count, seconds, site)
        except AssertionError:
            return

    def wait_until_none_is_held(self) -> None:
        wait_for(
            lambda: not self._binds_open() and self.lane.holds_nothing,
            self.patience_s,
            "nothing is held",
            every_s=0.05,
        )

    def _binds_open(self) -> int:
        """Count the binds without an answer: the extender may not have taken some in yet."""
        ended = sum(call.site == "hook-bind" for call in tuple(self.script.calls))
        return self.script.counts().get("hook-bind", 0) - ended

    # Who must not start

    def look_for_starts(self, gang: str) -> int:
        """Count the members that were bound, after as long as whoever starts would take."""
        with suppress(AssertionError):
            wait_for(lambda: self.bound(gang), _LOOK_S, "somebody starts")
        return self.bound(gang)

    def nobody_of(self, gang: str, why_not: str) -> None:
        """Object to whoever of a gang was bound."""
        if bound := self.bound(gang):
            raise WrongEnd(f"{bound} of {gang} bound {why_not}")

    def nobody_on(self, node: str, gang: str, why_not: str) -> None:
        """Object to whoever of a gang was bound to that node."""
        seen = self.lane.binds.of(f"{self.name(gang)}-")
        if names := [bind.pod for bind in seen if bind.node == node]:
            raise WrongEnd(f"{', '.join(names)} bound to {node} {why_not}")

    # What administrators close for a while

    def node_of_a_hold(self) -> str:
        """Name the node to which the first who asked is to be bound."""
        asked = (each.node for each in self.lane.record.of(Asked) if each.hook == "bind")
        return next(asked, NODES[0])

    @contextmanager
    def closed(self, queue: str) -> Iterator[None]:
        """Close a queue; everybody has heard of it for long when the block begins."""
        self._set_state(queue, "Closed")
        try:
            self._wait_until_told("Queue", queue, lambda it: it["status"]["state"] == "Closed")
            yield
        finally:
            self._set_state(queue, "Open")

    @contextmanager
    def cordoned(self, node: str) -> Iterator[None]:
        """Cordon a node; everybody has heard of it for long when the block begins."""
        self._cordon(node, True)
        try:
            self._wait_until_told("Node", node, lambda it: bool(it["spec"]["unschedulable"]))
            yield
        finally:
            self._cordon(node, None)

    def _set_state(self, queue: str, state: str) -> None:
        said = {"status": {"state": state}}
        self.lane.api.patch(objects.QUEUES, queue, said, subresource="status")

    def _cordon(self, node: str, is_cordoned: bool | None) -> None:
        self.lane.api.patch("nodes", node, {"spec": {"unschedulable": is_cordoned}})

    def _wait_until_told(self, kind: str, name: str, is_told: Callable[[Object], bool]) -> None:
        """Wait until the extender plans with it, and until no news of it is fresh."""
        since = self.lane.record.now()
        wait_for(
            lambda: is_told(self.lane.planned_with(kind, name)),
            self.patience_s,
            f"the extender has heard what became of {name}",
            every_s=0.1,
        )
        wait_for(lambda: self.lane.record.now() - since > _OLD_NEWS_S, 2 * _OLD_NEWS_S, "old news")

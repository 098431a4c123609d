"""Short stories of gangs, each with its proper end: whole, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.faults.faults import Fault, Script
from tests.faults.record import Killed

from .. import objects
from ..waiting import wait_for
from .lane import CPUS, NAMESPACE, QUEUES, SCHEDULER, URGENT, Lane

#: How long a scene may wait for anything, after whatever fault.
PATIENCE_S = 60.0
#: Two seconds, and an eviction that is not answered for fifteen.
TAKEN_BACK_S = 25.0
OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "0b8f3c1e-0000-4000-8000-000000000017",
    "controller": True,
}


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
        self.lane.api.create(objects.pod_group(self.name(gang), NAMESPACE, minimum, **spec))

    def add(self, gang: str, *indexes: int, owned: bool = False, **pod: Any) -> None:
        """Create members of a gang that has a PodGroup."""
        name, facts = self.name(gang), {"scheduler": SCHEDULER, **pod}
        for index in indexes:
            made = objects.pod(f"{name}-{index}", NAMESPACE, gang=name, **facts)
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
            self.lane.api.delete("pods", f"{self.name(gang)}-{index}", NAMESPACE, grace_seconds=0)

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
            found = self.lane.api.get(objects.POD_GROUPS, self.name(gang), NAMESPACE)
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
        wait_for(lambda: self.lane.holds_nothing, self.patience_s, "nothing is held", every_s=0.05)


def _gang(stage: Stage) -> None:
    stage.gang("train", 4)
    stage.wait_until_bound("train", 4)


def _large(stage: Stage) -> None:
    stage.gang("train", 8)
    stage.wait_until_bound("train", 8)


def _surplus(stage: Stage) -> None:
    stage.gang("train", 6, minimum=3)
    stage.wait_until_bound("train", 6)


def _lone(stage: Stage) -> None:
    stage.lane.api.create(
        *(
            objects.pod(f"{stage.name('lone')}-{index}", NAMESPACE, scheduler=SCHEDULER)
            for index in range(4)
        )
    )
    stage.wait_until_bound("lone", 4)


def _compete(stage: Stage) -> None:
    stage.gang("left", 5)
    stage.gang("right", 5)
    wait_for(
        lambda: 5 in (stage.bound("left"), stage.bound("right")), stage.patience_s, "one is whole"
    )
    first, second = ("left", "right") if stage.bound("left") == 5 else ("right", "left")
    assert stage.bound(second) == 0, f"{stage.bound(second)} of the other are bound, too"
    stage.delete(first, *range(5))
    stage.wait_until_bound(second, 5)


def _missing(stage: Stage) -> None:
    stage.group("train", 4)
    stage.add("train", 0, 1, 2)
    stage.wait_until_asked("hook-bind", 3, 3)
    stage.wait_until_none_is_held()
    assert stage.bound("train") == 0, "bound before the last member came"
    stage.add("train", 3)
    stage.wait_until_bound("train", 4)


def _late(stage: Stage) -> None:
    stage.group("train", 4)
    stage.add("train", 0, 1)
    stage.wait_until_asked("hook-bind", 2, 2)
    stage.add("train", 2, 3)
    stage.wait_until_bound("train", 4)


def _replaced(stage: Stage) -> None:
    stage.group("train", 4)
    stage.add("train", 0, 1, 2)
    stage.wait_until_asked("hook-bind", 2, 2)
    stage.delete("train", 1)
    stage.add("train", 3, 4)
    stage.wait_until_bound("train", 4)


def _abandoned(stage: Stage) -> None:
    stage.group("train", 4)
    stage.add("train", 0, 1, 2)
    stage.wait_until_asked("hook-bind", 3, 2)
    stage.delete("train", 0, 1, 2)
    stage.wait_until_none_is_held()
    assert stage.bound("train") == 0, "bound although the gang never was whole"


def _reclaim(stage: Stage) -> None:
    theirs, ours = QUEUES
    stage.gang("small", 4, queue=theirs)
    stage.gang("other", 4, queue=theirs)
    stage.wait_until_bound("small", 4)
    stage.wait_until_bound("other", 4)
    stage.gang("due", 4, queue=ours)
    stage.wait_until_bound("due", 4)
    assert stage.ended("small") + stage.ended("other") == 4, "more left than had to"


def _preempt(stage: Stage) -> None:
    stage.gang("low", 4)
    stage.gang("also", 4)
    stage.wait_until_bound("low", 4)
    stage.wait_until_bound("also", 4)
    stage.gang("urgent", 4, priority=URGENT)
    stage.wait_until_bound("urgent", 4)


def _torn(stage: Stage) -> None:
    name = stage.name("train")
    stage.script.stand("bind", f"{name}-3", Fault.REFUSED)
    stage.group("train", 4)
    stage.add("train", 0, 1, 2, 3, owned=True)
    stage.wait_until_bound("train", 3)

    def is_over() -> bool:
        # A fault at the binding that is refused stands in the place of the refusal: it may succeed.
        return stage.ended("train") >= 3 or stage.bound("train") == 4

    try:
        wait_for(is_over, TAKEN_BACK_S, "what had started has left, or all of it has started")
    except AssertionError:
        if not stage.lane.record.of(Killed):
            raise
        # Whoever was killed meanwhile knows nothing of it: then the controller's new pods complete
        # the gang as soon as they can be bound. Whole, or nobody.
        stage.script.stand("bind", f"{name}-3", None)
        left = stage.ended("train")
        stage.add("train", *range(4, 4 + left), owned=True)
        stage.wait_until_bound("train", 4 + left)


def _told(stage: Stage) -> None:
    """What is written about a gang that runs, and one that cannot, is part of the scene."""
    stage.gang("train", 4)
    stage.gang("huge", CPUS + 1)
    stage.wait_until_bound("train", 4)
    stage.wait_until_phase("train", "Running")
    stage.wait_until_phase("huge", "Pending", "Inqueue")
    assert stage.bound("huge") == 0, "bound although there is no room for it"


def _restart(stage: Stage) -> None:
    stage.group("train", 4)
    stage.add("train", 0, 1)
    stage.wait_until_asked("hook-bind", 2, 2)
    stage.lane.kill()
    stage.add("train", 2, 3)
    stage.wait_until_bound("train", 4)


@dataclass(frozen=True, slots=True)
class Scene:
    """A story, and what it may cost."""

    name: str
    play: Callable[[Stage], None]
    #: Whether a gang may stand in part for longer than we promise, because its premise is that
    #: the API server refuses one binding for good.
    is_torn: bool = False


SCENES = (
    Scene("gang", _gang),
    Scene("large", _large),
    Scene("surplus", _surplus),
    Scene("lone", _lone),
    Scene("compete", _compete),
    Scene("missing", _missing),
    Scene("late", _late),
    Scene("replaced", _replaced),
    Scene("abandoned", _abandoned),
    Scene("reclaim", _reclaim),
    Scene("preempt", _preempt),
    Scene("told", _told),
    Scene("torn", _torn, is_torn=True),
    Scene("restart", _restart),
)

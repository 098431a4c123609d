"""Short stories of gangs, each with its proper end: whole, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests import objects
from tests.cluster.faults import Fault
from tests.cluster.waiting import wait_for
from tests.nightly.faults.record import Killed

from .lane import CEILING, CPUS, LIMITED, QUEUES, SCHEDULER, URGENT
from .stage import Stage

#: Two seconds, and an eviction that is not answered for fifteen.
TAKEN_BACK_S = 25.0


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
            objects.pod(f"{stage.name('lone')}-{index}", stage.lane.namespace, scheduler=SCHEDULER)
            for index in range(4)
        )
    )
    stage.wait_until_bound("lone", 4)


def _compete(stage: Stage) -> None:
    stage.gang("left", 5)
    stage.gang("right", 5)
    first, second = _wait_until_one_is_whole(stage, 5)
    assert stage.bound(second) == 0, f"{stage.bound(second)} of the other are bound, too"
    stage.delete(first, *range(5))
    stage.wait_until_bound(second, 5)


def _ceiling(stage: Stage) -> None:
    """There is room for both, and their queue may have no more than one of them."""
    stage.gang("left", CEILING, queue=LIMITED)
    stage.gang("right", CEILING, queue=LIMITED)
    first, second = _wait_until_one_is_whole(stage, CEILING)
    too_many = stage.look_for_starts(second)
    assert too_many == 0, f"{too_many} of the other are bound, too"
    stage.delete(first, *range(CEILING))
    stage.wait_until_bound(second, CEILING)


def _wait_until_one_is_whole(stage: Stage, size: int) -> tuple[str, str]:
    """Name that of left and right which is whole, and the other."""
    wait_for(
        lambda: size in (stage.bound("left"), stage.bound("right")),
        stage.patience_s,
        "one is whole",
    )
    return ("left", "right") if stage.bound("left") == size else ("right", "left")


def _missing(stage: Stage) -> None:
    stage.group("train", 4)
    stage.add("train", 0, 1, 2)
    stage.wait_until_asked("hook-bind", 3, 3)
    stage.wait_until_none_is_held()
    stage.nobody_of("train", "before the last member came")
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
    stage.nobody_of("train", "although the gang never was whole")


def _closed(stage: Stage) -> None:
    """Its queue is closed while a gang waits for its last member."""
    queue = QUEUES[0]
    stage.group("train", 4, queue=queue)
    stage.add("train", 0, 1, 2)
    stage.wait_until_asked("hook-bind", 3, 2)
    with stage.closed(queue):
        stage.add("train", 3)
        stage.look_for_starts("train")
        stage.nobody_of("train", "while the queue was closed")
    stage.wait_until_bound("train", 4)


def _cordoned(stage: Stage) -> None:
    """A node is cordoned while members of a gang are held for it."""
    stage.group("train", 4)
    stage.add("train", 0, 1, 2)
    stage.wait_until_asked("hook-bind", 3, 2)
    node = stage.node_of_a_hold()
    with stage.cordoned(node):
        stage.add("train", 3)
        stage.wait_until_bound("train", 4)
        stage.nobody_on(node, "train", "while it was cordoned")


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
    stage.script.set_standing("bind", f"{name}-3", Fault.REFUSED)
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
        stage.script.set_standing("bind", f"{name}-3", None)
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
    stage.nobody_of("huge", "although there is no room for it")


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
    Scene("ceiling", _ceiling),
    Scene("missing", _missing),
    Scene("late", _late),
    Scene("replaced", _replaced),
    Scene("abandoned", _abandoned),
    Scene("closed", _closed),
    Scene("cordoned", _cordoned),
    Scene("reclaim", _reclaim),
    Scene("preempt", _preempt),
    Scene("told", _told),
    Scene("torn", _torn, is_torn=True),
    Scene("restart", _restart),
)

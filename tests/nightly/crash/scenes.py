"""Short scenes with gangs, each with its expected end: the whole gang is bound, or no member."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests import objects
from tests.cluster.waiting import wait_for
from tests.nightly.faults.fault_points import Fault
from tests.nightly.faults.record import Killed

from .lane import CPUS, LIMIT, LIMITED, QUEUES, SCHEDULER, URGENT
from .scene_run import SceneRun

#: Two seconds, and an eviction without a response for fifteen.
EVICTED_S = 25.0


def _gang(run: SceneRun) -> None:
    run.gang("train", 4)
    run.wait_until_bound("train", 4)


def _large(run: SceneRun) -> None:
    run.gang("train", 8)
    run.wait_until_bound("train", 8)


def _surplus(run: SceneRun) -> None:
    run.gang("train", 6, minimum=3)
    run.wait_until_bound("train", 6)


def _lone(run: SceneRun) -> None:
    run.lane.api.create(
        *(
            objects.pod(f"{run.name('lone')}-{index}", run.lane.namespace, scheduler=SCHEDULER)
            for index in range(4)
        )
    )
    run.wait_until_bound("lone", 4)


def _compete(run: SceneRun) -> None:
    run.gang("left", 5)
    run.gang("right", 5)
    first, second = _wait_until_one_is_whole(run, 5)
    assert run.bound(second) == 0, f"{run.bound(second)} of the other are bound, too"
    run.delete(first, *range(5))
    run.wait_until_bound(second, 5)


def _ceiling(run: SceneRun) -> None:
    """Both fit, but their queue is limited to one of them."""
    run.gang("left", LIMIT, queue=LIMITED)
    run.gang("right", LIMIT, queue=LIMITED)
    first, second = _wait_until_one_is_whole(run, LIMIT)
    too_many = run.count_starts(second)
    assert too_many == 0, f"{too_many} of the other are bound, too"
    run.delete(first, *range(LIMIT))
    run.wait_until_bound(second, LIMIT)


def _wait_until_one_is_whole(run: SceneRun, size: int) -> tuple[str, str]:
    """Return which of left and right is whole, and the other."""
    wait_for(
        lambda: size in (run.bound("left"), run.bound("right")),
        run.timeout_s,
        "one is whole",
    )
    return ("left", "right") if run.bound("left") == size else ("right", "left")


def _missing(run: SceneRun) -> None:
    run.group("train", 4)
    run.add("train", 0, 1, 2)
    run.wait_until_called("hook-bind", 3, 3)
    run.wait_until_no_bind_waits()
    run.assert_none_bound("train", "before the last member was created")
    run.add("train", 3)
    run.wait_until_bound("train", 4)


def _late(run: SceneRun) -> None:
    run.group("train", 4)
    run.add("train", 0, 1)
    run.wait_until_called("hook-bind", 2, 2)
    run.add("train", 2, 3)
    run.wait_until_bound("train", 4)


def _replaced(run: SceneRun) -> None:
    run.group("train", 4)
    run.add("train", 0, 1, 2)
    run.wait_until_called("hook-bind", 2, 2)
    run.delete("train", 1)
    run.add("train", 3, 4)
    run.wait_until_bound("train", 4)


def _abandoned(run: SceneRun) -> None:
    run.group("train", 4)
    run.add("train", 0, 1, 2)
    run.wait_until_called("hook-bind", 3, 2)
    run.delete("train", 0, 1, 2)
    run.wait_until_no_bind_waits()
    run.assert_none_bound("train", "although the gang was never complete")


def _closed(run: SceneRun) -> None:
    """The queue is closed while a gang waits for its last member."""
    queue = QUEUES[0]
    run.group("train", 4, queue=queue)
    run.add("train", 0, 1, 2)
    run.wait_until_called("hook-bind", 3, 2)
    with run.closed(queue):
        run.add("train", 3)
        run.count_starts("train")
        run.assert_none_bound("train", "while the queue was closed")
    run.wait_until_bound("train", 4)


def _cordoned(run: SceneRun) -> None:
    """A node is cordoned while binds to it wait."""
    run.group("train", 4)
    run.add("train", 0, 1, 2)
    run.wait_until_called("hook-bind", 3, 2)
    node = run.node_of_a_waiting_bind()
    with run.cordoned(node):
        run.add("train", 3)
        run.wait_until_bound("train", 4)
        run.assert_none_bound_to(node, "train", "while it was cordoned")


def _reclaim(run: SceneRun) -> None:
    theirs, ours = QUEUES
    run.gang("small", 4, queue=theirs)
    run.gang("other", 4, queue=theirs)
    run.wait_until_bound("small", 4)
    run.wait_until_bound("other", 4)
    run.gang("due", 4, queue=ours)
    run.wait_until_bound("due", 4)
    assert run.ended("small") + run.ended("other") == 4, "more pods were evicted than needed"


def _preempt(run: SceneRun) -> None:
    run.gang("low", 4)
    run.gang("also", 4)
    run.wait_until_bound("low", 4)
    run.wait_until_bound("also", 4)
    run.gang("urgent", 4, priority=URGENT)
    run.wait_until_bound("urgent", 4)


def _refused_binding(run: SceneRun) -> None:
    name = run.name("train")
    run.script.set_standing("bind", f"{name}-3", Fault.REFUSED)
    run.group("train", 4)
    run.add("train", 0, 1, 2, 3, owned=True)
    run.wait_until_bound("train", 3)

    def is_over() -> bool:
        # A fault at the refused binding replaces the refusal, so the binding may succeed.
        return run.ended("train") >= 3 or run.bound("train") == 4

    try:
        wait_for(is_over, EVICTED_S, "the bound members are evicted, or all are bound")
    except AssertionError:
        if not run.lane.record.of(Killed):
            raise
        # An extender that was killed meanwhile does not know of it: then new pods of the
        # controller complete the gang when they can be bound.
        run.script.set_standing("bind", f"{name}-3", None)
        left = run.ended("train")
        run.add("train", *range(4, 4 + left), owned=True)
        run.wait_until_bound("train", 4 + left)


def _status(run: SceneRun) -> None:
    """The status of a running gang and of one that does not fit is part of the scene."""
    run.gang("train", 4)
    run.gang("huge", CPUS + 1)
    run.wait_until_bound("train", 4)
    run.wait_until_phase("train", "Running")
    run.wait_until_phase("huge", "Pending", "Inqueue")
    run.assert_none_bound("huge", "although it does not fit")


def _restart(run: SceneRun) -> None:
    run.group("train", 4)
    run.add("train", 0, 1)
    run.wait_until_called("hook-bind", 2, 2)
    run.lane.kill()
    run.add("train", 2, 3)
    run.wait_until_bound("train", 4)


@dataclass(frozen=True, slots=True)
class Scene:
    """A named scene."""

    name: str
    play: Callable[[SceneRun], None]
    #: Whether a gang may be partial for longer than guaranteed, since the API server refuses one
    #: binding permanently.
    may_be_partial: bool = False


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
    Scene("told", _status),
    Scene("torn", _refused_binding, may_be_partial=True),
    Scene("restart", _restart),
)

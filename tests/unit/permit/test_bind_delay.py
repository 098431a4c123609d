"""A bind to a node without capacity by the extender's count, just after another bind there."""

from __future__ import annotations

import pytest

from extender.cache.changes import Delete, Kind, Upsert
from extender.model.gang import GangKey, Membership
from extender.model.node import Node
from extender.model.pod import Pod, PodUid, Shape, Status
from extender.model.resources import Resources
from extender.permit.messages import Arrived, CallId, Cause
from extender.permit.runner import BindDelay
from extender.ports import BindOrder
from extender.sim.clock import VirtualClock
from tests.doubles import Call

from .test_cache_facts import Scene, pod

SHAPE = Shape(requests=Resources({"cpu": 1000, "pods": 1}))
MOMENT_S = 0.3


def single(name: str, **facts: object) -> Pod:
    return pod(name, shape=SHAPE, **facts)


def member(name: str) -> Membership:
    return Membership(key=GangKey(f"team/pod:{name}"), named=False)


class DelayScene(Scene):
    """A node with capacity for two pods, on which `old` runs."""

    def __init__(self) -> None:
        super().__init__()
        capacity = Resources({"cpu": 2000, "pods": 9})
        self.cluster.apply(Upsert(Node(name="n-1", allocatable=capacity)))
        self.show(single("old", node="n-1", status=Status.RUNNING), member("old"))

    def sends(self, name: str) -> Call:
        """Let kube-scheduler bind a pod there, whatever the extender counts."""
        self.ledger.passed(single(name), member(name))
        return Call(self.runner, name)


@pytest.fixture
def scene() -> DelayScene:
    """`new` was bound to the second place a moment ago."""
    scene = DelayScene()
    scene.show(single("new"), member("new"))
    call = scene.sends("new")
    scene.binder.say("new")
    assert call.result(0) == ""
    # The watch shows it, so it has no reservation any more.
    scene.show(single("new", node="n-1", status=Status.RUNNING), member("new"))
    scene.show(single("next"), member("next"))
    return scene


def test_a_pod_is_not_bound_where_an_unseen_pod_has_the_last_place(
    scene: DelayScene,
) -> None:
    """The answer about `new` was lost, and kube-scheduler's watch has not shown it yet."""
    call = scene.sends("next")
    assert not call.done()
    scene.clock.advance(MOMENT_S)

    assert Cause.NODE_FULL.value in call.result(0)
    assert scene.binder.batches == [["new"]]


def test_a_delayed_bind_continues_when_the_watch_shows_that_a_pod_left(scene: DelayScene) -> None:
    """kube-scheduler's watch is ahead of the extender's."""
    call = scene.sends("next")
    scene.cluster.apply(Delete(Kind.POD, "old"))
    scene.clock.advance(MOMENT_S)
    scene.binder.say("next")

    assert call.result(0) == ""


def test_without_a_recent_bind_kube_schedulers_count_is_used(
    scene: DelayScene,
) -> None:
    scene.clock.advance(2.1)
    scene.sends("next")

    assert scene.binder.batches == [["new"], ["next"]]


def test_a_pod_that_is_already_bound_there_is_answered_at_once(scene: DelayScene) -> None:
    assert scene.sends("new").result(0) == ""


def test_a_caller_that_disconnects_during_the_delay_gets_no_binding(scene: DelayScene) -> None:
    scene.sends("next").hang_up()
    scene.cluster.apply(Delete(Kind.POD, "old"))
    scene.clock.advance(MOMENT_S)

    assert scene.binder.batches == [["new"]]


@pytest.mark.parametrize("end", ["lose_lease", "shut_down"])
def test_a_delayed_call_is_answered_when_the_runner_closes(scene: DelayScene, end: str) -> None:
    call = scene.sends("next")
    getattr(scene.runner, end)()

    assert call.done()
    assert "leader" in call.result(0) or "shutting down" in call.result(0)


def test_a_repeated_call_is_delayed_with_the_first(scene: DelayScene) -> None:
    calls = [scene.sends("next"), scene.sends("next")]
    scene.clock.advance(MOMENT_S)

    assert all(Cause.NODE_FULL.value in each.result(0) for each in calls)


def test_a_delayed_call_continues_once_when_the_lease_is_lost_during_the_check() -> None:
    """The lease is lost in another thread, at any line of the check."""
    clock, released, is_lost = VirtualClock(), list[CallId](), False

    def look(order: BindOrder, now: float) -> bool:
        if is_lost:
            delay.clear()
        return not is_lost

    delay = BindDelay(
        look,
        lambda call: released.append(call.id),
        clock,  # type: ignore[arg-type]
        clock.monotonic,
    )
    for number in (1, 2, 3):
        delay.add(arrived(number))
    is_lost = True
    clock.advance(MOMENT_S)

    assert released == [1, 2, 3]


def test_one_check_is_pending_however_often_the_last_delayed_call_is_replaced() -> None:
    clock, looks = VirtualClock(), list[PodUid]()

    def look(order: BindOrder, now: float) -> bool:
        looks.append(order.uid)
        return True

    delay = BindDelay(
        look,
        lambda call: None,
        clock,  # type: ignore[arg-type]
        clock.monotonic,
    )
    for number in range(100):
        delay.add(arrived(number))
        assert delay.remove(CallId(number))
    delay.add(arrived(100))
    assert clock.waiting == 1
    looks.clear()
    clock.advance(MOMENT_S)

    assert looks == [PodUid("p-100")] * len(looks)
    assert len(looks) < 10
    assert clock.waiting == 0


def arrived(number: int) -> Arrived:
    order = BindOrder(uid=PodUid(f"p-{number}"), namespace="team", name="p", node="n-1")
    return Arrived(CallId(number), order)

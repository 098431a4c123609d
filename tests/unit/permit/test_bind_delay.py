"""A pod sent where we count no room, a moment after we bound somebody there."""

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


class Door(Scene):
    """A node with room for two, on which `old` runs."""

    def __init__(self) -> None:
        super().__init__()
        room = Resources({"cpu": 2000, "pods": 9})
        self.cluster.apply(Upsert(Node(name="n-1", allocatable=room)))
        self.show(single("old", node="n-1", status=Status.RUNNING), member("old"))

    def sends(self, name: str) -> Call:
        """Let kube-scheduler send a pod there, whatever we count."""
        self.ledger.filter_results.passed(single(name), member(name))
        return Call(self.barrier, name)


@pytest.fixture
def door() -> Door:
    """The second place was given to `new` a moment ago."""
    door = Door()
    door.show(single("new"), member("new"))
    call = door.sends("new")
    door.binder.say("new")
    assert call.result(0) == ""
    # Our watch shows it, so no promise says any more that the place is taken.
    door.show(single("new", node="n-1", status=Status.RUNNING), member("new"))
    door.show(single("next"), member("next"))
    return door


def test_a_pod_is_not_bound_where_an_unseen_pod_has_the_last_place(
    door: Door,
) -> None:
    """Our answer about `new` was lost, and kube-scheduler's watch has not shown it yet."""
    call = door.sends("next")
    assert not call.done()
    door.clock.advance(MOMENT_S)

    assert Cause.NODE_FULL.value in call.result(0)
    assert door.binder.batches == [["new"]]


def test_a_delayed_bind_continues_when_the_watch_shows_that_a_pod_left(door: Door) -> None:
    """kube-scheduler's watch is before ours."""
    call = door.sends("next")
    door.cluster.apply(Delete(Kind.POD, "old"))
    door.clock.advance(MOMENT_S)
    door.binder.say("next")

    assert call.result(0) == ""


def test_without_a_recent_bind_kube_schedulers_count_is_used(
    door: Door,
) -> None:
    door.clock.advance(2.1)
    door.sends("next")

    assert door.binder.batches == [["new"], ["next"]]


def test_a_pod_that_is_already_bound_there_is_answered_at_once(door: Door) -> None:
    assert door.sends("new").result(0) == ""


def test_a_caller_that_disconnects_during_the_delay_gets_no_binding(door: Door) -> None:
    door.sends("next").hang_up()
    door.cluster.apply(Delete(Kind.POD, "old"))
    door.clock.advance(MOMENT_S)

    assert door.binder.batches == [["new"]]


@pytest.mark.parametrize("end", ["lose_lease", "shut_down"])
def test_a_delayed_call_is_answered_when_the_runner_closes(door: Door, end: str) -> None:
    call = door.sends("next")
    getattr(door.barrier, end)()

    assert call.done()
    assert "leader" in call.result(0) or "shutting down" in call.result(0)


def test_a_repeated_call_is_delayed_with_the_first(door: Door) -> None:
    calls = [door.sends("next"), door.sends("next")]
    door.clock.advance(MOMENT_S)

    assert all(Cause.NODE_FULL.value in each.result(0) for each in calls)


def test_a_delayed_call_continues_once_when_the_lease_is_lost_during_the_check() -> None:
    """Leading ends in another thread, at any line of the look."""
    clock, let_in, is_lost = VirtualClock(), list[CallId](), False

    def look(call: Arrived) -> bool:
        if is_lost:
            doorstep.clear()
        return not is_lost

    doorstep = BindDelay(
        look,
        lambda call: let_in.append(call.id),
        clock,  # type: ignore[arg-type]
        clock.monotonic,
    )
    for number in (1, 2, 3):
        doorstep.add(arrived(number))
    is_lost = True
    clock.advance(MOMENT_S)

    assert let_in == [1, 2, 3]


def test_one_check_is_pending_however_often_the_last_delayed_call_is_replaced() -> None:
    clock, looks = VirtualClock(), list[CallId]()

    def look(call: Arrived) -> bool:
        looks.append(call.id)
        return True

    doorstep = BindDelay(
        look,
        lambda call: None,
        clock,  # type: ignore[arg-type]
        clock.monotonic,
    )
    for number in range(100):
        doorstep.add(arrived(number))
        assert doorstep.remove(CallId(number))
    doorstep.add(arrived(100))
    assert clock.waiting == 1
    looks.clear()
    clock.advance(MOMENT_S)

    assert looks == [CallId(100)] * len(looks)
    assert len(looks) < 10
    assert clock.waiting == 0


def arrived(number: int) -> Arrived:
    order = BindOrder(uid=PodUid(f"p-{number}"), namespace="team", name="p", node="n-1")
    return Arrived(CallId(number), order)

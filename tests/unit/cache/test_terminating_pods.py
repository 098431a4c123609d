"""The capacity of a pod that stays after its grace period is not waited for."""

from __future__ import annotations

import pytest

from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.cluster import Cluster
from extender.cache.pods import LONGEST_GRACE_S, STUCK_S
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.planner.planner import make_plan
from extender.sim.clock import VirtualClock
from tests.builders import NOW, SeenPod, cache, node, pod_group, seen, shape, uid

BIG = shape(cpu=4)


def terminating(clock: VirtualClock, grace_s: float = 30, name: str = "x") -> SeenPod:
    """A pod that was just deleted."""
    return seen(
        name, "", on="n1", shape=BIG, status=Status.RELEASING, leaves_by=clock.now() + grace_s
    )


class World:
    """One node, and a pod on it that was deleted a moment ago."""

    def __init__(self, grace_s: float = 30) -> None:
        self.clock = VirtualClock()
        self.cluster = cache(node("n1"), terminating(self.clock, grace_s), clock=self.clock)

    def releasing_cpus(self, after_s: float = 0) -> int:
        """Return the cpus that are being released, after so many seconds."""
        self.clock.advance(after_s)
        table = self.cluster.snapshot(self.clock.now()).nodes
        assert table.used[0, 0] == 4000, "it uses its capacity as long as it exists"
        return int(table.releasing[0, 0]) // 1000

    def stuck(self) -> set[str]:
        return set(self.cluster.snapshot(self.clock.now()).stuck)


def test_capacity_is_expected_during_the_grace_period_of_its_pod_and_a_while_longer() -> None:
    world = World(grace_s=30)

    assert world.releasing_cpus() == 4
    assert world.releasing_cpus(after_s=30 + STUCK_S - 1) == 4
    assert world.stuck() == set()
    assert world.releasing_cpus(after_s=2) == 0
    assert world.stuck() == {"a-x"}


def test_the_wait_for_a_pod_with_an_extreme_grace_period_is_bounded() -> None:
    world = World(grace_s=365 * 86400)

    assert world.releasing_cpus(after_s=LONGEST_GRACE_S + STUCK_S - 1) == 4
    assert world.releasing_cpus(after_s=2) == 0


@pytest.mark.parametrize("wrong_by", [3600, -3600])
def test_a_step_of_the_wall_clock_makes_no_pod_stuck(wrong_by: float) -> None:
    world = World(grace_s=0)
    world.clock.wall_is_off_by = wrong_by

    assert world.releasing_cpus(after_s=STUCK_S - 1) == 4
    assert world.releasing_cpus(after_s=2) == 0


def test_a_pod_deleted_before_the_extender_started_also_gets_some_time() -> None:
    """After a restart only the wall clock is known, and it may be wrong."""
    clock = VirtualClock()
    made = cache(node("n1"), terminating(clock, grace_s=-86400), clock=clock)

    assert not made.snapshot(clock.now()).stuck
    clock.advance(STUCK_S + 1)
    assert made.snapshot(clock.now()).stuck == {uid("x")}


def test_saved_objects_are_judged_by_the_time_of_their_snapshot() -> None:
    clock = VirtualClock()
    made = Cluster(clock, seen_s=0)
    for item in (
        node("n1"),
        terminating(clock, -STUCK_S - 1),
        terminating(clock, -STUCK_S + 1, "y"),
    ):
        made.apply(Upsert(item))

    assert made.snapshot(clock.now()).stuck == {uid("x")}


def test_a_stuck_pod_that_ends_after_all_is_forgotten() -> None:
    world = World()
    world.releasing_cpus(after_s=3600)
    world.cluster.apply(Upsert(terminating(world.clock, grace_s=-3570)))
    assert world.releasing_cpus() == 0, "another word about it changes nothing"
    world.cluster.apply(Delete(Kind.POD, "a-x"))

    table = world.cluster.snapshot(NOW).nodes

    assert not table.used.any()
    assert not table.releasing.any()
    assert world.stuck() == set()


@pytest.mark.parametrize("ends_after_s", [5, 3600], ids=["in time", "after it was stuck"])
@pytest.mark.parametrize("status", [Status.FAILED, Status.SUCCEEDED])
def test_a_finished_pod_with_a_finalizer_frees_its_capacity_once(
    status: Status, ends_after_s: float
) -> None:
    world = World()
    world.releasing_cpus(after_s=ends_after_s)
    ended = seen("x", "", on="n1", shape=BIG, status=status, leaves_by=NOW)
    world.cluster.apply(Upsert(ended))
    world.clock.advance(3600)

    for gone in (False, True):
        if gone:
            world.cluster.apply(Delete(Kind.POD, "a-x"))
        table = world.cluster.snapshot(world.clock.now()).nodes
        assert not table.used.any()
        assert not table.releasing.any()
        assert world.stuck() == set()


def test_capacity_is_expected_whatever_pods_ended_on_the_node_before() -> None:
    """The capacity that a finalizer kept for long is not subtracted from that of later pods."""
    clock = VirtualClock()
    big = pod_group("big", 2)
    made = cache(node("n1"), node("n2"), terminating(clock), clock=clock)
    made.apply(Upsert(seen("x", "", on="n1", shape=BIG, status=Status.FAILED)))
    clock.advance(3600)
    made.snapshot(clock.now())
    for item in (
        terminating(clock, name="y"),
        big,
        *(seen(f"b{n}", "big", shape=BIG) for n in "01"),
    ):
        made.apply(Upsert(item))

    plan = make_plan(made.snapshot(clock.now()))

    assert plan.verdicts[big.key].reason is Reason.WAITING_FOR_VICTIMS


def test_a_pod_with_a_shortened_grace_period_gets_no_more_time_than_before() -> None:
    world = World(grace_s=600)
    assert world.releasing_cpus(after_s=300) == 4
    world.cluster.apply(Upsert(terminating(world.clock, grace_s=0)))

    assert world.releasing_cpus(after_s=STUCK_S - 1) == 4
    assert world.releasing_cpus(after_s=2) == 0


def test_a_pod_stuck_in_terminating_does_not_keep_a_gang_from_unused_capacity() -> None:
    clock = VirtualClock()
    big, small = pod_group("big", 3), pod_group("small", 1, created=2.0)
    made = cache(
        *(node(name) for name in ("n1", "n2", "n3")),
        big,
        *(seen(f"b{number}", "big", shape=BIG) for number in range(3)),
        small,
        seen("s0", "small", shape=BIG),
        terminating(clock),
        clock=clock,
    )
    waited_for = make_plan(made.snapshot(clock.now()))
    assert small.key not in waited_for.placements
    assert waited_for.verdicts[big.key].reason is Reason.WAITING_FOR_VICTIMS

    clock.advance(30 + STUCK_S + 1)
    plan = make_plan(made.snapshot(clock.now()))

    assert set(plan.placements[small.key].placements) == {uid("s0")}
    assert plan.verdicts[big.key].reason is Reason.INSUFFICIENT_CAPACITY

"""One planning cycle after the other: what is reserved, woken and released."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from extender import planning_loop
from extender.cache.reservation_table import Stage
from extender.model.gang import GangKey, PodGroup
from extender.model.snapshot import Snapshot
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planning_loop import REST, SHORT_REST, rest
from tests.builders import GANG, pod, pod_group, seen, shape, uid
from tests.unit.reservations.world import World

#: Fills a node.
BIG = shape(cpu=4)


def complete_gang() -> list[Any]:
    return [pod_group(), seen("p0"), seen("p1")]


def test_a_complete_gang_gets_a_node_reserved_for_each_member() -> None:
    world = World(*complete_gang())

    world.turn()

    assert world.places().keys() == {"p0", "p1"}


def test_only_unschedulable_members_are_woken() -> None:
    world = World(*complete_gang())
    world.ask("p0")

    assert world.turn() == ["p0"]


def test_a_pod_refused_before_the_start_is_known_by_its_condition_and_woken() -> None:
    world = World(pod_group(), seen("p0", refusal="0/2 nodes are available"), seen("p1"))

    assert world.turn() == ["p0"]


def test_a_pod_is_woken_again_for_one_reservation_only_if_it_does_not_come() -> None:
    world = World(*complete_gang())
    world.ask("p0")

    assert world.turn() == ["p0"]
    assert world.turn(after_s=1) == []
    assert world.turn(after_s=3) == ["p0"]


def test_pods_are_not_woken_again_while_kube_scheduler_is_busy() -> None:
    world = World(*complete_gang())
    world.ask("p0")
    world.turn()
    world.is_busy = True

    assert world.turn(after_s=5) == []


def test_an_unused_reservation_expires_and_the_backoff_of_its_gang_grows() -> None:
    world = World(*complete_gang())
    world.turn()
    pauses = []
    for _ in range(3):
        world.turn(after_s=21)
        pauses.append(round(world.backs_off_for()))
        assert not world.table.of_gang(GANG)
        world.turn(after_s=pauses[-1] + 1)
        assert world.table.of_gang(GANG)

    assert pauses == [10, 20, 40]


def test_a_cycle_is_due_as_soon_as_the_backoff_of_a_gang_ends() -> None:
    world = World(*complete_gang())
    world.table.back_off(GANG, 3)
    world.turn()
    assert not world.cycle.is_due()

    world.clock.advance(3)
    assert world.cycle.is_due()
    world.turn()
    assert not world.cycle.is_due()


def test_a_node_that_kube_scheduler_rejected_is_not_tried_again_at_once() -> None:
    words = "0/2 nodes are available: volume node affinity conflict"
    world = World(pod_group(), seen("p0", refusal=words), seen("p1"))
    world.turn()
    first = world.of("p0").node

    world.turn(after_s=21)
    world.turn(after_s=11)

    assert set(world.places().values()) == {"n1", "n2"} - {first}


def test_no_reservation_is_made_in_capacity_taken_while_the_plan_was_made() -> None:
    world = World(pod_group(), seen("p0", shape=BIG), seen("p1", shape=BIG))

    def plan_while_another_gang_arrives(snapshot: Snapshot) -> Plan:
        plan = make_plan(snapshot)
        world.ledger.use_plan(plan)
        made = PodGroup(namespace="a", name="quick", min_member=4)
        assert world.arrivals.admit(pod("q0"), made, "default", ["n1"])
        return plan

    world.make_plan = plan_while_another_gang_arrives
    world.turn()
    assert not world.table.of_gang(GANG)
    assert len(world.table.of_gang(GangKey("a/quick"))) == 4


def test_a_gang_that_arrived_while_it_was_planned_keeps_its_reservations() -> None:
    world = World(*complete_gang())

    def plan_while_it_arrives(snapshot: Snapshot) -> Plan:
        plan = make_plan(snapshot)
        world.ledger.use_plan(plan)
        assert world.ask("p0").nodes
        return plan

    world.make_plan = plan_while_it_arrives
    world.turn()

    assert len(world.table.of_gang(GANG)) == 2


def test_members_refused_before_their_gang_was_admitted_are_woken() -> None:
    world = World(pod_group(min_member=3))
    world.see(seen("p0"))
    assert not world.ask("p0").nodes, "there is no plan yet"
    world.turn()
    assert world.ask("p1").nodes

    assert world.turn() == ["p0"]


def test_a_pause_follows_each_cycle_so_that_hooks_can_run() -> None:
    assert rest(0.002) == pytest.approx(0.08)
    assert rest(0.1) == pytest.approx(0.25)
    assert rest(0.5) == pytest.approx(1.0)


def test_the_pause_is_shorter_while_a_gang_waits_only_for_the_next_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert rest(0.005, SHORT_REST) == pytest.approx(0.02)
    assert rest(0.1, SHORT_REST) == rest(0.1)
    world = World(*complete_gang())
    planned = threading.Semaphore(0)

    def plan(snapshot: Snapshot) -> Plan:
        planned.release()
        return make_plan(snapshot)

    world.make_plan = plan
    monkeypatch.setattr(planning_loop, "rest", lambda _, times=REST: 60.0 if times == REST else 0.0)
    world.cycle.start()
    try:
        assert planned.acquire(timeout=20)
        world.see(seen("p2"))
        assert not planned.acquire(timeout=0.2), "it does not rest"
        world.published.hurry()
        assert planned.acquire(timeout=20), "it pauses although a gang waits"
    finally:
        world.cycle.stop()


def test_a_cycle_in_which_the_process_was_frozen_is_followed_by_the_next_at_once() -> None:
    world = World(*complete_gang())
    planned, again = threading.Event(), threading.Event()

    def plan_across_half_a_minute(snapshot: Snapshot) -> Plan:
        if planned.is_set():
            again.set()
        else:
            world.clock.advance(30.0)
            planned.set()
            world.cycle.request_cycle()
        return make_plan(snapshot)

    world.make_plan = plan_across_half_a_minute
    world.cycle.start()
    try:
        assert again.wait(20), "it rests for twice as long as it was frozen"
    finally:
        world.cycle.stop()


def test_a_reservation_lasts_longer_while_kube_scheduler_works_through_its_queue() -> None:
    world = World(*complete_gang())
    world.turn()
    world.is_busy = True

    world.turn(after_s=60)
    assert world.table.of_gang(GANG)

    world.turn(after_s=61)
    assert not world.table.of_gang(GANG)


def test_a_new_ordinary_pod_on_its_way_to_filter_gets_no_reservation() -> None:
    world = World()
    world.see(seen("web", "", created=world.clock.now() + 1))

    assert world.turn() == []
    assert world.table.of(uid("web")) is None


def test_a_reservation_survives_cycles_until_the_pod_is_seen_on_its_node() -> None:
    world = World(*complete_gang())
    world.turn()
    world.table.advance(uid("p0"), Stage.BOUND)
    world.turn()

    assert world.table.of(uid("p0")).stage is Stage.BOUND

    world.see(seen("p0", on="n1"))

    assert world.table.of(uid("p0")) is None


def test_every_cycle_is_dispatched_and_reported() -> None:
    world = World(*complete_gang())

    world.turn()

    assert [plan.generation for plan in world.passes] == [world.published.plan.generation] * 2


def test_a_requested_cycle_runs_though_nothing_changed() -> None:
    world = World(*complete_gang())
    world.turn()
    assert not world.cycle.is_due()

    world.cycle.request_cycle()

    assert world.cycle.is_due()
    world.turn()
    assert not world.cycle.is_due()


def test_deleted_objects_are_forgotten_while_no_cycle_may_run() -> None:
    world = World()
    world.why_not_ready = ["standby: another leads"]
    tidied = threading.Event()
    world.cluster.tidy = tidied.set  # type: ignore[method-assign]
    world.cycle.start()
    try:
        world.see(seen("p1"))
        assert tidied.wait(20)
    finally:
        world.cycle.stop()

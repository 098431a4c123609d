"""One pass after the other: what is reserved, who is woken, what is given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from extender.cache.changes import Upsert
from extender.cache.inflight import Stage
from extender.cycle import Cycle, Published, rest_until
from extender.gate import Gate
from extender.metrics import Metrics
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import Shape
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.planner import make_plan
from extender.ports import WakeOrder
from extender.promises.arrivals import Arrivals
from tests.cache.building import (
    GANG,
    StoppedClock,
    amounts,
    bare_pod,
    cluster,
    group,
    lone,
    member_of,
    node,
    pod,
    uid,
)

#: Fills a node.
BIG = Shape(requests=amounts(cpu=4))


class World:
    """A cycle that is turned by hand, with a clock that is set by hand."""

    def __init__(self, *items: Any) -> None:
        self.clock = StoppedClock()
        self.cluster = cluster(node("n1"), node("n2"), *items, clock=self.clock)
        self.published = Published()
        self.arrivals = arrivals = Arrivals(self.cluster, self.clock, grace_s=3.0)
        self.make_plan: Callable[[Snapshot], Plan] = make_plan
        self.gate = Gate(
            self.cluster, arrivals, self.published, lambda gang: self.cycle.give_back(gang)
        )
        self.idle_s = 60.0
        self.woken: list[str] = []
        self.passes: list[Plan] = []
        self.cycle = Cycle(
            cluster=self.cluster,
            published=self.published,
            gate=self.gate,
            arrivals=arrivals,
            make_plan=lambda snapshot: self.make_plan(snapshot),
            waker=self,
            dispatch=self,
            reporter=self,
            clock=self.clock,
            metrics=Metrics(),
            readiness=list,
            scheduler_idle_s=lambda: self.idle_s,
            ticket_s=20.0,
        )

    def protect(self, snapshot: Snapshot) -> Snapshot:
        return snapshot

    def carry_out(self, snapshot: Snapshot, plan: Plan) -> None:
        self.passes.append(plan)

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        self.passes.append(plan)

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        self.woken += [order.name for order in orders]

    def ask(self, name: str) -> list[str]:
        return list(self.gate.filter(bare_pod(name), member_of(), ["n1", "n2"]).nodes)

    def turn(self, after_s: float = 0.0) -> list[str]:
        """Make one pass and name the pods woken by it."""
        self.clock.time += after_s
        self.woken = []
        self.cycle.run_once()
        return sorted(self.woken)


def complete_gang() -> list[Any]:
    return [group(), pod("p0"), pod("p1")]


def test_a_complete_gang_gets_a_node_reserved_for_each_member() -> None:
    world = World(*complete_gang())

    world.turn()

    assert {each.uid for each in world.cluster.inflight.of_gang(GANG)} == {uid("p0"), uid("p1")}


def test_only_members_that_kube_scheduler_has_put_aside_are_woken() -> None:
    world = World(*complete_gang())
    world.ask("p0")

    assert world.turn() == ["p0"]


def test_a_pod_refused_before_our_time_is_known_by_its_condition_and_woken() -> None:
    world = World(group(), pod("p0", refusal="0/2 nodes are available"), pod("p1"))

    assert world.turn() == ["p0"]


def test_nobody_is_woken_twice_for_one_ticket_unless_he_oversleeps() -> None:
    world = World(*complete_gang())
    world.ask("p0")

    assert world.turn() == ["p0"]
    assert world.turn(after_s=1) == []
    assert world.turn(after_s=3) == ["p0"]


def test_a_busy_kube_scheduler_is_not_pressed() -> None:
    world = World(*complete_gang())
    world.ask("p0")
    world.turn()
    world.idle_s = 0.1

    assert world.turn(after_s=5) == []


def test_a_ticket_nobody_uses_is_given_back_and_its_gang_pauses_longer_each_time() -> None:
    world = World(*complete_gang())
    world.turn()
    pauses = []
    for _ in range(3):
        world.turn(after_s=21)
        until = world.cluster.inflight.backing_off_until(GANG)
        pauses.append(round(until - world.clock.now()))
        assert not world.cluster.inflight.of_gang(GANG)
        world.turn(after_s=pauses[-1] + 1)
        assert world.cluster.inflight.of_gang(GANG)

    assert pauses == [10, 20, 40]


def test_a_pass_is_due_as_soon_as_a_gang_may_be_tried_again() -> None:
    world = World(*complete_gang())
    world.cluster.inflight.back_off(GANG, world.clock.now() + 3)
    world.turn()
    assert not world.cycle.is_due()

    world.clock.time += 3
    assert world.cycle.is_due()
    world.turn()
    assert not world.cycle.is_due()


def test_a_node_on_which_kube_scheduler_would_not_have_a_pod_is_not_tried_again_at_once() -> None:
    words = "0/2 nodes are available: volume node affinity conflict"
    world = World(group(), pod("p0", refusal=words), pod("p1"))
    world.turn()
    first = world.cluster.inflight.of(uid("p0")).node

    world.turn(after_s=21)
    world.turn(after_s=11)

    assert {each.node for each in world.cluster.inflight.of_gang(GANG)} == {"n1", "n2"} - {first}


def test_a_ticket_is_not_issued_into_room_that_was_taken_while_it_was_planned() -> None:
    world = World(group(), pod("p0", shape=BIG), pod("p1", shape=BIG))

    def plan_while_another_gang_arrives(snapshot: Snapshot) -> Plan:
        plan = make_plan(snapshot)
        world.arrivals.allowance.renew(plan)
        made = PodGroup(namespace="a", name="quick", min_member=4)
        assert world.arrivals.admit(bare_pod("q0"), made, "default", ["n1"], {})
        return plan

    world.make_plan = plan_while_another_gang_arrives
    world.turn()
    assert not world.cluster.inflight.of_gang(GANG)
    assert len(world.cluster.inflight.of_gang(GangKey("a/quick"))) == 4


def test_a_gang_that_arrived_while_it_was_planned_keeps_the_places_it_took() -> None:
    world = World(*complete_gang())

    def plan_while_it_arrives(snapshot: Snapshot) -> Plan:
        plan = make_plan(snapshot)
        world.arrivals.allowance.renew(plan)
        assert world.ask("p0")
        return plan

    world.make_plan = plan_while_it_arrives
    world.turn()

    assert len(world.cluster.inflight.of_gang(GANG)) == 2


def test_members_refused_before_their_gang_was_let_in_are_woken() -> None:
    world = World(group(min_member=3))
    world.cluster.apply(Upsert(pod("p0")))
    assert not world.ask("p0"), "there is no plan yet"
    world.turn()
    assert world.ask("p1")

    assert world.turn() == ["p0"]


def test_after_a_pass_hooks_have_the_interpreter_for_a_while() -> None:
    assert rest_until(10.0, 10.002) == pytest.approx(10.082)
    assert rest_until(10.0, 10.1) == pytest.approx(10.35)
    assert rest_until(10.0, 10.5) == pytest.approx(11.5)


def test_a_ticket_lasts_longer_while_kube_scheduler_works_through_its_queue() -> None:
    world = World(*complete_gang())
    world.turn()
    world.idle_s = 0.1

    world.turn(after_s=60)
    assert world.cluster.inflight.of_gang(GANG)

    world.turn(after_s=61)
    assert not world.cluster.inflight.of_gang(GANG)


def test_an_ordinary_pod_on_its_way_to_filter_is_left_alone() -> None:
    world = World()
    world.cluster.apply(Upsert(lone("web", created=world.clock.now() + 1)))

    assert world.turn() == []
    assert world.cluster.inflight.of(uid("web")) is None


def test_a_promise_survives_the_passes_until_the_pod_is_seen_on_its_node() -> None:
    world = World(*complete_gang())
    world.turn()
    world.cluster.inflight.advance(uid("p0"), Stage.BOUND)
    world.turn()

    assert world.cluster.inflight.of(uid("p0")).stage is Stage.BOUND

    world.cluster.apply(Upsert(pod("p0", on="n1")))

    assert world.cluster.inflight.of(uid("p0")) is None


def test_every_pass_is_acted_upon_and_told() -> None:
    world = World(*complete_gang())

    world.turn()

    assert [plan.generation for plan in world.passes] == [world.published.plan.generation] * 2

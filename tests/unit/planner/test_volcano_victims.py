"""`compatibility: volcano`: victims pod by pod, node by node, as Volcano takes them."""

from __future__ import annotations

from typing import Any

from extender.model.gang import Gang, GangKey, Phase
from extender.model.pod import Pod
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from tests.builders import amounts, gang, node, nodes, pod, queue, shape, snapshot
from tests.unit.planner.plans import evicted

PREEMPT = """
actions: preempt
compatibility: volcano
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: %s}]}]
"""
RECLAIM = """
actions: reclaim
compatibility: volcano
tiers: [{plugins: [{name: gang}, {name: conformance}, {name: proportion}]}]
"""
WEIGHED = """
configurations: [{name: preempt, arguments: {enableTopologyAwarePreemption: true}}]
"""


def preempting(before: Snapshot, *, also: str = "", scores: str = "predicates") -> Plan:
    return make_plan(before, policy_parser.parse(PREEMPT % scores + also))


def inqueue(key: str, size: int, **rest: Any) -> Gang:
    group = {"phase": Phase.INQUEUE, **rest.pop("group", {})}
    return gang(key, size, group=group, **rest)


def low(**on: int) -> Gang:
    """Running pods of one elastic gang; the number is their priority."""
    pods: list[Pod] = [
        pod(f"low-{place}-{priority}", shape(cpu=1), on=place.split("_")[0], priority=priority)
        for place, priority in on.items()
    ]
    return inqueue("a/low", 0, pods=pods, min_member=0)


def high(size: int = 1, **rest: Any) -> Gang:
    return inqueue("a/high", size, priority=10, cpu=1, **rest)


def test_free_capacity_is_used_before_any_eviction() -> None:
    plan = preempting(snapshot(nodes(1, cpu=2), [low(n1=0), high()]))

    assert evicted(plan) == []
    assert plan.placements[GangKey("a/high")].pipelined == {"a-high-0": "n1"}


def test_the_lowest_priority_is_evicted_first_and_no_more_than_needed() -> None:
    plan = preempting(snapshot(nodes(1, cpu=3), [low(n1=5, n1_b=1, n1_c=3), high()]))

    assert evicted(plan) == ["low-n1_b-1"]


def test_a_gang_that_would_not_be_complete_evicts_no_pod() -> None:
    """The first member finds a victim, the second does not: the first victim is spared."""
    plan = preempting(snapshot(nodes(1, cpu=1), [low(n1=0), high(2)]))

    assert (evicted(plan), plan.placements) == ([], {})


def test_a_gang_at_its_minimum_is_spared() -> None:
    running = inqueue("a/low", 2, on=["n1", "n1"], cpu=1)
    plan = preempting(snapshot(nodes(1, cpu=2), [running, high()]))

    assert evicted(plan) == []


def test_pods_marked_as_not_preemptable_are_spared() -> None:
    pods = [
        pod("kept", shape(cpu=1), on="n1", preemptable=False),
        pod("loose", shape(cpu=1), on="n1", priority=9),
    ]
    running = inqueue("a/low", 0, pods=pods, min_member=0)
    plan = preempting(snapshot(nodes(1, cpu=2), [running, high()]))

    assert evicted(plan) == ["loose"]


def test_a_nominated_pod_does_not_preempt_again() -> None:
    plan = preempting(snapshot(nodes(1, cpu=1), [low(n1=0), high(each={"nominated": "n1"})]))

    assert evicted(plan) == []


def test_a_best_effort_pod_preempts_only_best_effort_pods() -> None:
    full = [node("n1", cpu=4, pods=1)]
    empty = inqueue("a/high", 1, priority=10)
    asked = inqueue("a/low", 1, min_member=0, on=["n1"], cpu=1)
    nothing = inqueue("a/low", 1, min_member=0, on=["n1"])

    assert evicted(preempting(snapshot(full, [asked, empty]))) == []
    assert evicted(preempting(snapshot(full, [nothing, empty]))) == ["low-0"]


def test_nodes_are_tried_in_the_order_of_their_scores() -> None:
    taken = {"n1": amounts(memory=40)}
    before = snapshot(nodes(2, cpu=1), [low(n1=0, n2=0), high()], taken=taken)

    assert evicted(preempting(before)) == ["low-n1-0"]
    spread = "nodeorder, arguments: {balancedresource.weight: 0}"
    assert evicted(preempting(before, scores=spread)) == ["low-n2-0"]


def test_weighing_all_nodes_finds_the_victims_of_lowest_priority() -> None:
    before = snapshot(nodes(2, cpu=1), [low(n1=7, n2=3), high()])

    assert evicted(preempting(before)) == ["low-n1-7"]
    assert evicted(preempting(before, also=WEIGHED)) == ["low-n2-3"]


def test_weighing_spares_a_victim_that_is_not_needed() -> None:
    pods = [
        pod("small", shape(cpu=1), on="n1", priority=0),
        pod("large", shape(cpu=2), on="n1", priority=1),
    ]
    running = inqueue("a/low", 0, pods=pods, min_member=0)
    wanted = inqueue("a/high", 1, priority=10, cpu=2)
    before = snapshot(nodes(1, cpu=3), [running, wanted])

    assert evicted(preempting(before)) == ["small", "large"]
    assert evicted(preempting(before, also=WEIGHED)) == ["large"]


def test_the_last_victim_of_a_queue_may_take_it_below_its_deserved_share() -> None:
    rich = inqueue("a/rich", 3, min_member=1, on=["n1"] * 3, queue="q1", cpu=2)
    poor = inqueue("a/poor", 1, queue="q2", cpu=3)
    before = snapshot([node("n1", cpu=6)], [rich, poor], [queue("q1"), queue("q2")])

    assert len(evicted(make_plan(before, policy_parser.parse(RECLAIM)))) == 2


def test_a_closed_queue_reclaims_nothing() -> None:
    rich = inqueue("a/rich", 2, min_member=0, on=["n1"] * 2, queue="q1", cpu=1)
    poor = inqueue("a/poor", 1, queue="q2", cpu=1)
    closed = snapshot([node("n1", cpu=2)], [rich, poor], [queue("q1"), queue("q2", state="Closed")])

    assert evicted(make_plan(closed, policy_parser.parse(RECLAIM))) == []

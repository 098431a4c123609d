"""Where our rules differ from Volcano's, and that `compatibility: volcano` restores those."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.gang import UNSPECIFIED, Gang, GangKey, Phase
from extender.model.pod import Status
from extender.model.resources import CPU, PODS
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import amounts, gang, node, nodes, queue, single, snapshot
from tests.unit.planner.plans import VOLCANO, evicted, started

TWO_TIERS = """
actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}]
"""
ONE_TIER = """
actions: "allocate, backfill, reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: proportion}, {name: predicates}]
"""


def ours(before: Snapshot, text: str = ONE_TIER) -> Plan:
    return make_plan(before, policy_parser.parse(text))


def as_volcano(before: Snapshot, text: str = ONE_TIER) -> Plan:
    return make_plan(before, policy_parser.parse(f"{text}\ncompatibility: volcano\n"))


def test_a_veto_is_final_so_gangs_of_equal_priority_do_not_preempt_each_other() -> None:
    old = gang("a/old", 3, on=["n1"] * 3, min_member=1, cpu=1)
    new = gang("a/new", 1, cpu=1, created=1)
    before = snapshot([node("n1", cpu=3)], [old, new])

    assert evicted(ours(before, TWO_TIERS)) == []
    # Volcano's second tier knows nothing of the priorities the first one vetoed for.
    assert len(evicted(as_volcano(before, TWO_TIERS))) == 1


def test_pods_are_no_dimension_of_a_queues_deserved_share() -> None:
    many = gang("a/many", 8, queue="q1", cpu=0.1)
    before = snapshot([node("n1", cpu=4, pods=10)], [many], [queue("q1")])

    assert PODS not in ours(before).queues["q1"].deserved
    assert as_volcano(before).queues["q1"].deserved[PODS] == 8


def test_deserved_shares_are_exact_where_volcano_converges() -> None:
    gangs = [gang(f"a/{name}", 40, min_member=1, queue=name, cpu=1) for name in ("q1", "q2", "q3")]
    queues = [
        queue("q1", capability=amounts(cpu=1)),
        queue("q2", capability=amounts(cpu=1)),
        queue("q3"),
    ]
    before = snapshot(nodes(1, cpu=30), gangs, queues)

    assert ours(before).queues["q3"].deserved[CPU] == 28_000
    assert as_volcano(before).queues["q3"].deserved[CPU] == pytest.approx(28_000, rel=1e-3)


def test_two_gangs_larger_than_the_deserved_shares_of_their_queues_do_not_wait_for_ever() -> None:
    gangs = [gang(f"a/{name}", 6, queue=name, cpu=1) for name in ("q1", "q2")]
    before = snapshot(nodes(5, cpu=2), gangs, [queue("q1"), queue("q2")])

    assert started(ours(before), "a/q1") == 6
    assert started(as_volcano(before), "a/q1") == started(as_volcano(before), "a/q2") == 0


def test_a_gang_within_its_queues_deserved_share_goes_before_one_that_is_not() -> None:
    big = gang("a/big", 6, queue="q1", cpu=1, created=1)
    small = gang("a/small", 5, queue="q2", cpu=1, created=2)
    before = snapshot(nodes(5, cpu=2), [big, small], [queue("q1"), queue("q2", 3)])

    assert started(ours(before), "a/small") == 5
    assert started(ours(before), "a/big") == 0


def test_a_gang_of_lower_priority_is_evicted_whole() -> None:
    low = gang("a/low", 2, on=["n1", "n2"], cpu=2)
    high = gang("a/high", 1, priority=10, cpu=2)
    before = snapshot(nodes(2, cpu=2), [low, high])

    assert evicted(ours(before)) == ["low-1", "low-0"]
    assert evicted(as_volcano(before)) == [], "Volcano spares a gang at its minimum altogether"


def test_an_ordinary_pod_can_be_preempted() -> None:
    before = snapshot(
        nodes(1, cpu=2), [single("a/low", on="n1", cpu=2), gang("a/high", 1, priority=10, cpu=2)]
    )

    assert evicted(ours(before)) == ["low-0"]


def test_members_without_requests_need_nodes_like_all_others() -> None:
    """Volcano starts part of a gang whose best-effort members no longer fit."""
    mixed = gang(
        "a/mixed",
        min_member=3,
        pods=[
            *gang("a/with", 1, cpu=1).pods,
            *gang("a/without", 2).pods,
        ],
    )
    before = snapshot([node("n1", cpu=4, pods=2)], [mixed])

    assert started(ours(before), "a/mixed") == 0
    assert started(as_volcano(before), "a/mixed") > 0


def test_without_any_vote_a_waiting_gang_may_preempt() -> None:
    text = "actions: preempt\ntiers: [{plugins: [{name: conformance}]}]"
    low = gang("a/low", 1, min_member=0, on=["n1"], cpu=1)
    before = snapshot(nodes(1, cpu=1), [low, gang("a/new", 1, min_member=0, cpu=1)])

    assert evicted(ours(before, text)) == ["low-0"]
    assert evicted(as_volcano(before, text)) == []


RECLAIM_FIRST = ONE_TIER.replace(
    "allocate, backfill, reclaim, preempt", "reclaim, preempt, allocate, backfill"
)


def test_unused_capacity_is_allocated_even_where_reclaim_stands_before_allocate() -> None:
    """The order of kube-batch's sample: pipelined by reclaim, the capacity would stay unused."""
    mine = gang("a/mine", 2, queue="q1", cpu=1)
    theirs = gang("a/theirs", 1, queue="q2", cpu=1, on=["n1"])
    before = snapshot(nodes(1, cpu=4), [mine, theirs], [queue("q1"), queue("q2")])

    assert started(ours(before, RECLAIM_FIRST), "a/mine") == 2


def test_a_member_that_may_not_preempt_does_not_stop_the_other_members() -> None:
    not_preempting, preempting = gang("a/meek", 1, cpu=1).pods[0], gang("a/bold", 1, cpu=1).pods[0]
    high = gang(
        "a/high",
        min_member=1,
        priority=9,
        pods=[replace(not_preempting, may_preempt=False), preempting],
    )
    low = gang("a/low", 1, cpu=1, on=["n1"])

    assert evicted(ours(snapshot(nodes(1, cpu=1), [high, low]))) == ["low-0"]


def test_a_stated_deserved_amount_holds_for_every_resource_it_names() -> None:
    """If one resource of several were enough, two queues could reclaim in turns for ever."""
    text = "actions: 'allocate, reclaim'\ntiers: [{plugins: [{name: gang}, {name: capacity}]}]"
    queues = [
        queue("q1", deserved=amounts(cpu=1, memory=4)),
        queue("q2", deserved=amounts(cpu=2, memory=1)),
    ]
    mine = gang("a/mine", 1, queue="q1", cpu=2, memory=1)
    theirs = gang("a/theirs", 4, min_member=1, queue="q2", cpu=1, memory=1, on=["n1"] * 4)
    before = snapshot(nodes(1, cpu=4, memory=8), [mine, theirs], queues)

    assert evicted(ours(before, text)) == []
    assert len(evicted(as_volcano(before, text))) == 2


def test_a_queue_without_weight_deserves_its_guarantee_and_borrows_unused_capacity() -> None:
    gangs = [gang(f"a/{name}", 4, min_member=0, queue=name, cpu=1) for name in ("none", "some")]
    queues = [queue("none", 0, guarantee=amounts(cpu=1)), queue("some")]
    before = snapshot(nodes(1, cpu=7), gangs, queues)

    for plan, number in ((ours(before), 3), (as_volcano(before), 1)):
        assert plan.queues["none"].deserved[CPU] == 1000
        assert started(plan, "a/none") == number
        assert started(plan, "a/some") == 4


def with_partial(before: Snapshot, *keys: str) -> Snapshot:
    return replace(before, partial_gangs=frozenset(map(GangKey, keys)))


def test_a_partial_gang_is_completed_first() -> None:
    partial = gang("a/partial", 3, on=["n1"], cpu=1, created=9)
    older = gang("a/older", 2, cpu=1, created=1, priority=5)
    before = with_partial(snapshot(nodes(1, cpu=3), [partial, older]), "a/partial")

    assert started(ours(before), "a/partial") == 2
    assert started(ours(before), "a/older") == 0
    assert started(as_volcano(before), "a/partial") == 0


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.INQUEUE])
def test_a_partial_gang_keeps_its_waiting_phase_so_that_the_next_leader_knows(
    phase: Phase,
) -> None:
    partial = gang("a/partial", 3, on=["n1"], cpu=1, group={"phase": phase})
    before = with_partial(snapshot(nodes(1, cpu=2), [partial]), "a/partial")

    assert ours(before).verdicts[GangKey("a/partial")].phase in UNSPECIFIED
    assert ours(with_partial(before)).verdicts[GangKey("a/partial")].phase is Phase.UNKNOWN


def test_a_gang_that_only_runs_with_too_few_members_goes_in_its_usual_order() -> None:
    short = gang("a/short", 3, on=["n1"], cpu=1, created=9)
    older = gang("a/older", 2, cpu=1, created=1, priority=5)
    before = snapshot(nodes(1, cpu=3), [short, older])

    assert started(ours(before), "a/short") == 0
    assert started(ours(before), "a/older") == 2


def test_a_partial_gang_goes_before_other_queues_and_above_its_queues_deserved_share() -> None:
    queues = [queue("poor", 1), queue("rich", 100)]
    partial = gang("a/partial", 4, on=["n1", "n1"], queue="poor", cpu=1, created=9)
    other = gang("a/other", 2, queue="rich", cpu=1, created=1)
    before = with_partial(snapshot(nodes(1, cpu=4), [partial, other], queues), "a/partial")

    assert started(ours(before), "a/partial") == 2
    assert started(ours(with_partial(before)), "a/partial") == 0, "as any other gang it would wait"


def test_a_partial_gang_stays_below_the_ceiling_of_its_queue() -> None:
    queues = [queue("low", capability=amounts(cpu=3))]
    partial = gang("a/partial", 4, on=["n1", "n1"], queue="low", cpu=1)
    before = with_partial(snapshot(nodes(1, cpu=9), [partial], queues), "a/partial")

    assert started(ours(before), "a/partial") == 0


def test_a_partial_gang_gets_its_minimum_first_and_the_rest_in_its_usual_order() -> None:
    partial = gang("a/partial", 5, min_member=2, on=["n1"], cpu=1, created=9)
    older = gang("a/older", 2, cpu=1, created=1)
    before = with_partial(snapshot(nodes(1, cpu=4), [partial, older]), "a/partial")

    assert started(ours(before), "a/partial") == 1
    assert started(ours(before), "a/older") == 2


def test_a_gang_that_has_finished_in_part_is_not_below_its_minimum() -> None:
    done = gang("a/done", 2, on=["n1", "n1"], min_member=2, cpu=1)
    pods = (replace(done.pods[0], status=Status.SUCCEEDED), done.pods[1])

    assert not replace(done, pods=pods).is_below_minimum


#: Of higher priority than all waiting pods: only the free slot counts here.
RUNS = gang("a/runs", 3, on=["n1"] * 3, cpu=1, priority=100)


def alone(name: str, created: float = 5.0, *, nominated: str = "", priority: int = 9) -> Gang:
    each = {"nominated": nominated}
    return single(f"a/{name}", cpu=1, priority=priority, created=created, each=each)


def admitted(*waiting: Gang, policy: Policy = policy_parser.DEFAULT) -> list[str]:
    """Return which pod gets the one free slot."""
    plan = make_plan(snapshot(nodes(1), [RUNS, *waiting]), policy)
    return [key for key, placement in plan.placements.items() if placement.placements]


@pytest.mark.parametrize("created", [5.0, 7.0])
def test_of_equal_pods_the_nominated_one_goes_first_though_it_is_younger(created: float) -> None:
    others = [alone("one"), alone("two")]

    assert admitted(*others, alone("z", created, nominated="n1")) == ["a/z"]


def test_a_pod_of_higher_priority_still_goes_before_the_nominated_one() -> None:
    assert admitted(alone("a", priority=10), alone("z", nominated="n1")) == ["a/a"]


def test_a_nominated_member_of_a_gang_does_not_go_first() -> None:
    written = gang(
        "a/z", 1, cpu=1, created=7.0, priority=9, each={"nominated": "n1", "priority": 9}
    )

    assert admitted(alone("one"), written) == ["a/one"]


def test_with_the_rules_of_volcano_a_nominated_pod_does_not_go_first() -> None:
    assert admitted(alone("one"), alone("z", 7.0, nominated="n1"), policy=VOLCANO) == ["a/one"]


def test_a_pod_behind_the_nominated_one_is_told_so() -> None:
    full = gang("a/runs", 4, on=["n1"] * 4, cpu=1, priority=100)
    state = snapshot(nodes(1), [full, alone("one"), alone("z", 7.0, nominated="n1")])

    told = explain(state, make_plan(state), policy_parser.DEFAULT, GangKey("a/one"))

    assert told is not None
    assert [(each.gang, each.why) for each in told.ahead] == [
        ("a/z", "kube-scheduler freed capacity for it")
    ]

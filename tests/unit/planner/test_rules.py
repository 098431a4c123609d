"""Where we decide otherwise than Volcano, and that `compatibility: volcano` turns it back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.gang import UNSPECIFIED, GangKey, Phase
from extender.model.pod import Status
from extender.model.resources import CPU, PODS
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from tests.builders import amounts, gang, node, nodes, queue, single, snapshot

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


def volcanos(before: Snapshot, text: str = ONE_TIER) -> Plan:
    return make_plan(before, policy_parser.parse(f"{text}\ncompatibility: volcano\n"))


def leaving(plan: Plan) -> list[str]:
    return [order.name for order in plan.evictions]


def started(plan: Plan, key: str) -> int:
    ticket = plan.placements.get(GangKey(key))
    return len(ticket.placements) if ticket else 0


def test_a_veto_is_final_so_equals_do_not_displace_each_other() -> None:
    old = gang("a/old", 3, on=["n1"] * 3, min_member=1, cpu=1)
    new = gang("a/new", 1, cpu=1, created=1)
    before = snapshot([node("n1", cpu=3)], [old, new])

    assert leaving(ours(before, TWO_TIERS)) == []
    # Volcano's second tier knows nothing of the priorities the first one vetoed for.
    assert len(leaving(volcanos(before, TWO_TIERS))) == 1


def test_pods_are_no_dimension_of_a_queues_due() -> None:
    many = gang("a/many", 8, queue="q1", cpu=0.1)
    before = snapshot([node("n1", cpu=4, pods=10)], [many], [queue("q1")])

    assert PODS not in ours(before).queues["q1"].deserved
    assert volcanos(before).queues["q1"].deserved[PODS] == 8


def test_dues_are_exact_where_volcano_converges() -> None:
    gangs = [gang(f"a/{name}", 40, min_member=1, queue=name, cpu=1) for name in ("q1", "q2", "q3")]
    queues = [
        queue("q1", capability=amounts(cpu=1)),
        queue("q2", capability=amounts(cpu=1)),
        queue("q3"),
    ]
    before = snapshot(nodes(1, cpu=30), gangs, queues)

    assert ours(before).queues["q3"].deserved[CPU] == 28_000
    assert volcanos(before).queues["q3"].deserved[CPU] == pytest.approx(28_000, rel=1e-3)


def test_two_gangs_larger_than_their_queues_dues_do_not_wait_for_ever() -> None:
    gangs = [gang(f"a/{name}", 6, queue=name, cpu=1) for name in ("q1", "q2")]
    before = snapshot(nodes(5, cpu=2), gangs, [queue("q1"), queue("q2")])

    assert started(ours(before), "a/q1") == 6
    assert started(volcanos(before), "a/q1") == started(volcanos(before), "a/q2") == 0


def test_a_gang_within_its_queues_due_goes_before_one_that_is_not() -> None:
    big = gang("a/big", 6, queue="q1", cpu=1, created=1)
    small = gang("a/small", 5, queue="q2", cpu=1, created=2)
    before = snapshot(nodes(5, cpu=2), [big, small], [queue("q1"), queue("q2", 3)])

    assert started(ours(before), "a/small") == 5
    assert started(ours(before), "a/big") == 0


def test_a_less_important_gang_leaves_whole() -> None:
    low = gang("a/low", 2, on=["n1", "n2"], cpu=2)
    high = gang("a/high", 1, priority=10, cpu=2)
    before = snapshot(nodes(2, cpu=2), [low, high])

    assert leaving(ours(before)) == ["low-1", "low-0"]
    assert leaving(volcanos(before)) == [], "Volcano spares a gang at its minimum altogether"


def test_an_ordinary_pod_can_be_displaced() -> None:
    before = snapshot(
        nodes(1, cpu=2), [single("a/low", on="n1", cpu=2), gang("a/high", 1, priority=10, cpu=2)]
    )

    assert leaving(ours(before)) == ["low-0"]


def test_members_without_requests_need_nodes_like_all_others() -> None:
    """Volcano starts part of a gang whose best-effort members have no place any more."""
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
    assert started(volcanos(before), "a/mixed") > 0


def test_without_any_opinion_whoever_waits_wants_more() -> None:
    text = "actions: preempt\ntiers: [{plugins: [{name: conformance}]}]"
    low = gang("a/low", 1, min_member=0, on=["n1"], cpu=1)
    before = snapshot(nodes(1, cpu=1), [low, gang("a/new", 1, min_member=0, cpu=1)])

    assert leaving(ours(before, text)) == ["low-0"]
    assert leaving(volcanos(before, text)) == []


RECLAIM_FIRST = ONE_TIER.replace(
    "allocate, backfill, reclaim, preempt", "reclaim, preempt, allocate, backfill"
)


def test_idle_room_is_handed_out_even_where_reclaim_stands_before_allocate() -> None:
    """The order of kube-batch's own sample: promised by reclaim, the room would stay idle."""
    mine = gang("a/mine", 2, queue="q1", cpu=1)
    theirs = gang("a/theirs", 1, queue="q2", cpu=1, on=["n1"])
    before = snapshot(nodes(1, cpu=4), [mine, theirs], [queue("q1"), queue("q2")])

    assert started(ours(before, RECLAIM_FIRST), "a/mine") == 2


def test_a_member_that_may_not_preempt_does_not_speak_for_its_siblings() -> None:
    meek, bold = gang("a/meek", 1, cpu=1).pods[0], gang("a/bold", 1, cpu=1).pods[0]
    high = gang("a/high", min_member=1, priority=9, pods=[replace(meek, may_preempt=False), bold])
    low = gang("a/low", 1, cpu=1, on=["n1"])

    assert leaving(ours(snapshot(nodes(1, cpu=1), [high, low]))) == ["low-0"]


def test_a_stated_due_holds_for_every_resource_it_names() -> None:
    """Content with one of several, two queues could take from each other for ever."""
    text = "actions: 'allocate, reclaim'\ntiers: [{plugins: [{name: gang}, {name: capacity}]}]"
    queues = [
        queue("q1", deserved=amounts(cpu=1, memory=4)),
        queue("q2", deserved=amounts(cpu=2, memory=1)),
    ]
    mine = gang("a/mine", 1, queue="q1", cpu=2, memory=1)
    theirs = gang("a/theirs", 4, min_member=1, queue="q2", cpu=1, memory=1, on=["n1"] * 4)
    before = snapshot(nodes(1, cpu=4, memory=8), [mine, theirs], queues)

    assert leaving(ours(before, text)) == []
    assert len(leaving(volcanos(before, text))) == 2


def test_a_queue_of_no_weight_deserves_its_guarantee_and_borrows_what_nobody_wants() -> None:
    gangs = [gang(f"a/{name}", 4, min_member=0, queue=name, cpu=1) for name in ("none", "some")]
    queues = [queue("none", 0, guarantee=amounts(cpu=1)), queue("some")]
    before = snapshot(nodes(1, cpu=7), gangs, queues)

    for plan, number in ((ours(before), 3), (volcanos(before), 1)):
        assert plan.queues["none"].deserved[CPU] == 1000
        assert started(plan, "a/none") == number
        assert started(plan, "a/some") == 4


def cut_short(before: Snapshot, *keys: str) -> Snapshot:
    return replace(before, partial_gangs=frozenset(map(GangKey, keys)))


def test_a_gang_that_was_cut_short_is_completed_first() -> None:
    torn = gang("a/torn", 3, on=["n1"], cpu=1, created=9)
    older = gang("a/older", 2, cpu=1, created=1, priority=5)
    before = cut_short(snapshot(nodes(1, cpu=3), [torn, older]), "a/torn")

    assert started(ours(before), "a/torn") == 2
    assert started(ours(before), "a/older") == 0
    assert started(volcanos(before), "a/torn") == 0


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.INQUEUE])
def test_a_gang_that_was_cut_short_is_told_to_wait_so_that_the_next_leader_knows(
    phase: Phase,
) -> None:
    torn = gang("a/torn", 3, on=["n1"], cpu=1, group={"phase": phase})
    before = cut_short(snapshot(nodes(1, cpu=2), [torn]), "a/torn")

    assert ours(before).verdicts[GangKey("a/torn")].phase in UNSPECIFIED
    assert ours(cut_short(before)).verdicts[GangKey("a/torn")].phase is Phase.UNKNOWN


def test_a_gang_that_only_runs_with_too_few_members_waits_for_its_turn() -> None:
    torn = gang("a/torn", 3, on=["n1"], cpu=1, created=9)
    older = gang("a/older", 2, cpu=1, created=1, priority=5)
    before = snapshot(nodes(1, cpu=3), [torn, older])

    assert started(ours(before), "a/torn") == 0
    assert started(ours(before), "a/older") == 2


def test_a_gang_that_was_cut_short_goes_before_other_queues_and_above_the_due_of_its_own() -> None:
    queues = [queue("poor", 1), queue("rich", 100)]
    torn = gang("a/torn", 4, on=["n1", "n1"], queue="poor", cpu=1, created=9)
    other = gang("a/other", 2, queue="rich", cpu=1, created=1)
    before = cut_short(snapshot(nodes(1, cpu=4), [torn, other], queues), "a/torn")

    assert started(ours(before), "a/torn") == 2
    assert started(ours(cut_short(before)), "a/torn") == 0, "as anybody's gang it would wait"


def test_a_gang_that_was_cut_short_stays_below_the_ceiling_of_its_queue() -> None:
    queues = [queue("low", capability=amounts(cpu=3))]
    torn = gang("a/torn", 4, on=["n1", "n1"], queue="low", cpu=1)
    before = cut_short(snapshot(nodes(1, cpu=9), [torn], queues), "a/torn")

    assert started(ours(before), "a/torn") == 0


def test_a_gang_that_was_cut_short_gets_its_minimum_first_and_the_rest_in_its_turn() -> None:
    torn = gang("a/torn", 5, min_member=2, on=["n1"], cpu=1, created=9)
    older = gang("a/older", 2, cpu=1, created=1)
    before = cut_short(snapshot(nodes(1, cpu=4), [torn, older]), "a/torn")

    assert started(ours(before), "a/torn") == 1
    assert started(ours(before), "a/older") == 2


def test_a_gang_that_is_done_in_part_is_not_torn() -> None:
    done = gang("a/done", 2, on=["n1", "n1"], min_member=2, cpu=1)
    pods = (replace(done.pods[0], status=Status.SUCCEEDED), done.pods[1])

    assert not replace(done, pods=pods).is_below_minimum

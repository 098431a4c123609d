"""capacity: stated deserved amounts, flat and as a tree."""

from __future__ import annotations

from typing import Any

from extender.model.gang import Gang, GangKey
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import amounts, gang, node, nodes, queue, snapshot
from tests.unit.planner.plans import started

TEXT = """
actions: "enqueue, allocate, reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: capacity%s}]
- plugins: [{name: predicates}]
"""
FLAT = policy_parser.parse(TEXT % "")
TREE = policy_parser.parse(TEXT % ", enableHierarchy: true")


def decide(before: Snapshot, chosen: Policy = FLAT) -> Plan:
    return make_plan(before, chosen)


def elastic(name: str, count: int = 9, **rest: Any):  # type: ignore[no-untyped-def]
    return gang(f"a/{name}", count, min_member=1, queue=name, cpu=1, **rest)


def with_deserved(name: str, cpu: float, **rest: Any) -> Queue:
    return queue(name, deserved=amounts(cpu=cpu), **rest)


def test_queues_are_served_up_to_what_they_deserve_first() -> None:
    queues = [with_deserved("q1", 2), with_deserved("q2", 4)]
    plan = decide(snapshot(nodes(1, cpu=6), [elastic("q1"), elastic("q2")], queues))

    assert (started(plan, "a/q1"), started(plan, "a/q2")) == (2, 4)


def test_what_is_left_may_be_borrowed_up_to_the_capability() -> None:
    queues = [with_deserved("q1", 2, capability=amounts(cpu=3)), with_deserved("q2", 4)]
    plan = decide(snapshot(nodes(1, cpu=9), [elastic("q1"), elastic("q2", 1)], queues))

    assert started(plan, "a/q1") == 3


def test_a_queue_that_deserves_nothing_comes_last() -> None:
    queues = [queue("aaa"), with_deserved("q1", 4)]
    plan = decide(snapshot(nodes(1, cpu=4), [elastic("aaa"), elastic("q1")], queues))

    assert (started(plan, "a/aaa"), started(plan, "a/q1")) == (0, 4)


def test_what_was_borrowed_is_given_back() -> None:
    rich = gang("a/rich", 4, min_member=1, on=["n1"] * 4, queue="q1", cpu=1)
    queues = [with_deserved("q1", 2), with_deserved("q2", 2)]
    plan = decide(snapshot([node("n1", cpu=4)], [rich, elastic("q2", 1)], queues))

    assert [order.name for order in plan.evictions] == ["rich-3"]


def test_no_queue_is_reclaimed_below_its_guarantee() -> None:
    rich = gang("a/rich", 2, min_member=1, on=["n1"] * 2, queue="q1", cpu=2)
    queues = [
        queue("q1", deserved=amounts(cpu=2), guarantee=amounts(cpu=4)),
        with_deserved("q2", 2),
    ]
    plan = decide(snapshot([node("n1", cpu=4)], [rich, elastic("q2", 1)], queues))

    assert plan.evictions == ()


def tree(*queues: Queue) -> list[Queue]:
    return [queue("root"), *queues]


def test_a_child_is_limited_by_every_queue_above_it() -> None:
    queues = tree(
        queue("dept", parent="root", capability=amounts(cpu=3)),
        with_deserved("one", 2, parent="dept"),
        with_deserved("two", 2, parent="dept"),
    )
    plan = decide(snapshot(nodes(1, cpu=9), [elastic("one"), elastic("two")], queues), TREE)

    assert started(plan, "a/one") + started(plan, "a/two") == 3


def test_the_branch_furthest_below_its_deserved_amount_goes_first() -> None:
    queues = tree(
        with_deserved("left", 4, parent="root"),
        with_deserved("right", 4, parent="root"),
        with_deserved("left-a", 4, parent="left"),
        with_deserved("right-a", 2, parent="right"),
        with_deserved("right-b", 2, parent="right"),
    )
    running = gang("a/run", 2, on=["n1"] * 2, queue="right-a", cpu=1)
    gangs = [running, elastic("left-a", 1, created=5.0), elastic("right-b", 1)]
    plan = decide(snapshot([node("n1", cpu=3)], gangs, queues), TREE)

    assert list(plan.placements) == ["a/left-a"]


def test_a_gang_may_not_name_a_queue_that_has_queues_below_it() -> None:
    queues = tree(queue("dept", parent="root"), queue("team", parent="dept"))
    plan = decide(snapshot(nodes(1), [elastic("dept", 1), elastic("team", 1)], queues), TREE)

    assert plan.verdicts[GangKey("a/dept")].reason is Reason.QUEUE_NOT_ALLOWED
    assert started(plan, "a/team") == 1, "other queues are not affected"


def test_a_gang_of_a_queue_with_an_unknown_parent_is_told_so() -> None:
    plan = decide(snapshot(nodes(1), [elastic("q1", 1)], [queue("q1", parent="nowhere")]), TREE)

    verdict = plan.verdicts[GangKey("a/q1")]
    assert verdict.reason is Reason.QUEUE_NOT_FOUND
    assert "parent nowhere, which does not exist" in verdict.message


def test_volcano_stops_altogether_at_one_bad_queue() -> None:
    volcano = policy_parser.parse(TEXT % ", enableHierarchy: true" + "compatibility: volcano")
    queues = tree(queue("bad", parent="nowhere"), queue("good", parent="root"))
    before = snapshot(nodes(1), [elastic("good", 1)], queues)

    assert started(decide(before, volcano), "a/good") == 0
    assert started(decide(before, TREE), "a/good") == 1


def test_queues_of_the_same_branch_give_back_before_others() -> None:
    queues = tree(
        with_deserved("left", 4, parent="root"),
        with_deserved("right", 2, parent="root"),
        with_deserved("left-a", 2, parent="left"),
        with_deserved("left-b", 2, parent="left"),
        with_deserved("right-a", 2, parent="right"),
    )
    gangs = [
        gang("a/near", 3, min_member=1, on=["n1"] * 3, queue="left-b", cpu=1),
        gang("a/far", 3, min_member=1, on=["n1"] * 3, queue="right-a", cpu=1),
        elastic("left-a", 1),
    ]
    plan = decide(snapshot([node("n1", cpu=6)], gangs, queues), TREE)

    assert [order.name for order in plan.evictions] == ["near-2"]


def of_twelve(*gangs: Gang) -> Plan:
    """Plan twelve cpus, of which `mine` deserves six and lends four."""
    mine = with_deserved("mine", 6, guarantee=amounts(cpu=2))
    return decide(snapshot(nodes(3, cpu=4), gangs, [mine, with_deserved("theirs", 6)]))


def test_others_may_borrow_all_but_the_guarantee_of_a_queue() -> None:
    assert started(of_twelve(elastic("theirs", 12)), "a/theirs") == 10


def test_a_queue_reclaims_what_it_lacks_of_its_deserved_amount() -> None:
    borrowed = [
        gang(f"a/theirs-{number}", 1, cpu=1, queue="theirs", on=[home])
        for number, home in enumerate(["n1"] * 4 + ["n2"] * 4 + ["n3"] * 2)
    ]
    wanted = [gang(f"a/mine-{number}", 1, cpu=1, queue="mine") for number in range(6)]
    plan = of_twelve(*borrowed, *wanted)

    # Two use the guaranteed capacity; the others wait for as many victims.
    assert sum(started(plan, f"a/mine-{number}") for number in range(6)) == 2
    assert len(plan.evictions) == 4

"""proportion: dues by weight, with guarantees, capabilities and priorities of queues."""

from __future__ import annotations

from extender.model.gang import GangKey, Phase
from extender.model.reason import Reason
from extender.plan.decision import Plan
from extender.plan.planner import make_plan
from tests.builders import amounts, cluster, gang, node, nodes, queue


def started(plan: Plan, key: str) -> int:
    ticket = plan.tickets.get(GangKey(key))
    return len(ticket.placements) if ticket else 0


def pods(queue_name: str, count: int = 20, **rest: object):  # type: ignore[no-untyped-def]
    return gang(f"a/{queue_name}", count, least=1, queue=queue_name, cpu=1, **rest)


def test_queues_get_their_weighted_part() -> None:
    plan = make_plan(
        cluster(nodes(3, cpu=4), [pods("q1"), pods("q2")], [queue("q1", 1), queue("q2", 2)])
    )

    assert (started(plan, "a/q1"), started(plan, "a/q2")) == (4, 8)


def test_what_a_queue_does_not_want_is_the_others() -> None:
    plan = make_plan(
        cluster(nodes(3, cpu=4), [pods("q1"), pods("q2", 2)], [queue("q1", 1), queue("q2", 9)])
    )

    assert (started(plan, "a/q1"), started(plan, "a/q2")) == (10, 2)


def test_nobody_exceeds_its_capability_even_in_an_empty_cluster() -> None:
    limited = queue("q1", capability=amounts(cpu=3))
    plan = make_plan(cluster(nodes(3, cpu=4), [gang("a/q1", 4, queue="q1", cpu=1)], [limited]))

    assert started(plan, "a/q1") == 0
    assert plan.verdicts[GangKey("a/q1")].reason in (
        Reason.QUEUE_AT_CAPABILITY,
        Reason.QUEUE_OVER_DESERVED,
    )


def test_a_capability_may_limit_pods_too() -> None:
    limited = queue("q1", capability=amounts(pods=3))
    plan = make_plan(cluster(nodes(3, cpu=4), [pods("q1")], [limited]))

    assert started(plan, "a/q1") == 3


def test_what_is_guaranteed_to_one_is_not_lent_to_others() -> None:
    queues = [queue("q1"), queue("q2", guarantee=amounts(cpu=4))]
    plan = make_plan(cluster(nodes(3, cpu=4), [pods("q1")], queues))

    assert started(plan, "a/q1") == 8


def test_the_queue_of_higher_priority_goes_first() -> None:
    queues = [queue("q1"), queue("q2", priority=5)]
    gangs = [gang(f"a/{name}", 2, queue=name, cpu=2) for name in ("q1", "q2")]
    plan = make_plan(cluster(nodes(2, cpu=2), gangs, queues))

    assert list(plan.tickets) == ["a/q2"]


def test_a_closed_queue_starts_nothing_and_says_so() -> None:
    plan = make_plan(cluster(nodes(1), [pods("q1")], [queue("q1", state="Closed")]))

    assert plan.tickets == {}
    assert plan.verdicts[GangKey("a/q1")].reason is Reason.QUEUE_CLOSED
    assert "closed" in plan.verdicts[GangKey("a/q1")].message


def test_a_queue_takes_back_its_due_from_one_that_has_too_much() -> None:
    rich = gang("a/rich", 4, least=1, on=["n1"] * 4, queue="q1", cpu=1)
    plan = make_plan(
        cluster([node("n1", cpu=4)], [rich, pods("q2", 2)], [queue("q1"), queue("q2")])
    )

    assert [(order.action, order.beneficiary) for order in plan.evictions] == [("reclaim", "a/q2")]


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    rich = gang("a/rich", 4, least=1, on=["n1"] * 4, queue="q1", cpu=1)
    queues = [queue("q1", reclaimable=False), queue("q2")]
    plan = make_plan(cluster([node("n1", cpu=4)], [rich, pods("q2", 2)], queues))

    assert plan.evictions == ()


def test_a_queue_within_its_due_gives_nothing_back() -> None:
    fair = gang("a/fair", 2, least=1, on=["n1"] * 2, queue="q1", cpu=1)
    full = gang("a/full", 2, least=1, on=["n1"] * 2, queue="q2", cpu=1)
    plan = make_plan(
        cluster([node("n1", cpu=4)], [fair, full, pods("q3", 2)], [queue("q1"), queue("q2")])
    )

    assert plan.evictions == ()


def test_a_gang_is_kept_out_while_its_minimum_exceeds_the_capability() -> None:
    big = gang(
        "a/big", 1, queue="q1", cpu=1, group={"min_resources": amounts(cpu=9), "dialect": "x"}
    )
    plan = make_plan(cluster(nodes(9), [big], [queue("q1", capability=amounts(cpu=8))]))

    verdict = plan.verdicts[GangKey("a/big")]
    assert (verdict.phase, verdict.reason) == (Phase.PENDING, Reason.QUEUE_AT_CAPABILITY)
    assert "9 more would exceed it" in verdict.message


def test_figures_tell_what_queues_deserve_use_and_want() -> None:
    plan = make_plan(
        cluster(nodes(1, cpu=4), [pods("q1", 6), pods("q2", 6)], [queue("q1"), queue("q2", 3)])
    )
    figures = plan.queues["q2"]

    assert figures.deserved.amount("cpu") == 3000
    assert figures.allocated.amount("cpu") == 3000
    assert figures.requested.amount("cpu") == 6000
    assert (figures.share, figures.overused) == (1.0, False)

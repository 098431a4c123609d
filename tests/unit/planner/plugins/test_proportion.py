"""proportion: deserved shares by weight, with guarantees, capabilities and priorities of queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.model.gang import Gang, GangKey, Phase
from extender.model.reason import Reason
from extender.planner import policy_parser
from extender.planner.plan import Verdict
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import amounts, gang, node, nodes, queue, snapshot
from tests.unit.planner.plans import started


def pods(queue_name: str, count: int = 20, **rest: object):  # type: ignore[no-untyped-def]
    return gang(f"a/{queue_name}", count, min_member=1, queue=queue_name, cpu=1, **rest)


def test_queues_get_their_weighted_part() -> None:
    plan = make_plan(
        snapshot(nodes(3, cpu=4), [pods("q1"), pods("q2")], [queue("q1", 1), queue("q2", 2)])
    )

    assert (started(plan, "a/q1"), started(plan, "a/q2")) == (4, 8)


def test_what_a_queue_does_not_request_goes_to_the_others() -> None:
    plan = make_plan(
        snapshot(nodes(3, cpu=4), [pods("q1"), pods("q2", 2)], [queue("q1", 1), queue("q2", 9)])
    )

    assert (started(plan, "a/q1"), started(plan, "a/q2")) == (10, 2)


def test_no_queue_exceeds_its_capability_even_in_an_empty_cluster() -> None:
    limited = queue("q1", capability=amounts(cpu=3))
    plan = make_plan(snapshot(nodes(3, cpu=4), [gang("a/q1", 4, queue="q1", cpu=1)], [limited]))

    assert started(plan, "a/q1") == 0
    assert plan.verdicts[GangKey("a/q1")].reason in (
        Reason.QUEUE_AT_CAPABILITY,
        Reason.QUEUE_OVER_DESERVED,
    )


def test_a_capability_may_limit_pods_too() -> None:
    limited = queue("q1", capability=amounts(pods=3))
    plan = make_plan(snapshot(nodes(3, cpu=4), [pods("q1")], [limited]))

    assert started(plan, "a/q1") == 3


def test_what_is_guaranteed_to_one_queue_is_not_borrowed_by_others() -> None:
    queues = [queue("q1"), queue("q2", guarantee=amounts(cpu=4))]
    plan = make_plan(snapshot(nodes(3, cpu=4), [pods("q1")], queues))

    assert started(plan, "a/q1") == 8


def test_the_queue_of_higher_priority_goes_first() -> None:
    queues = [queue("q1"), queue("q2", priority=5)]
    gangs = [gang(f"a/{name}", 2, queue=name, cpu=2) for name in ("q1", "q2")]
    plan = make_plan(snapshot(nodes(2, cpu=2), gangs, queues))

    assert list(plan.placements) == ["a/q2"]


def test_a_queue_reclaims_its_deserved_share_from_one_that_has_too_much() -> None:
    rich = gang("a/rich", 4, min_member=1, on=["n1"] * 4, queue="q1", cpu=1)
    plan = make_plan(
        snapshot([node("n1", cpu=4)], [rich, pods("q2", 2)], [queue("q1"), queue("q2")])
    )

    assert [(order.action, order.beneficiary) for order in plan.evictions] == [("reclaim", "a/q2")]


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    rich = gang("a/rich", 4, min_member=1, on=["n1"] * 4, queue="q1", cpu=1)
    queues = [queue("q1", reclaimable=False), queue("q2")]
    plan = make_plan(snapshot([node("n1", cpu=4)], [rich, pods("q2", 2)], queues))

    assert plan.evictions == ()


@pytest.mark.parametrize("state", ["Open", "Closed"])
def test_a_queue_within_its_deserved_share_gives_nothing_back(state: str) -> None:
    fair = gang("a/fair", 2, min_member=1, on=["n1"] * 2, queue="q1", cpu=1)
    rich = gang("a/rich", 4, min_member=1, on=["n1"] * 4, queue="q2", cpu=1)
    queues = [queue("q1", state=state), queue("q2", reclaimable=False), queue("q3")]
    plan = make_plan(snapshot([node("n1", cpu=6)], [fair, rich, pods("q3", 2)], queues))

    assert plan.evictions == ()


def test_a_gang_is_not_enqueued_while_its_minimum_exceeds_the_capability() -> None:
    big = gang(
        "a/big", 1, queue="q1", cpu=1, group={"min_resources": amounts(cpu=9), "dialect": "x"}
    )
    plan = make_plan(snapshot(nodes(9), [big], [queue("q1", capability=amounts(cpu=8))]))

    verdict = plan.verdicts[GangKey("a/big")]
    assert (verdict.phase, verdict.reason) == (Phase.PENDING, Reason.QUEUE_AT_CAPABILITY)
    assert "9 more would exceed it" in verdict.message


# ── enqueueing by minResources ──────────────────────────────────────────────────────────────


def enqueue_verdicts(
    *gangs: Gang, recently: str = "", policy: Policy = policy_parser.DEFAULT
) -> dict[str, Verdict]:
    """Plan one queue of 8 cpus, and return the verdicts by gang."""
    seen = snapshot(nodes(2, cpu=8), gangs, [queue("q", capability=amounts(cpu=8))])
    seen = replace(seen, recently_admitted=frozenset(map(GangKey, filter(None, [recently]))))
    return {str(key): each for key, each in make_plan(seen, policy).verdicts.items()}


def requesting(
    key: str, requested: float, size: int = 0, phase: Phase = Phase.PENDING, **rest: Any
) -> Gang:
    group = {"min_resources": amounts(cpu=requested), "phase": phase}
    members = {"pods": [], "min_member": 1} if not size else {}
    return gang(key, size, queue="q", group=group, **members, **rest)


#: Its pods are never created.
WITHOUT_PODS = requesting("b/left", 8, phase=Phase.INQUEUE)
#: A job whose controller creates pods once it is enqueued.
JOB = requesting("a/job", 4, created=1.0)


def test_min_resources_without_pods_keep_other_gangs_out_for_a_while() -> None:
    verdict = enqueue_verdicts(WITHOUT_PODS, JOB, recently="b/left")["a/job"]

    assert (verdict.phase, verdict.reason) == (Phase.PENDING, Reason.QUEUE_AT_CAPABILITY)
    assert verdict.message == (
        "queue q uses 0 of at most 8 cpu and has reserved 8 for admitted gangs; 4 more would"
        " exceed it"
    )


def test_min_resources_without_pods_do_not_keep_other_gangs_out_for_ever() -> None:
    assert enqueue_verdicts(WITHOUT_PODS, JOB)["a/job"].phase is Phase.INQUEUE


def test_a_gang_that_runs_with_less_than_its_min_resources_keeps_no_gang_out() -> None:
    tiny = requesting("b/tiny", 8, 1, on=["n1"], phase=Phase.RUNNING, cpu=0.1)

    assert enqueue_verdicts(tiny, JOB)["a/job"].phase is Phase.INQUEUE


def test_waiting_pods_of_an_enqueued_gang_count() -> None:
    waits = requesting("b/waits", 8, 1, phase=Phase.INQUEUE, cpu=8, selector=(("no", "node"),))

    assert enqueue_verdicts(waits, JOB)["a/job"].phase is Phase.PENDING


def test_a_gang_whose_pods_exist_is_not_kept_out_by_min_resources_of_others() -> None:
    real = requesting("a/real", 4, 2, created=1.0, cpu=2)

    assert (
        enqueue_verdicts(WITHOUT_PODS, real, recently="b/left")["a/real"].reason is Reason.ADMITTED
    )


def test_overcommit_does_not_count_min_resources_without_pods_for_ever() -> None:
    text = policy_parser.DEFAULT_TEXT.replace("name: resourcequota", "name: overcommit")
    most = requesting("b/left", 20, phase=Phase.INQUEUE)

    assert (
        enqueue_verdicts(most, JOB, policy=policy_parser.parse(text))["a/job"].phase
        is Phase.INQUEUE
    )


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_with_the_rules_of_volcano_min_resources_without_pods_count_for_ever(plugin: str) -> None:
    text = policy_parser.DEFAULT_TEXT.replace("proportion", plugin)
    ours, volcanos = (
        policy_parser.parse(text),
        policy_parser.parse(f"{text}compatibility: volcano\n"),
    )

    assert enqueue_verdicts(WITHOUT_PODS, JOB, policy=ours)["a/job"].phase is Phase.INQUEUE
    assert enqueue_verdicts(WITHOUT_PODS, JOB, policy=volcanos)["a/job"].phase is Phase.PENDING


def test_figures_show_what_queues_deserve_use_and_request() -> None:
    plan = make_plan(
        snapshot(nodes(1, cpu=4), [pods("q1", 6), pods("q2", 6)], [queue("q1"), queue("q2", 3)])
    )
    figures = plan.queues["q2"]

    assert figures.deserved.amount("cpu") == 3000
    assert figures.allocated.amount("cpu") == 3000
    assert figures.requested.amount("cpu") == 6000
    assert (figures.share, figures.overused) == (1.0, False)

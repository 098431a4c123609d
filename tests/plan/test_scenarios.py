"""The ancestors' end-to-end stories, as far as a plan can tell them.

Of the sample, `e2e-14` (pod affinity) is left out: affinity between pods is kube-scheduler's.
"""

from __future__ import annotations

from extender.model.gang import GangKey
from extender.plan import policy
from extender.plan.decision import Standing
from extender.plan.planner import make_plan
from tests.builders import carried_out, cluster, gang, nodes, queue


def test_e2e_00_a_job_gets_at_least_its_minimum() -> None:
    plan = make_plan(cluster(nodes(3, cpu=2), [gang("a/job", 6, least=2, cpu=1)]))

    assert len(plan.tickets[GangKey("a/job")].placements) >= 2


def test_e2e_07_partial_preemption_is_rolled_back() -> None:
    slots = 4
    gangs = [gang("a/one", slots, cpu=1), gang("a/two", slots, cpu=1, created=1.0)]
    state = cluster(nodes(2, cpu=2), gangs)
    state = carried_out(state, make_plan(state))
    plan = make_plan(state)

    assert plan.verdicts[GangKey("a/one")].standing is Standing.RUNNING
    assert plan.verdicts[GangKey("a/two")].standing is Standing.WAITING
    assert plan.evictions == ()


def test_e2e_21_nothing_is_reclaimed_while_there_is_enough() -> None:
    queues = [queue(name) for name in ("q1", "q2", "q3")]
    gangs = [gang(f"a/{each.name}", 1, queue=each.name, cpu=1) for each in queues]
    plan = make_plan(cluster(nodes(4, cpu=1), gangs, queues))

    assert len(plan.tickets) == 3
    assert plan.evictions == ()


def test_e2e_28_nobody_is_displaced_where_both_fit() -> None:
    state = cluster(nodes(2, cpu=1), [gang("a/low", 1, cpu=1)])
    state = carried_out(state, make_plan(state))
    both = cluster(nodes(2, cpu=1), [*state.gangs.values(), gang("a/high", 1, priority=9, cpu=1)])
    plan = make_plan(both)

    assert "a/high" in plan.tickets
    assert plan.evictions == ()


def test_e2e_35_without_enqueue_nobody_has_to_be_let_in() -> None:
    text = policy.DEFAULT_TEXT.replace("enqueue, ", "")
    gangs = [gang("a/half", 1, cpu=0.5), gang("a/one", 1, cpu=1)]
    plan = make_plan(cluster(nodes(1, cpu=2), gangs), policy.parse(text))

    assert len(plan.tickets) == 2

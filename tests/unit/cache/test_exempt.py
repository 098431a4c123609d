"""Exempt pods in the plan's eyes: they use what they use, and ask for nothing."""

from __future__ import annotations

from extender.model.queue import Namespace, Queue
from extender.model.reason import Reason
from extender.plan.decision import Standing
from extender.plan.planner import make_plan
from tests.unit.cache.building import GANG, NOW, amounts, cluster, group, lone, node, pod


def test_an_exempt_pod_that_waits_gets_no_ticket_and_is_told_why_it_does_not_wait_for_us() -> None:
    snapshot = cluster(node("n1"), lone("agent", exempt=True)).snapshot(NOW)
    plan = make_plan(snapshot)

    verdict = plan.verdicts["a/pod:agent"]
    assert (verdict.reason, verdict.standing) == (Reason.EXEMPT, Standing.ADMITTED)
    assert not plan.tickets
    assert not plan.evictions


def test_it_asks_for_nothing_and_counts_in_its_queue_once_it_runs() -> None:
    home = Namespace(name="a", queue="home"), Queue(name="home")
    waits = cluster(node("n1"), *home, lone("agent", exempt=True)).snapshot(NOW)
    runs = cluster(node("n1"), *home, lone("agent", exempt=True, on="n1")).snapshot(NOW)

    assert not make_plan(waits).queues["home"].requested
    assert make_plan(runs).queues["home"].allocated == amounts()


def test_what_it_may_not_use_keeps_it_from_nothing_and_counts_at_home() -> None:
    policy = Namespace(name="a", queue="home", allowed=frozenset({"home"})), Queue(name="home")
    agent = lone("agent", queue="forbidden", exempt=True)
    snapshot = cluster(node("n1"), *policy, agent).snapshot(NOW)

    assert (snapshot.gangs["a/pod:agent"].queue, snapshot.gangs["a/pod:agent"].problem) == (
        "home",
        None,
    )


def test_a_gang_with_one_critical_member_still_waits_for_all_of_it() -> None:
    critical = pod("w-1", priority_class="system-cluster-critical")
    snapshot = cluster(node("n1", cpu=1), group(), pod("w-0"), critical).snapshot(NOW)

    assert make_plan(snapshot).verdicts[GANG].reason is not Reason.EXEMPT

"""Exempt pods in a plan: they use capacity and request none."""

from __future__ import annotations

from extender.model.queue import Namespace, Queue
from extender.model.reason import Reason
from extender.planner.plan import GangStatus
from extender.planner.planner import make_plan
from tests.builders import GANG, NOW, ONE_CPU, cache, node, pod_group, seen


def test_a_waiting_exempt_pod_gets_no_reservation_and_the_reason_exempt() -> None:
    snapshot = cache(node("n1"), seen("agent", "", exempt=True)).snapshot(NOW)
    plan = make_plan(snapshot)

    verdict = plan.verdicts["a/pod:agent"]
    assert (verdict.reason, verdict.status) == (Reason.EXEMPT, GangStatus.ADMITTED)
    assert not plan.placements
    assert not plan.evictions


def test_an_exempt_pod_requests_nothing_and_counts_in_its_queue_once_it_runs() -> None:
    home = Namespace(name="a", queue="home"), Queue(name="home")
    waits = cache(node("n1"), *home, seen("agent", "", exempt=True)).snapshot(NOW)
    runs = cache(node("n1"), *home, seen("agent", "", exempt=True, on="n1")).snapshot(NOW)

    assert not make_plan(waits).queues["home"].requested
    assert make_plan(runs).queues["home"].allocated == ONE_CPU.requests


def test_an_exempt_pod_that_names_a_forbidden_queue_counts_in_its_home_queue() -> None:
    policy = Namespace(name="a", queue="home", allowed=frozenset({"home"})), Queue(name="home")
    agent = seen("agent", "", queue="forbidden", exempt=True)
    snapshot = cache(node("n1"), *policy, agent).snapshot(NOW)

    assert (snapshot.gangs["a/pod:agent"].queue, snapshot.gangs["a/pod:agent"].problem) == (
        "home",
        None,
    )


def test_a_gang_with_one_critical_member_still_waits_for_all_members() -> None:
    critical = seen("w-1", priority_class="system-cluster-critical")
    snapshot = cache(node("n1", cpu=1), pod_group(), seen("w-0"), critical).snapshot(NOW)

    assert make_plan(snapshot).verdicts[GANG].reason is not Reason.EXEMPT

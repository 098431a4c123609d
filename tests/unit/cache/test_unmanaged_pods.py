"""What is not planned: groups of other schedulers, and exempt pods, which only use capacity."""

from __future__ import annotations

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.model.queue import Namespace, Queue
from extender.model.reason import Reason
from extender.planner.plan import GangStatus
from extender.planner.planner import make_plan
from tests.builders import GANG, NOW, ONE_CPU, cache, node, pod_group, seen


def of_another_scheduler(name: str) -> SeenPod:
    return seen(name, ours=False)


def gangs(made: Cluster) -> list[str]:
    return list(made.snapshot(NOW).gangs)


def test_a_group_whose_pods_belong_to_other_schedulers_is_not_planned() -> None:
    made = cache(node("n1"), pod_group())
    assert gangs(made) == [GANG]  # it may still get pods of this scheduler

    made.apply(Upsert(of_another_scheduler("w-0")))
    assert gangs(made) == []


def test_a_group_with_one_pod_of_this_scheduler_is_planned() -> None:
    made = cache(node("n1"), pod_group(), of_another_scheduler("w-0"), seen("w-1"))

    assert gangs(made) == [GANG]


def test_a_group_is_planned_again_when_the_pods_of_other_schedulers_are_deleted() -> None:
    other = of_another_scheduler("w-0")
    made = cache(node("n1"), pod_group(), other)
    assert gangs(made) == []

    made.apply(Delete(Kind.POD, other.pod.uid))
    assert gangs(made) == [GANG]


def test_a_pod_of_another_scheduler_that_changes_its_group_requests_a_cycle() -> None:
    made = cache(node("n1"), pod_group(), pod_group("other"), of_another_scheduler("w-0"))
    woken: list[int] = []
    made.on_change(lambda: woken.append(made.generation))
    before = made.generation
    assert gangs(made) == ["a/other"]

    made.apply(Upsert(seen("w-0", "other", ours=False)))
    assert gangs(made) == [GANG]
    assert woken == [made.generation]
    assert made.generation > before


def test_an_unchanged_pod_of_another_scheduler_requests_no_cycle() -> None:
    made = cache(node("n1"), pod_group(), of_another_scheduler("w-0"))
    woken: list[int] = []
    made.on_change(lambda: woken.append(made.generation))

    made.apply(Upsert(of_another_scheduler("w-0")))
    assert woken == []


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

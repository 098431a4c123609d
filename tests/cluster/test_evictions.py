"""Evictions on the real API server: whole gangs and no more pods, refusals, stuck pods, resizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import objects

from . import reported
from .api import Api, Object
from .components import http_json
from .control_plane import ControlPlane
from .extender_process import Extender
from .observer import running_members
from .reported import wait_until_running
from .train_gang import Create, GangScheduler, Nodes, Pool, gang, running_pair, set_budget
from .waiting import wait_for

#: The scheduler name of a test's own pair.
OWN = "own-scheduler"
#: A pod that still terminates so long after its grace period counts as stuck.
STUCK_S = 2
#: Timeout for starts after the last change.
SOON_S = 10


@pytest.fixture
def urgent(namespace: str, create: Create) -> str:
    """A PriorityClass above all others."""
    name = f"urgent-{namespace}"
    create(objects.priority_class(name, 1000))
    return name


def test_queue_reclaims_its_share_from_whole_gangs(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(4, cpu="4")
    ours, theirs = f"b-{namespace}", f"a-{namespace}"
    create(objects.queue(theirs), objects.queue(ours))
    reported.wait_until_queue_is_known(gang_scheduler.extender, ours)
    for number in range(8):
        gang(api, f"small{number}", namespace, 2, pool, queue=theirs)
    for number in range(8):
        wait_until_running(api, f"small{number}", namespace, 2)

    with plane.binds(namespace) as binds:
        gang(api, "large", namespace, 8, pool, queue=ours)
        binds.wait_for(8, 10, prefix="large")

    left = running_members(api, namespace, "small")
    assert sum(left.values()) == 8  # half of the cluster: exactly enough was evicted
    assert set(left.values()) == {2}
    wait_until_running(api, "large", namespace, 8)
    gone = [f"small{number}" for number in range(8) if f"small{number}" not in left]
    for name in gone:
        events = [each for each in reported.events(api, namespace, name) if each.reason == "Evict"]
        assert [each.message for each in events] == [
            f"2 of 2 running members evicted: queue {ours} reclaims its deserved share from queue"
            f" {theirs} for {namespace}/large"
        ]
    written = plane.writes_about(namespace, ours, theirs)
    evicting = 2 * written["pods/eviction"]  # each has an event before
    assert sum(written.values()) - evicting <= 3 * 24, written


def test_gang_of_higher_priority_preempts_surplus_members_and_whole_gangs(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
    urgent: str,
) -> None:
    pool = nodes(4, cpu="4")
    queue = f"q-{namespace}"
    create(objects.queue(queue))
    gang(api, "elastic", namespace, 8, pool, queue=queue, min_member=2)
    wait_until_running(api, "elastic", namespace, 8)
    for name in ("solid-a", "solid-b"):
        gang(api, name, namespace, 4, pool, queue=queue)
        wait_until_running(api, name, namespace, 4)

    with plane.binds(namespace) as binds:
        demand(api, "vip", namespace, 10, pool, urgent, queue=queue)
        binds.wait_for(10, 10, prefix="vip")
    wait_until_running(api, "vip", namespace, 10)

    left = running_members(api, namespace)
    assert left["vip"] + left["elastic"] + left["solid-a"] + left["solid-b"] == 16
    assert left["elastic"] == 0 or left["elastic"] >= 2
    assert {left["solid-a"], left["solid-b"]} <= {0, 4}


def test_disruption_budget_is_respected_and_named_until_it_allows_evictions(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
    urgent: str,
) -> None:
    pool = nodes(1, cpu="4")
    queue = f"q-{namespace}"
    create(objects.queue(queue))
    gang(api, "guarded", namespace, 4, pool, queue=queue, labels={"app": "db"})
    wait_until_running(api, "guarded", namespace, 4)
    api.create(objects.budget("keep", namespace, {"app": "db"}, minimum=4))
    set_budget(api, "keep", namespace, allowed=0)
    demand(api, "vip", namespace, 2, pool, urgent, queue=queue)
    extender = gang_scheduler.extender

    answer = reported.wait_until_reported(api, extender, namespace, "vip", "InsufficientCapacity")

    assert f"PodDisruptionBudget {namespace}/keep" in answer["message"]
    assert running_members(api, namespace) == {"guarded": 4}
    with plane.binds(namespace) as binds:
        set_budget(api, "keep", namespace, allowed=4)
        binds.wait_for(2, 10, prefix="vip")


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        # The disruption controller has not seen its latest version: 429.
        pytest.param({"stale": -1}, "violate the pod's disruption budget", id="429"),
        # The Eviction API does not support two for one pod, whatever they allow: 500.
        pytest.param({"one": 0, "two": 0}, "more than one PodDisruptionBudget", id="500"),
    ],
)
def test_refused_eviction_is_in_the_history_and_the_pods_keep_running(
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
    urgent: str,
    budgets: dict[str, int],
    message: str,
) -> None:
    pool = nodes(1, cpu="4")
    queue = f"q-{namespace}"
    create(objects.queue(queue))
    gang(api, "guarded", namespace, 4, pool, queue=queue, labels={"app": "db"})
    wait_until_running(api, "guarded", namespace, 4)
    for name, lag in budgets.items():
        api.create(objects.budget(name, namespace, {"app": "db"}, minimum=0))
        set_budget(api, name, namespace, allowed=4, lag=lag)
    demand(api, "vip", namespace, 2, pool, urgent, queue=queue)
    extender = gang_scheduler.extender

    def refusals() -> list[str]:
        return failed_evictions(extender, namespace, "vip")

    wait_for(lambda: any(message in text for text in refusals()), 15, message, seeing=refusals)

    # Each got a DisruptionTarget condition before, which is set to False again.
    wait_for(lambda: disruption_targets(api, namespace) == ["False"] * 4, 10, "no target is left")
    assert running_members(api, namespace) == {"guarded": 4}


def disruption_targets(api: Api, namespace: str) -> list[str]:
    return [
        condition["status"]
        for pod in api.list("pods", namespace)
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "DisruptionTarget"
    ]


@pytest.mark.parametrize(
    ("count", "min_member"), [(3, 3), (4, 3)], ids=["below minMember", "below deserved share"]
)
def test_kube_scheduler_may_not_preempt_a_needed_member(
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
    urgent: str,
    count: int,
    min_member: int,
) -> None:
    pool, queue = nodes(1, cpu=str(count)), f"q-{namespace}"
    create(objects.queue(queue, reclaimable=False))
    run(api, "train", namespace, count, pool, queue=queue, min_member=min_member)
    vetoes = answers(gang_scheduler.extender, "vetoed")
    api.create(objects.pod("alone", namespace, priority=urgent, node_selector=pool.selector))

    wait_for(
        lambda: answers(gang_scheduler.extender, "vetoed") > vetoes,
        10,
        "the preemption of kube-scheduler is vetoed",
    )
    assert running_members(api, namespace) == {"train": count}


def test_of_several_preemptors_one_gets_the_surplus_member(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, urgent: str
) -> None:
    """kube-scheduler asks for the next pod before a watch shows that the first victim is gone."""
    with surplus(plane, api, namespace, nodes, urgent) as (pair, create_preemptors):
        with plane.binds(namespace) as binds:
            create_preemptors(3)
            wait_for(lambda: answers(pair.extender, "vetoed") >= 2, 15, "two of them are vetoed")
            binds.wait_for(1, 15, prefix="alone")
        assert answers(pair.extender, "passed")
    assert running_members(api, namespace)["elastic"] == 3


def test_pod_with_a_reservation_starts_while_others_wait_for_victims_on_its_node(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, urgent: str
) -> None:
    """In a dry run the others wait for ever; the reserved capacity was never theirs."""
    with surplus(plane, api, namespace, nodes, urgent) as (pair, create_preemptors):
        # Stopped, not frozen: a resumed kube-scheduler may choose a victim that is already gone,
        # and then wait for its deletion for ever.
        pair.scheduler.terminate()
        create_preemptors(3)
        planned = {"action": "preempt", "outcome": "dry-run"}
        wait_for(
            lambda: pair.extender.metric("gang_extender_evictions_total", **planned) >= 4,
            15,
            "all of the gang would be evicted",
        )
        api.delete("pods", "elastic-1", namespace)
        wait_for(lambda: len(api.list("pods", namespace)) == 6, 15, "one of it is gone")
        with plane.binds(namespace) as binds:
            pair.scheduler.start()
            binds.wait_for(1, 15, prefix="alone")
    assert running_members(api, namespace)["elastic"] == 3


@contextmanager
def surplus(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, urgent: str
) -> Iterator[tuple[GangScheduler, Callable[[int], None]]]:
    """A gang with one surplus member, where only kube-scheduler evicts pods."""
    pool = nodes(1, cpu="4")

    def create_preemptors(number: int) -> None:
        rest = {"priority": urgent, "node_selector": pool.selector, "scheduler": OWN}
        api.create(*objects.pods(number, "alone", namespace, **rest))

    with running_pair(plane, "--dry-run", scheduler_name=OWN) as pair:
        run(api, "elastic", namespace, 4, pool, min_member=3, scheduler=OWN)
        yield pair, create_preemptors


def answers(extender: Extender, outcome: str) -> float:
    """Return how often the preempt hook has answered with *outcome*."""
    return extender.metric("gang_extender_hook_answers_total", verb="preempt", outcome=outcome)


def run(api: Api, name: str, namespace: str, count: int, pool: Pool, **rest: Any) -> None:
    """Create a gang and wait until it runs."""
    gang(api, name, namespace, count, pool, **rest)
    wait_until_running(api, name, namespace, count)


def demand(
    api: Api,
    name: str,
    namespace: str,
    count: int,
    pool: Pool,
    priority: str,
    scheduler: str = "gang-scheduler",
    queue: str | None = None,
) -> None:
    """Create a gang that needs victims."""
    api.create(objects.pod_group(name, namespace, count, queue=queue, priorityClassName=priority))
    rest = {"priority": priority, "node_selector": pool.selector, "scheduler": scheduler}
    api.create(*objects.pods(count, name, namespace, gang=name, **rest))


def wait_until_seen(pair: GangScheduler, kind: str, name: str, **facts: Any) -> None:
    """Wait until a plan was made with an object that has *facts* in its status."""

    def seen() -> bool:
        listed = http_json("GET", f"{pair.extender.ops_url}/api/v1/snapshot")
        assert listed is not None
        return any(
            each["kind"] == kind
            and each["metadata"]["name"] == name
            and facts.items() <= each["status"].items()
            for each in listed["items"]
        )

    wait_for(seen, 15, f"the extender knows {kind} {name} with {facts}")


def failed_evictions(extender: Extender, namespace: str, name: str) -> list[str]:
    """Return the messages in the history of a gang about victims that were not evicted."""
    history = reported.explanation(extender, namespace, name)["history"]
    return [line["message"] for line in history if line["reason"] == "VictimNotEvicted"]


def test_no_other_pod_is_evicted_if_the_api_server_refuses_a_victim(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    urgent: str,
) -> None:
    pool = nodes(2, cpu="4")
    run(api, "free", namespace, 4, pool)
    run(api, "guarded", namespace, 4, pool, labels={"app": "db"})
    api.create(objects.budget("stale", namespace, {"app": "db"}, minimum=0))
    # The disruption controller has not seen its latest version: the Eviction API answers 429.
    set_budget(api, "stale", namespace, allowed=4, lag=-1)
    wait_until_seen(gang_scheduler, "PodDisruptionBudget", "stale", disruptionsAllowed=4)

    with plane.binds(namespace) as binds:
        demand(api, "vip", namespace, 8, pool, urgent)
        wait_for(
            lambda: failed_evictions(gang_scheduler.extender, namespace, "vip"),
            15,
            "the API server has refused",
        )
        assert running_members(api, namespace) == {"free": 4, "guarded": 4}

        # Refused victims are not asked again, and another gang fits without them.
        demand(api, "second", namespace, 4, pool, urgent)
        binds.wait_for(4, SOON_S, prefix="second")
    # A bound pod does not run yet.
    wait_for(
        lambda: running_members(api, namespace) == {"guarded": 4, "second": 4},
        10,
        "the others stay, and the second gang runs",
        seeing=lambda: running_members(api, namespace),
    )


def test_extender_restarted_while_victims_terminate_evicts_no_other_pods(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, urgent: str
) -> None:
    pool = nodes(4, cpu="4")
    with running_pair(plane, scheduler_name=OWN) as pair, plane.binds(namespace) as binds:
        for number in range(8):
            run(api, f"small{number}", namespace, 2, pool, stop_seconds=6, scheduler=OWN)
        demand(api, "vip", namespace, 8, pool, urgent, OWN)
        wait_for(
            lambda: sum(running_members(api, namespace, "small").values()) < 16,
            10,
            "a pod terminates",
        )
        pair.extender.kill()
        pair.extender.start()
        binds.wait_for(8, 6 + 2 * SOON_S, prefix="vip")

        left = running_members(api, namespace, "small")
        assert set(left.values()) == {2}
        assert sum(left.values()) == 8


def test_stuck_terminating_pod_does_not_block_free_capacity(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(3, cpu="4")
    rest: dict[str, Any] = {"cpu": "4", "scheduler": OWN}
    hangs = {"stop_seconds": 3600, "terminationGracePeriodSeconds": 1}
    with (
        running_pair(plane, f"--stuck-s={STUCK_S}", scheduler_name=OWN) as pair,
        plane.binds(namespace) as binds,
    ):
        run(api, "hanging", namespace, 1, pool, **rest, **hangs)
        api.delete("pods", "hanging-0", namespace)
        gang(api, "large", namespace, 3, pool, **rest)
        reported.wait_until_waiting(pair.extender, namespace, "large", "WaitingForVictims")
        gang(api, "small", namespace, 1, pool, **rest)
        binds.wait_for(1, 1 + STUCK_S + SOON_S, prefix="small")
        assert (
            reported.explanation(pair.extender, namespace, "large")["reason"]
            == "InsufficientCapacity"
        )

        # When it is gone in the end, its capacity is used.
        api.delete("pods", "hanging-0", namespace, grace_seconds=0)
        api.delete("pods", "small-0", namespace, grace_seconds=0)
        binds.wait_for(3, SOON_S, prefix="large")


def test_resize_counts_as_in_kube_scheduler(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1, cpu="4")
    run(api, "grower", namespace, 1, pool)
    ask_for_more(api, namespace, "3")
    report(api, namespace, pending("Deferred"))

    with plane.binds(namespace) as binds:
        # A deferred resize counts as a request, …
        gang(api, "three", namespace, 3, pool)
        reported.wait_until_waiting(
            gang_scheduler.extender, namespace, "three", "InsufficientCapacity"
        )
        # … and an infeasible one does not.
        report(api, namespace, pending("Infeasible"))
        binds.wait_for(3, SOON_S, prefix="three")


def ask_for_more(api: Api, namespace: str, cpu: str) -> None:
    """Resize a running pod; the API server requires the kubelet's status of the containers."""
    report(api, namespace)
    asked = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    spec = {"containers": [{"name": "main", "resources": asked}]}
    merge(api, namespace, "resize", {"spec": spec})


def report(api: Api, namespace: str, *conditions: Object) -> None:
    """Write the kubelet's status of a resize that is not done."""
    has = {"cpu": "1", "memory": "64Mi"}
    main = {"name": "main", "allocatedResources": has, "resources": {"requests": has}}
    status = {"conditions": list(conditions), "containerStatuses": [main]}
    merge(api, namespace, "status", {"status": status})


def pending(reason: str) -> Object:
    return {"type": "PodResizePending", "status": "True", "reason": reason}


def merge(api: Api, namespace: str, part: str, change: Object) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/grower-0/{part}"
    api.request("PATCH", path, change, media_type="application/strategic-merge-patch+json")

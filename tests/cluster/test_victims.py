"""Victims on the real API server: refusals, sets, stuck pods, roles and resizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from extender.planner import policy_parser
from tests import objects

from . import reported
from .api import Api, Object
from .components import http_json
from .control_plane import ControlPlane
from .observer import running_members
from .reported import wait_until_running
from .train_gang import GangScheduler, Pool, gang, running_pair, set_budget
from .waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

#: The scheduler names of the pair that most tests share, and of a test's own pair.
SCHEDULER = "victims-scheduler"
OWN = "own-victims-scheduler"
#: A pod that still terminates so long after its grace period counts as stuck.
STUCK_S = 2
#: Timeout for starts after the last change.
SOON_S = 10
ROLE = "volcano.sh/task-spec"


@pytest.fixture(scope="module")
def pair(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangScheduler]:
    """A pair without the pdb plugin, which Volcano's installer does not enable either."""
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(policy_parser.DEFAULT_TEXT.replace("  - name: pdb\n", ""))
    options = (f"--config={policy}", f"--stuck-s={STUCK_S}")
    with running_pair(plane, *options, scheduler_name=SCHEDULER) as made:
        yield made


@pytest.fixture
def urgent(namespace: str, create: Create) -> str:
    """A PriorityClass above all others."""
    name = f"urgent-{namespace}"
    create(objects.priority_class(name, 1000))
    return name


def run(api: Api, name: str, namespace: str, count: int, pool: Pool, **rest: Any) -> None:
    """Create a gang and wait until it runs."""
    gang(api, name, namespace, count, pool, **{"scheduler": SCHEDULER, **rest})
    wait_until_running(api, name, namespace, count)


def demand(
    api: Api,
    name: str,
    namespace: str,
    count: int,
    pool: Pool,
    priority: str,
    scheduler: str = SCHEDULER,
) -> None:
    """Create a gang that needs victims."""
    api.create(objects.pod_group(name, namespace, count, priorityClassName=priority))
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


def failed_evictions(pair: GangScheduler, namespace: str, name: str) -> list[str]:
    """Return the messages in the history of a gang about victims that were not evicted."""
    history = reported.explanation(pair.extender, namespace, name)["history"]
    return [line["message"] for line in history if line["reason"] == "VictimNotEvicted"]


# Refusals


@pytest.mark.parametrize("guarded", ["one", "two"])
def test_another_victim_is_evicted_if_a_budget_protects_the_first(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    urgent: str,
    guarded: str,
) -> None:
    pool = nodes(2, cpu="4")
    for name in ("one", "two"):
        run(api, name, namespace, 4, pool, labels={"app": name})
    api.create(objects.budget("keep", namespace, {"app": guarded}, minimum=4))
    set_budget(api, "keep", namespace, allowed=0)
    wait_until_seen(pair, "PodDisruptionBudget", "keep", disruptionsAllowed=0)

    with plane.binds(namespace) as binds:
        demand(api, "vip", namespace, 4, pool, urgent)
        binds.wait_for(4, SOON_S, prefix="vip")

    assert running_members(api, namespace)[guarded] == 4


def test_budget_that_allows_evictions_again_is_used_at_once(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    urgent: str,
) -> None:
    pool = nodes(1, cpu="4")
    run(api, "guarded", namespace, 4, pool, labels={"app": "db"})
    api.create(objects.budget("keep", namespace, {"app": "db"}, minimum=4))
    set_budget(api, "keep", namespace, allowed=0)
    wait_until_seen(pair, "PodDisruptionBudget", "keep", disruptionsAllowed=0)
    demand(api, "vip", namespace, 4, pool, urgent)
    reported.wait_until_waiting(pair.extender, namespace, "vip", "InsufficientCapacity")
    message = reported.explanation(pair.extender, namespace, "vip")["message"]
    assert f"PodDisruptionBudget {namespace}/keep allows 0 disruptions" in message

    with plane.binds(namespace) as binds:
        set_budget(api, "keep", namespace, allowed=4)
        binds.wait_for(4, SOON_S, prefix="vip")


def test_no_other_pod_is_evicted_if_the_api_server_refuses_a_victim(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
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
    wait_until_seen(pair, "PodDisruptionBudget", "stale", disruptionsAllowed=4)

    with plane.binds(namespace) as binds:
        demand(api, "vip", namespace, 8, pool, urgent)
        wait_for(lambda: failed_evictions(pair, namespace, "vip"), 15, "the API server has refused")
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


# Sets


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


# Stuck pods


def test_stuck_terminating_pod_does_not_block_free_capacity(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(3, cpu="4")
    rest: dict[str, Any] = {"cpu": "4", "scheduler": SCHEDULER}
    hangs = {"stop_seconds": 3600, "terminationGracePeriodSeconds": 1}
    run(api, "hanging", namespace, 1, pool, cpu="4", **hangs)
    with plane.binds(namespace) as binds:
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


# Roles


def test_kube_scheduler_may_not_preempt_the_only_member_of_a_needed_role(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, urgent: str
) -> None:
    pool = nodes(2, cpu="3")
    chosen, other = ({"kubernetes.io/hostname": name} for name in pool.names)
    train: dict[str, Any] = {"gang": "train", "scheduler": OWN}
    # Only kube-scheduler evicts here.
    with running_pair(plane, "--dry-run", scheduler_name=OWN) as pair:
        api.create(
            objects.pod_group("train", namespace, 2, minTaskMember={"ps": 1, "worker": 1}),
            objects.pod(
                "train-ps",
                namespace,
                cpu="3",
                annotations={ROLE: "ps"},
                node_selector=chosen,
                **train,
            ),
            *objects.pods(
                3, "train-w", namespace, annotations={ROLE: "worker"}, node_selector=other, **train
            ),
        )
        wait_until_running(api, "train", namespace, 4)
        rest: dict[str, Any] = {"priority": urgent, "scheduler": OWN}
        api.create(objects.pod("alone", namespace, cpu="3", node_selector=chosen, **rest))
        answers = "gang_extender_hook_answers_total"
        wait_for(
            lambda: pair.extender.metric(answers, verb="preempt", outcome="vetoed"),
            10,
            "the preemption of kube-scheduler is vetoed",
        )
        assert running_members(api, namespace) == {"train": 1, "train-w": 3}

        # One of three workers is enough for the gang.
        with plane.binds(namespace) as binds:
            api.create(objects.pod("beside", namespace, cpu="2", node_selector=other, **rest))
            binds.wait_for(1, 2 * SOON_S, prefix="beside")
        assert running_members(api, namespace)["train-w"] == 1


# Resizes


def test_resize_counts_as_in_kube_scheduler(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1, cpu="4")
    run(api, "grower", namespace, 1, pool)
    ask_for_more(api, namespace, "3")
    report(api, namespace, pending("Deferred"))

    with plane.binds(namespace) as binds:
        # A deferred resize counts as a request, …
        gang(api, "three", namespace, 3, pool, scheduler=SCHEDULER)
        reported.wait_until_waiting(pair.extender, namespace, "three", "InsufficientCapacity")
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

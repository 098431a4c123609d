"""Features of kube-batch and Volcano: budgets as gangs, node selectors, quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import objects
from tests.cluster import reported
from tests.cluster.api import Api, Object
from tests.cluster.components import ControllerManager, http_json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.reported import status, wait_until_running
from tests.cluster.train_gang import GangScheduler, Pool, gang, running_pair
from tests.cluster.waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

SCHEDULER = "kube-batch-scheduler"
#: Timeout for starts after the last change.
SOON_S = 10
WEB = "poddisruptionbudget:web"

BY_NAMESPACE = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: drf
    enableNamespaceOrder: true
  - name: proportion
  - name: predicates
"""


def budget(namespace: str, **spec: Any) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }


def wait_until_budget_is_known(pair: GangScheduler, namespace: str) -> None:
    """Wait until a plan has the budget: pods do not show that a budget selects them."""

    def seen() -> bool:
        listed = http_json("GET", f"{pair.extender.ops_url}/api/v1/snapshot") or {"items": []}
        return any(
            each["kind"] == "PodDisruptionBudget" and each["metadata"]["namespace"] == namespace
            for each in listed["items"]
        )

    wait_for(seen, 15, f"the extender knows the budget of {namespace}")


def quota(namespace: str, **hard: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "compute", "namespace": namespace},
        "spec": {"hard": hard},
    }


def empty_group(name: str, namespace: str, size: int) -> Object:
    """Return a PodGroup whose pods are created when it is Inqueue."""
    minimum = {"cpu": str(size), "limits.cpu": str(size)}
    return objects.pod_group(name, namespace, size, minResources=minimum)


def wait_until_message(pair: GangScheduler, namespace: str, name: str, words: str) -> None:
    """Wait until the extender's message about a gang contains *words*."""
    where = f"{pair.extender.ops_url}/api/v1/gangs/{namespace}/{name}"

    def message() -> str:
        return str((http_json("GET", where) or {}).get("message"))

    wait_for(lambda: words in message(), 20, f"{name} has the message: {words}", seeing=message)


def wait_until_enqueued(api: Api, name: str, namespace: str) -> None:
    wait_for(
        lambda: status(api, name, namespace).get("phase") == "Inqueue",
        20,
        f"{name} is Inqueue",
        seeing=lambda: status(api, name, namespace),
    )


# ── budgets as gangs ─────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def budgeted(plane: ControlPlane) -> Iterator[GangScheduler]:
    with running_pair(plane, "--budgets-are-gangs", scheduler_name=SCHEDULER) as made:
        yield made


def webs(count: int, namespace: str, pool: Pool, first: int = 0, **rest: Any) -> list[Object]:
    about = {"labels": {"app": "web"}, "scheduler": SCHEDULER, "node_selector": pool.selector}
    names = [f"web-{first + index}" for index in range(count)]
    return [objects.pod(name, namespace, **about, **rest) for name in names]


def test_pods_of_a_budget_start_together(
    plane: ControlPlane,
    api: Api,
    budgeted: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1, cpu="4")
    create(budget(namespace, minAvailable=3))
    wait_until_budget_is_known(budgeted, namespace)
    with plane.binds(namespace) as binds:
        api.create(*webs(2, namespace, pool))
        reported.wait_until_waiting(budgeted.extender, namespace, WEB, "NotEnoughMembers")
        wait_until_message(budgeted, namespace, WEB, "minAvailable of PodDisruptionBudget web")
        assert binds.of("web") == []

        api.create(*webs(1, namespace, pool, first=2))
        binds.wait_for(3, SOON_S, prefix="web")


def test_pods_start_after_their_budget_is_deleted(
    plane: ControlPlane,
    api: Api,
    budgeted: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1, cpu="4")
    create(budget(namespace, minAvailable=3))
    wait_until_budget_is_known(budgeted, namespace)
    with plane.binds(namespace) as binds:
        api.create(*webs(2, namespace, pool))
        reported.wait_until_waiting(budgeted.extender, namespace, WEB, "NotEnoughMembers")

        api.delete("poddisruptionbudgets.policy/v1", "web", namespace)
        binds.wait_for(2, SOON_S, prefix="web")


def test_changes_of_the_budget_do_not_change_usage(
    plane: ControlPlane,
    api: Api,
    budgeted: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1, cpu="4")
    small, other = f"small-{namespace}", f"other-{namespace}"
    create(objects.queue(small, capability={"cpu": "2"}), objects.queue(other))
    reported.wait_until_queue_is_known(budgeted.extender, other)
    create(budget(namespace, minAvailable=2))
    wait_until_budget_is_known(budgeted, namespace)
    with plane.binds(namespace) as binds:
        api.create(*webs(2, namespace, pool, queue=small))
        binds.wait_for(2, 20, prefix="web")
        reported.wait_until_used(budgeted.extender, small, "2")
        budgets = "poddisruptionbudgets.policy/v1"
        api.patch(budgets, "web", {"spec": {"minAvailable": 9}}, namespace)
        reported.wait_until_waiting(budgeted.extender, namespace, WEB, "NotEnoughMembers")
        reported.wait_until_used(budgeted.extender, small, "2")
        api.patch(budgets, "web", {"spec": {"minAvailable": "50%"}}, namespace)
        wait_until_message(budgeted, namespace, "pod:web-0", "its minAvailable is 50%")
        reported.wait_until_used(budgeted.extender, small, "2")
        api.delete(budgets, "web", namespace)
        api.create(*webs(1, namespace, pool, first=2, queue=small))
        reported.wait_until_waiting(budgeted.extender, namespace, "pod:web-2", "QueueAtCapability")
        reported.wait_until_used(budgeted.extender, small, "2")

    assert binds.of("web-2") == []


# ── node selector ────────────────────────────────────────────────────────────────────────


def test_gang_uses_selected_nodes_only_and_new_ones_at_once(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, create: Create
) -> None:
    ours = nodes(1, cpu="2", labels={"team": namespace})
    other = nodes(1, cpu="4")
    (late,) = other.names
    queue = f"team-{namespace}"
    create(objects.queue(queue))
    selector = f"--node-selector=team:{namespace}"
    about = {"scheduler": SCHEDULER + "-2", "queue": queue}
    with (
        running_pair(plane, selector, scheduler_name=SCHEDULER + "-2") as pair,
        plane.binds(namespace) as binds,
    ):
        gang(api, "small", namespace, 2, ours, **about)
        binds.wait_for(2, SOON_S, prefix="small")
        assert {each.node for each in binds.of("small")} == set(ours.names)
        gang(api, "large", namespace, 4, ours, **about)
        reported.wait_until_waiting(pair.extender, namespace, "large", "NodeNotManaged")
        wait_until_message(pair, namespace, "large", "1 node outside --node-selector")

        api.patch("nodes", late, {"metadata": {"labels": {"team": namespace}}})
        binds.wait_for(4, SOON_S, prefix="large")
        reported.wait_until_used(pair.extender, queue, "6")

        api.patch("nodes", late, {"metadata": {"labels": {"team": None}}})
        api.delete("pods", "large-0", namespace, grace_seconds=0)
        gang(api, "next", namespace, 1, ours, **about)
        wait_until_message(pair, namespace, "next", "1 node outside --node-selector")
        # Three of `large` run on a node that is not selected any more, and still count.
        reported.wait_until_used(pair.extender, queue, "5")

    assert binds.of("next") == []


# ── quotas ────────────────────────────────────────────────────────────────────────────────


def test_gang_above_its_quota_is_enqueued_when_the_quota_allows_it(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    controllers: ControllerManager,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1, cpu="8")
    create(quota(namespace, **{"requests.cpu": "4", "volcano.sh/namespace.weight": "3"}))
    wait_for(
        lambda: api.get("resourcequotas", "compute", namespace).get("status", {}).get("used"),
        20,
        "the quota counts",
    )
    with plane.binds(namespace) as binds:
        api.create(empty_group("one", namespace, 3))
        wait_until_enqueued(api, "one", namespace)
        api.create(empty_group("two", namespace, 3))
        reported.wait_until_waiting(gang_scheduler.extender, namespace, "two", "NotEnqueued")
        wait_until_message(
            gang_scheduler, namespace, "two", f"ResourceQuota {namespace}/compute allows 4"
        )
        about = {"node_selector": pool.selector}
        api.create(*objects.pods(3, "one", namespace, gang="one", **about))
        binds.wait_for(3, SOON_S, prefix="one")
        wait_until_running(api, "one", namespace, 3)
        wait_until_message(gang_scheduler, namespace, "two", "of which 3 in use")
        assert status(api, "two", namespace).get("phase") == "Pending"

        # With its PodGroup it would be enqueued again, before the other.
        api.delete(objects.POD_GROUPS, "one", namespace)
        api.delete_all("pods", namespace, grace_seconds=0)
        wait_until_enqueued(api, "two", namespace)
        api.create(*objects.pods(3, "two", namespace, gang="two", **about))
        binds.wait_for(3, SOON_S, prefix="two")


def test_namespaces_share_by_the_weights_of_their_quotas(
    plane: ControlPlane,
    api: Api,
    controllers: ControllerManager,
    namespace: str,
    nodes: Nodes,
    create: Create,
    tmp_path: Path,
) -> None:
    pool = nodes(1, cpu="8")
    heavy = f"{namespace}-b"
    create(objects.namespace(heavy))
    create(quota(heavy, **{"volcano.sh/namespace.weight": "3"}))
    policy = tmp_path / "policy.yaml"
    policy.write_text(BY_NAMESPACE)
    about = {"scheduler": SCHEDULER + "-3", "node_selector": pool.selector}
    with running_pair(
        plane,
        f"--config={policy}",
        f"--node-selector=gang-extender.test/pool:{pool.selector['gang-extender.test/pool']}",
        scheduler_name=SCHEDULER + "-3",
    ) as pair:
        with plane.binds(namespace) as binds:
            api.create(objects.pod("before", namespace, cpu="8", **about))
            binds.wait_for(1, 20, prefix="before")
        for place in (namespace, heavy):
            api.create(*objects.pods(8, "single", place, **about))
        for place in (namespace, heavy):
            for index in range(8):
                wait_until_message(pair, place, f"pod:single-{index}", "needs 1 x 1 cpu")

        with plane.binds() as binds:
            api.delete("pods", "before", namespace, grace_seconds=0)
            binds.wait_for(8, 2 * SOON_S, prefix="single")

    started = [
        sum(bool(objects.node_of(pod)) for pod in api.list("pods", place))
        for place in (namespace, heavy)
    ]
    api.delete_all("pods", heavy, grace_seconds=0)
    assert started == [2, 6]

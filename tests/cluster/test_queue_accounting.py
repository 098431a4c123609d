"""Running pods count in their queue, whatever a tenant changes or deletes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import objects

from . import reported
from .api import Api
from .control_plane import ControlPlane
from .observer import running_members
from .reported import wait_until_running
from .train_gang import Create, GangScheduler, Nodes, gang, running_pair
from .waiting import wait_for

SCHEDULER = "strict-scheduler"


@pytest.fixture
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    """A pair of its own, because its extender is restarted."""
    with running_pair(plane, scheduler_name=SCHEDULER) as made:
        yield made


def test_gang_counts_in_its_queue_after_its_pod_group_is_deleted_and_after_a_restart(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(2, cpu="4")
    small, other = f"small-{namespace}", f"other-{namespace}"
    create(objects.queue(small, capability={"cpu": "2"}), objects.queue(other))
    reported.wait_until_queue_is_known(pair.extender, other)
    ours = {"scheduler": SCHEDULER, "queue": small}
    gang(api, "first", namespace, 2, pool, **ours)
    wait_until_running(api, "first", namespace, 2)
    gang(api, "second", namespace, 2, pool, **ours)
    reported.wait_until_waiting(pair.extender, namespace, "second", "QueueAtCapability")

    with plane.binds(namespace) as binds:
        api.patch(objects.POD_GROUPS, "first", {"spec": {"queue": other}}, namespace)
        api.delete(objects.POD_GROUPS, "first", namespace)
        wait_for(
            lambda: reported.explanation(pair.extender, namespace, "first")["verdict"] == "invalid",
            10,
            "the PodGroup is missing",
        )

        assert reported.used_cpus(pair.extender, small) == "2"
        assert reported.used_cpus(pair.extender, other) in (None, "0")
        pair.extender.restart()
        reported.wait_until_used(pair.extender, small, "2")
        reported.wait_until_waiting(pair.extender, namespace, "second", "QueueAtCapability")
        assert not binds.of("second")

        for index in range(2):
            api.delete("pods", f"first-{index}", namespace)
        binds.wait_for(2, 15, prefix="second")
    annotations = api.get("pods", "second-0", namespace)["metadata"]["annotations"]
    assert annotations[objects.STARTED_IN] == small


def test_terminating_pods_count_in_their_queue_until_they_are_gone(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    """Deleting pods with a grace period of an hour does not free their queue meanwhile."""
    pool = nodes(2, cpu="4")
    small = f"small-{namespace}"
    create(objects.queue(small, capability={"cpu": "2"}))
    reported.wait_until_queue_is_known(pair.extender, small)
    ours = {"scheduler": SCHEDULER, "queue": small}
    slow = {"stop_seconds": 3600, "terminationGracePeriodSeconds": 3600}
    gang(api, "first", namespace, 2, pool, **ours, **slow)
    wait_until_running(api, "first", namespace, 2)

    for index in range(2):
        api.delete("pods", f"first-{index}", namespace)
    with plane.binds(namespace) as binds:
        gang(api, "second", namespace, 2, pool, **ours)
        create(objects.pod("alone", namespace, node_selector=pool.selector, **ours))
        reported.wait_until_waiting(pair.extender, namespace, "second", "QueueAtCapability")
        assert (
            "terminating pods use"
            in reported.explanation(pair.extender, namespace, "second")["message"]
        )
        assert not binds.of("second")
        assert not binds.of("alone")

        api.delete("pods", "alone", namespace)
        for index in range(2):
            api.delete("pods", f"first-{index}", namespace, grace_seconds=0)
        binds.wait_for(2, 15, prefix="second")


def test_priority_class_of_a_pod_group_alone_preempts_no_pod(
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
    tenant: Callable[..., str],
) -> None:
    pool, urgent, tenant_namespace = nodes(4, cpu="8"), f"urgent-{namespace}", tenant("other")
    create(objects.priority_class(urgent, 1000))
    ours = {"scheduler": SCHEDULER, "node_selector": pool.selector}
    gang(api, "whole", namespace, 32, pool, scheduler=SCHEDULER)
    wait_until_running(api, "whole", namespace, 32)

    api.create(objects.pod_group("claimed", tenant_namespace, 32, priorityClassName=urgent))
    api.create(*objects.pods(32, "claimed", tenant_namespace, gang="claimed", **ours))
    answer = reported.wait_until_reported(
        api, pair.extender, tenant_namespace, "claimed", "InsufficientCapacity"
    )

    assert answer["priority"] == 0
    assert f"priority class {urgent} counts as 0, which is what the pods have" in answer["message"]
    assert running_members(api, namespace) == {"whole": 32}

    api.create(objects.pod_group("real", tenant_namespace, 32, priorityClassName=urgent))
    api.create(*objects.pods(32, "real", tenant_namespace, gang="real", priority=urgent, **ours))
    wait_for(
        lambda: running_members(api, tenant_namespace)["real"] == 32,
        30,
        "the gang whose pods have the class runs",
        seeing=lambda: reported.explanation(pair.extender, tenant_namespace, "real"),
    )

"""What people are told, on the real API server: the same words everywhere, and few of them."""

from __future__ import annotations

from collections.abc import Callable

from tests import objects

from . import telling
from .api import Api, Object
from .components import http_json
from .control_plane import ControlPlane
from .stage import GangScheduler, Pool, gang, running_pair
from .telling import wait_until_running
from .waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

#: Of a pair that a test starts anew.
OWN = "status-scheduler"


def test_a_waiting_gang_says_the_same_in_condition_event_api_and_command_line(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2, cpu="2")
    gang(api, "first", namespace, 3, pool)
    wait_until_running(api, "first", namespace, 3)
    gang(api, "second", namespace, 3, pool)
    extender = gang_scheduler.extender

    told = telling.wait_until_said(api, extender, namespace, "second", "InsufficientCapacity")

    said = telling.Said("InsufficientCapacity", told["message"])
    assert telling.in_condition(api, namespace, "second") == said
    assert telling.in_events(api, namespace, "second") == [said]
    by_command = telling.on_the_command_line(extender, namespace, "second")
    assert telling.Said(by_command["reason"], by_command["message"]) == said
    free = telling.free_slots(api, pool.names)
    assert free == 1
    assert told["message"].startswith("needs 3 x 1 cpu")
    assert "; 1 slot free" in told["message"]
    assert [(need["members"], need["slots"]) for need in told["needs"]] == [(3, free)]


def test_when_it_starts_the_status_says_so_and_counts_its_members(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    gang(api, "train", namespace, 3, nodes(1))

    running = wait_until_running(api, "train", namespace, 3)

    conditions = {each["type"]: each for each in running["conditions"]}
    assert conditions["Scheduled"]["status"] == "True"
    assert conditions["Unschedulable"]["status"] == "False"
    assert telling.in_events(api, namespace, "train") == []


def test_each_change_of_reason_is_one_event(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1, cpu="3")
    extender = gang_scheduler.extender
    gang(api, "late", namespace, 2, pool, min_member=3)
    telling.wait_until_said(api, extender, namespace, "late", "NotEnoughMembers")
    gang(api, "first", namespace, 2, pool)
    wait_until_running(api, "first", namespace, 2)
    api.create(objects.pod("late-2", namespace, gang="late", node_selector=pool.selector))
    telling.wait_until_said(api, extender, namespace, "late", "InsufficientCapacity")
    for index in range(2):
        api.delete("pods", f"first-{index}", namespace, grace_seconds=0)
    wait_until_running(api, "late", namespace, 3)

    reasons = [said.reason for said in telling.in_events(api, namespace, "late")]
    assert reasons[:2] == ["NotEnoughMembers", "InsufficientCapacity"]
    assert set(reasons[2:]) <= {"Running"}


def test_a_gang_whose_pod_group_is_missing_is_told_on_its_pod(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1)
    api.create(objects.pod("early", namespace, gang="nobody", node_selector=pool.selector))

    said = wait_for(
        lambda: telling.in_events(api, namespace, "early"), 10, "an event on the pod itself"
    )

    assert [each.reason for each in said] == ["PodGroupMissing"]
    assert "nobody does not exist" in said[0].message


def test_a_queue_says_what_it_uses_and_deserves(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes, create: Create
) -> None:
    queue = f"q-{namespace}"
    create(objects.queue(queue, weight=2))
    gang(api, "train", namespace, 3, nodes(1), queue=queue)

    def told() -> Object | None:
        now = api.get(objects.QUEUES, queue).get("status", {})
        return now if now.get("running") == 1 else None

    now = wait_for(
        told, 15, "the queue counts its gang", seeing=lambda: api.get(objects.QUEUES, queue)
    )

    assert now["state"] == "Open"
    assert now["allocated"]["cpu"] == "3"
    assert now["deserved"]["cpu"] == "3"


def test_a_queue_that_an_administrator_closed_stays_closed(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes, create: Create
) -> None:
    queue = f"q-{namespace}"
    create(objects.queue(queue))
    api.patch(objects.QUEUES, queue, {"status": {"state": "Closed"}}, subresource="status")
    extender = gang_scheduler.extender

    def is_closed_there() -> bool:
        seen = http_json("GET", f"{extender.ops_url}/api/v1/snapshot")
        queues = [thing for thing in seen["items"] if thing["kind"] == "Queue"]
        return ("Closed", queue) in [(q["status"]["state"], q["metadata"]["name"]) for q in queues]

    # Queues and pods are heard of over two watches; a gang that is heard of first may start.
    wait_for(is_closed_there, 15, "the extender has heard that it is closed")
    gang(api, "train", namespace, 2, nodes(1), queue=queue)

    telling.wait_until_said(api, extender, namespace, "train", "QueueClosed")

    assert api.get(objects.QUEUES, queue)["status"]["state"] == "Closed"


def test_a_restarted_extender_does_not_repeat_itself(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool, ours = nodes(1, cpu="2"), {"scheduler": OWN}
    with running_pair(plane, scheduler_name=OWN) as pair:
        gang(api, "huge", namespace, 5, pool, **ours)
        telling.wait_until_said(api, pair.extender, namespace, "huge", "ExceedsCluster")
    before = len(plane.writes("extender"))
    with running_pair(plane, scheduler_name=OWN) as pair:
        telling.wait_until_waiting(pair.extender, namespace, "huge", "ExceedsCluster")
        # Too large for any node, or kube-scheduler would ask, and room be kept for the rest of it.
        gang(api, "probe", namespace, 1, pool, min_member=2, cpu="8", **ours)
        telling.wait_until_said(api, pair.extender, namespace, "probe", "NotEnoughMembers")
    written = plane.writes("extender")[before:]

    # Its pods are woken to see whether kube-scheduler lives.
    about = [request["objectRef"] for request in written]
    said = [each.get("name", "") for each in about if each["resource"] != "pods"]
    assert not [name for name in said if name.startswith("huge")]


def test_own_writes_stay_within_three_per_gang_pod(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    queue, pool = f"q-{namespace}", nodes(4, cpu="8")
    create(objects.queue(queue))
    sizes = [4, 4, 8, 2, 10, 4, 6, 4, 8, 4, 6, 4]  # twice what there is room for
    with plane.binds(namespace) as binds:
        for number, size in enumerate(sizes):
            gang(api, f"g{number}", namespace, size, pool, queue=queue, run_seconds=3)
        binds.wait_for(sum(sizes), 60)
    wait_for(
        lambda: phases(api, namespace) == {"Completed"},
        30,
        "every gang has completed by its own word",
        seeing=lambda: phases(api, namespace),
    )

    written = plane.writes_about(namespace, queue)
    assert sum(written.values()) <= 3 * sum(sizes), written


def phases(api: Api, namespace: str) -> set[str]:
    groups = api.list(objects.POD_GROUPS, namespace)
    return {group.get("status", {}).get("phase", "") for group in groups}

"""Status, events, recordings and messages: the same everywhere, and few writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

from tests import objects

from . import reported
from .api import Api, Object
from .components import http_json
from .control_plane import ControlPlane
from .reported import wait_until_running
from .train_gang import Create, GangScheduler, Nodes, gang, running_pair
from .waiting import wait_for

#: The scheduler name of a test's own pair.
OWN = "status-scheduler"


def test_waiting_gang_has_the_same_message_in_condition_event_api_and_command_line(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2, cpu="2")
    gang(api, "first", namespace, 3, pool)
    wait_until_running(api, "first", namespace, 3)
    gang(api, "second", namespace, 3, pool)
    extender = gang_scheduler.extender

    answer = reported.wait_until_reported(
        api, extender, namespace, "second", "InsufficientCapacity"
    )

    expected = reported.Report("InsufficientCapacity", answer["message"])
    assert reported.condition(api, namespace, "second") == expected
    assert reported.events(api, namespace, "second") == [expected]
    by_command = reported.explained_by_command(extender, namespace, "second")
    assert reported.Report(by_command["reason"], by_command["message"]) == expected
    free = reported.free_slots(api, pool.names)
    assert free == 1
    assert answer["message"].startswith("needs 3 x 1 cpu")
    assert "; 1 slot free" in answer["message"]
    assert [(need["members"], need["slots"]) for need in answer["needs"]] == [(3, free)]


def test_missing_pod_group_is_reported_on_the_pod(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1)
    api.create(objects.pod("early", namespace, gang="missing", node_selector=pool.selector))

    events = wait_for(
        lambda: reported.events(api, namespace, "early"), 10, "an event on the pod itself"
    )

    assert [each.reason for each in events] == ["PodGroupMissing"]
    assert "missing does not exist" in events[0].message


def test_status_of_a_queue_has_usage_and_deserved_share(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes, create: Create
) -> None:
    queue = f"q-{namespace}"
    create(objects.queue(queue, weight=2))
    gang(api, "train", namespace, 3, nodes(1), queue=queue)

    def current() -> Object | None:
        now = api.get(objects.QUEUES, queue).get("status", {})
        return now if now.get("running") == 1 else None

    now = wait_for(
        current, 15, "the queue counts its gang", seeing=lambda: api.get(objects.QUEUES, queue)
    )

    assert now["state"] == "Open"
    assert now["allocated"]["cpu"] == "3"
    assert now["deserved"]["cpu"] == "3"


def test_queue_closed_by_an_administrator_stays_closed(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes, create: Create
) -> None:
    queue = f"q-{namespace}"
    create(objects.queue(queue))
    api.patch(objects.QUEUES, queue, {"status": {"state": "Closed"}}, subresource="status")
    extender = gang_scheduler.extender

    def is_known_as_closed() -> bool:
        seen = http_json("GET", f"{extender.ops_url}/api/v1/snapshot")
        queues = [thing for thing in seen["items"] if thing["kind"] == "Queue"]
        return ("Closed", queue) in [(q["status"]["state"], q["metadata"]["name"]) for q in queues]

    # Queues and pods have different watches; a gang that arrives first may start.
    wait_for(is_known_as_closed, 15, "the extender knows that it is closed")
    gang(api, "train", namespace, 2, nodes(1), queue=queue)

    reported.wait_until_reported(api, extender, namespace, "train", "QueueClosed")

    assert api.get(objects.QUEUES, queue)["status"]["state"] == "Closed"


def test_restarted_extender_does_not_write_the_same_status_again(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool, ours = nodes(1, cpu="2"), {"scheduler": OWN}
    with running_pair(plane, scheduler_name=OWN) as pair:
        gang(api, "huge", namespace, 5, pool, **ours)
        reported.wait_until_reported(api, pair.extender, namespace, "huge", "ExceedsCluster")
    before = len(plane.writes("extender"))
    with running_pair(plane, scheduler_name=OWN) as pair:
        reported.wait_until_waiting(pair.extender, namespace, "huge", "ExceedsCluster")
        # Too large for any node; otherwise the extender would reserve capacity for the rest of it.
        gang(api, "probe", namespace, 1, pool, min_member=2, cpu="8", **ours)
        reported.wait_until_reported(api, pair.extender, namespace, "probe", "NotEnoughMembers")
    written = plane.writes("extender")[before:]

    # Its pods are woken to probe kube-scheduler.
    about = [request["objectRef"] for request in written]
    names = [each.get("name", "") for each in about if each["resource"] != "pods"]
    assert not [name for name in names if name.startswith("huge")]


def test_extender_writes_at_most_three_times_per_gang_pod(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    queue, pool = f"q-{namespace}", nodes(4, cpu="8")
    create(objects.queue(queue))
    sizes = [4, 4, 8, 2, 10, 4, 6, 4, 8, 4, 6, 4]  # twice what fits
    with plane.binds(namespace) as binds:
        for number, size in enumerate(sizes):
            gang(api, f"g{number}", namespace, size, pool, queue=queue, run_seconds=3)
        binds.wait_for(sum(sizes), 60)
    wait_for(
        lambda: phases(api, namespace) == {"Completed"},
        30,
        "the status of every gang is Completed",
        seeing=lambda: phases(api, namespace),
    )

    written = plane.writes_about(namespace, queue)
    assert sum(written.values()) <= 3 * sum(sizes), written


def phases(api: Api, namespace: str) -> set[str]:
    groups = api.list(objects.POD_GROUPS, namespace)
    return {group.get("status", {}).get("phase", "") for group in groups}


def message_of(api: Api, namespace: str) -> str:
    """Return kube-scheduler's message about the first pod of the gang."""
    conditions = api.get("pods", "big-0", namespace)["status"].get("conditions", [])
    found = (each for each in conditions if each["type"] == "PodScheduled")
    return str(next(found, {}).get("message", ""))


def refusals(pair: GangScheduler) -> float:
    return pair.extender.metric(
        "gang_extender_hook_answers_total", verb="filter", outcome="InsufficientCapacity"
    )


def test_pods_that_come_and_go_do_not_change_the_message_of_a_waiting_gang(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(4, cpu="4")
    others = count()

    def move() -> None:
        """Create a pod on the next node, so that the gang never fits, and delete the previous."""
        number = next(others)
        node = pool.names[number % len(pool.names)]
        api.create(objects.pod(f"other-{number}", namespace, scheduler="others", nodeName=node))
        if number:
            api.delete("pods", f"other-{number - 1}", namespace, grace_seconds=0)

    move()
    gang(api, "big", namespace, 4, pool, cpu="4")
    reported.wait_until_waiting(gang_scheduler.extender, namespace, "big", "InsufficientCapacity")
    # Now each node has been offered to the gang once.
    move()
    wait_for(
        lambda: re.search(r"\b4 InsufficientCapacity", message_of(api, namespace)),
        20,
        "the message counts all its nodes",
        seeing=lambda: message_of(api, namespace),
    )
    messages = set()
    for _ in range(8):
        tried = refusals(gang_scheduler)
        move()
        wait_for(
            lambda before=tried: refusals(gang_scheduler) >= before + 4,
            20,
            "kube-scheduler has tried each of them again",
        )
        messages.add(message_of(api, namespace))

    assert len(messages) == 1, messages


def test_refused_events_are_counted_and_not_logged_as_warnings(
    plane: ControlPlane, namespace: str
) -> None:
    gang(plane.api, "train", namespace, 2, cpu="999999", scheduler=OWN)
    with running_pair(plane, "--log-level=debug", scheduler_name=OWN) as pair:

        def counted(outcome: str) -> float:
            labels = {"kind": "Event", "outcome": outcome}
            return pair.extender.metric("gang_extender_status_writes_total", **labels)

        wait_for(lambda: counted("written"), 60, "an event says that it waits")
        # Without kube-controller-manager a namespace stays terminating.
        plane.api.delete("namespaces", namespace)
        plane.api.delete("pods", "train-1", namespace, grace_seconds=0)
        wait_for(lambda: counted("gone"), 60, "the next event is refused")
        log = pair.extender.log_since_start()

    lines = [line for line in log.splitlines() if "not written" in line]
    assert not [line for line in lines if '"level": "warning"' in line]
    assert "because it is being terminated" in log


def test_recording_replays_without_a_difference(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    folder, pool = tmp_path / "recording", nodes(2, cpu="4")
    with (
        running_pair(plane, f"--record={folder}", scheduler_name=OWN) as pair,
        plane.binds(namespace) as binds,
    ):
        for name in ("red", "blue"):
            gang(api, name, namespace, 5, pool, scheduler=OWN)
        for bind in binds.wait_for(5, 20):
            api.delete("pods", bind.pod, namespace)
        binds.wait_for(10, 30)
        cycles = "gang_extender_recorded_cycles_total"
        wait_for(
            lambda: pair.extender.metric(cycles, outcome="written") >= 3,
            20,
            "three cycles are recorded",
        )
        pair.extender.kill()  # recorded cycles survive a crash

    replay = [sys.executable, "-m", "extender", "replay", str(folder), "-o", "json"]
    ran = subprocess.run(replay, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["cycles"] >= 3

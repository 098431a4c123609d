"""Queues that make no sense are said wherever an administrator looks, on the real API server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from urllib.request import urlopen

from tests import objects

from . import telling
from .api import Api, Object
from .components import http_json
from .extender_process import REPOSITORY, Extender
from .stage import GangScheduler, Pool, gang
from .telling import wait_until_running
from .waiting import wait_for

Create = Callable[..., list[Object]]


def doctor(extender: Extender) -> tuple[int, list[Object]]:
    """What `gang-extender doctor` passes on of an extender's findings, with its exit code."""
    command = [sys.executable, "-m", "extender", "doctor", f"--ops-url={extender.ops_url}"]
    command += ["--offline", "-o", "json"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert not ran.stderr, ran.stderr
    return ran.returncode, json.loads(ran.stdout)["found"]


def counted(extender: Extender, reason: str) -> int:
    """The series of one reason."""
    with urlopen(f"{extender.ops_url}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = re.search(
        rf'^gang_extender_findings{{kind="Queue",reason="{reason}"}} (\d+)', text, re.M
    )
    return int(found[1]) if found else 0


def wait_until_counted(extender: Extender, name: str, *reasons: str) -> None:
    """The series counts what the API lists, of this queue and whatever else is there just now."""

    def told() -> tuple[list[str], int, int]:
        listed = http_json("GET", f"{extender.ops_url}/api/v1/findings") or ()
        missing = [each["name"] for each in listed if each["reason"] == "ParentMissing"]
        return findings(extender, name), len(missing), counted(extender, "ParentMissing")

    def agree() -> bool:
        of_this, listed, series = told()
        return of_this == list(reasons) and listed == series

    wait_for(agree, 5, "the series agrees with the list", seeing=told)


def as_written(api: Api, name: str) -> Object:
    status = api.get(objects.QUEUES, name).get("status", {})
    return next((c for c in status.get("conditions", ()) if c["type"] == "Valid"), {})


def findings(extender: Extender, name: str) -> list[str]:
    told = http_json("GET", f"{extender.ops_url}/api/v1/findings") or ()
    return [each["reason"] for each in told if each["name"] == name]


def test_a_queue_below_a_missing_one_is_said_in_event_condition_series_and_command_until_mended(
    api: Api, gang_scheduler: GangScheduler, namespace: str, create: Create
) -> None:
    extender = gang_scheduler.extender
    team, org = f"team-{namespace}", f"org-{namespace}"
    create(objects.queue(team, parent=org))

    wait_for(lambda: findings(extender, team) == ["ParentMissing"], 5, "it is found")
    said = wait_for(
        lambda: as_written(api, team) if as_written(api, team).get("status") == "False" else None,
        5,
        "the condition says it",
        seeing=lambda: as_written(api, team),
    )
    assert said["reason"] == "ParentMissing"
    assert said["message"].startswith(f"queue {team} is below queue {org}, which does not exist;")
    told = telling.Said("ParentMissing", said["message"])
    wait_for(
        lambda: telling.in_events(api, "default", team) == [told],
        10,
        "one event says it",
        seeing=lambda: telling.in_events(api, "default", team),
    )
    (event,) = api.list("events", "default", fields=f"involvedObject.name={team}")
    assert event["type"] == "Warning"
    assert event["involvedObject"]["kind"] == "Queue"
    wait_until_counted(extender, team, "ParentMissing")
    code, named = doctor(extender)
    assert code == 1
    of_this = [each for each in named if each["where"] == f"Queue/{team}"]
    assert [f"{each['seen']}; {each['mend']}" for each in of_this] == [told.message]

    create(objects.queue(org))
    wait_for(
        lambda: as_written(api, team).get("status") == "True",
        5,
        "what was mended is not said any more",
        seeing=lambda: as_written(api, team),
    )
    wait_until_counted(extender, team)
    assert telling.in_events(api, "default", team) == [told]


def test_a_wish_without_effect_is_told_though_the_gang_starts_at_once(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Callable[..., Pool]
) -> None:
    pool = nodes(1, cpu="2")
    api.create(objects.pod_group("soft", namespace, 2, networkTopology={"mode": "soft"}))
    api.create(*objects.pods(2, "soft", namespace, gang="soft", node_selector=pool.selector))

    running = wait_until_running(api, "soft", namespace, 2)

    idle = "networkTopology of mode soft has no effect here"
    assert all(idle in condition["message"] for condition in running["conditions"])
    wait_for(
        lambda: telling.in_events(api, namespace, "soft") == [telling.Said("IgnoredField", idle)],
        5,
        "an event says it",
        seeing=lambda: telling.in_events(api, namespace, "soft"),
    )


def test_a_gang_below_a_closed_queue_waits_and_its_parent_shows_what_the_family_uses(
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Callable[..., Pool],
    create: Create,
) -> None:
    pool, extender = nodes(1, cpu="4"), gang_scheduler.extender
    org, team = f"org-{namespace}", f"team-{namespace}"
    create(objects.queue(org), objects.queue(team, parent=org))
    telling.wait_until_queue_is_known(extender, team)
    gang(api, "first", namespace, 2, pool, queue=team)
    wait_until_running(api, "first", namespace, 2)
    wait_for(
        lambda: api.get(objects.QUEUES, org)["status"]["allocated"].get("cpu") == "2",
        10,
        "the parent shows what its child uses",
        seeing=lambda: api.get(objects.QUEUES, org).get("status"),
    )

    api.patch(objects.QUEUES, org, {"status": {"state": "Closed"}}, subresource="status")
    wait_for(
        lambda: _state(extender, org) == "Closed", 5, "the extender has seen that it is closed"
    )
    gang(api, "second", namespace, 2, pool, queue=team)

    told = telling.wait_until_said(api, extender, namespace, "second", "QueueClosed")
    assert told["message"] == f"queue {team} is below {org}, and queue {org} is closed"
    assert told["would_start_with"] == [f"queue {org} opened again"]
    api.patch(objects.QUEUES, org, {"status": {"state": "Open"}}, subresource="status")
    wait_until_running(api, "second", namespace, 2)


def _state(extender: Extender, name: str) -> object:
    seen = http_json("GET", f"{extender.ops_url}/api/v1/snapshot") or {"items": []}
    return next(
        (
            each["status"]["state"]
            for each in seen["items"]
            if each["kind"] == "Queue" and each["metadata"]["name"] == name
        ),
        None,
    )


def test_a_family_applied_child_first_has_no_event(
    api: Api, gang_scheduler: GangScheduler, namespace: str, create: Create
) -> None:
    team, org = f"team-{namespace}", f"org-{namespace}"
    create(objects.queue(team, parent=org), objects.queue(org))

    wait_for(
        lambda: as_written(api, team).get("status") == "True",
        5,
        "it makes sense",
        seeing=lambda: as_written(api, team),
    )
    # Later than any event about it would be: another queue's event is behind it.
    create(objects.queue(f"lost-{namespace}", parent="nowhere"))
    wait_for(lambda: telling.in_events(api, "default", f"lost-{namespace}"), 10, "the next is told")
    assert telling.in_events(api, "default", team) == []


def test_a_pod_that_is_too_large_waits_and_is_named_and_a_gang_beside_it_starts(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Callable[..., Pool]
) -> None:
    pool, extender = nodes(1, cpu="4"), gang_scheduler.extender
    large = objects.pod("large", namespace, node_selector=pool.selector)
    large["spec"]["containers"][0]["ports"] = [
        {"containerPort": port, "hostPort": port} for port in range(20_000, 20_300)
    ]
    api.create(large)

    wait_for(lambda: findings(extender, namespace) == ["TooLarge"], 20, "it is found")
    (told,) = (
        each
        for each in http_json("GET", f"{extender.ops_url}/api/v1/findings") or ()
        if each["name"] == namespace
    )
    assert told["message"] == (
        f"Pod large of namespace {namespace} has more than 256 host ports; write fewer"
    )
    gang(api, "small", namespace, 2, pool)
    wait_until_running(api, "small", namespace, 2)
    assert not api.get("pods", "large", namespace)["spec"].get("nodeName")
    api.delete("pods", "large", namespace)
    wait_for(lambda: findings(extender, namespace) == [], 20, "it is gone")

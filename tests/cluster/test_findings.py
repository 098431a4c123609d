"""Findings about queues and pods, in each place where an administrator looks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from urllib.request import urlopen

from tests import objects

from . import reported
from .api import Api, Object
from .components import http_json
from .extender_process import REPOSITORY, Extender
from .reported import wait_until_running
from .train_gang import Create, GangScheduler, Pool, gang
from .waiting import wait_for


def doctor(extender: Extender) -> tuple[int, list[Object]]:
    """Return the exit code of `gang-extender doctor` and the findings it prints."""
    command = [sys.executable, "-m", "extender", "doctor", f"--ops-url={extender.ops_url}"]
    command += ["--offline", "-o", "json"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert not ran.stderr, ran.stderr
    return ran.returncode, json.loads(ran.stdout)["found"]


def counted(extender: Extender, reason: str) -> int:
    """Return the metric of one reason."""
    with urlopen(f"{extender.ops_url}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = re.search(
        rf'^gang_extender_findings{{kind="Queue",reason="{reason}"}} (\d+)', text, re.M
    )
    return int(found[1]) if found else 0


def wait_until_counted(extender: Extender, name: str, *reasons: str) -> None:
    """Wait until the API lists *reasons* for the queue, and the metric agrees with the API."""

    def state() -> tuple[list[str], int, int]:
        listed = http_json("GET", f"{extender.ops_url}/api/v1/findings") or ()
        missing = [each["name"] for each in listed if each["reason"] == "ParentMissing"]
        return findings(extender, name), len(missing), counted(extender, "ParentMissing")

    def agree() -> bool:
        of_this, listed, series = state()
        return of_this == list(reasons) and listed == series

    wait_for(agree, 5, "the metric agrees with the API", seeing=state)


def valid_condition(api: Api, name: str) -> Object:
    status = api.get(objects.QUEUES, name).get("status", {})
    return next((c for c in status.get("conditions", ()) if c["type"] == "Valid"), {})


def findings(extender: Extender, name: str) -> list[str]:
    listed = http_json("GET", f"{extender.ops_url}/api/v1/findings") or ()
    return [each["reason"] for each in listed if each["name"] == name]


def test_missing_parent_is_reported_in_event_condition_metric_and_doctor_until_it_exists(
    api: Api, gang_scheduler: GangScheduler, namespace: str, create: Create
) -> None:
    extender = gang_scheduler.extender
    team, org = f"team-{namespace}", f"org-{namespace}"
    create(objects.queue(team, parent=org))

    wait_for(lambda: findings(extender, team) == ["ParentMissing"], 5, "it is found")
    condition = wait_for(
        lambda: (
            valid_condition(api, team)
            if valid_condition(api, team).get("status") == "False"
            else None
        ),
        5,
        "the condition has it",
        seeing=lambda: valid_condition(api, team),
    )
    assert condition["reason"] == "ParentMissing"
    assert condition["message"].startswith(
        f"queue {team} is below queue {org}, which does not exist;"
    )
    expected = reported.Report("ParentMissing", condition["message"])
    wait_for(
        lambda: reported.events(api, "default", team) == [expected],
        10,
        "one event has it",
        seeing=lambda: reported.events(api, "default", team),
    )
    (event,) = api.list("events", "default", fields=f"involvedObject.name={team}")
    assert event["type"] == "Warning"
    assert event["involvedObject"]["kind"] == "Queue"
    wait_until_counted(extender, team, "ParentMissing")
    code, named = doctor(extender)
    assert code == 1
    of_this = [each for each in named if each["where"] == f"Queue/{team}"]
    assert [f"{each['seen']}; {each['mend']}" for each in of_this] == [expected.message]

    create(objects.queue(org))
    wait_for(
        lambda: valid_condition(api, team).get("status") == "True",
        5,
        "the condition is true again",
        seeing=lambda: valid_condition(api, team),
    )
    wait_until_counted(extender, team)
    assert reported.events(api, "default", team) == [expected]


def test_ignored_field_is_reported_though_the_gang_starts_at_once(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Callable[..., Pool]
) -> None:
    pool = nodes(1, cpu="2")
    api.create(objects.pod_group("soft", namespace, 2, networkTopology={"mode": "soft"}))
    api.create(*objects.pods(2, "soft", namespace, gang="soft", node_selector=pool.selector))

    running = wait_until_running(api, "soft", namespace, 2)

    ignored = "networkTopology of mode soft has no effect here"
    assert all(ignored in condition["message"] for condition in running["conditions"])
    wait_for(
        lambda: (
            reported.events(api, namespace, "soft") == [reported.Report("IgnoredField", ignored)]
        ),
        5,
        "an event has it",
        seeing=lambda: reported.events(api, namespace, "soft"),
    )


def test_queue_tree_applied_child_first_has_no_event(
    api: Api, gang_scheduler: GangScheduler, namespace: str, create: Create
) -> None:
    team, org = f"team-{namespace}", f"org-{namespace}"
    create(objects.queue(team, parent=org), objects.queue(org))

    wait_for(
        lambda: valid_condition(api, team).get("status") == "True",
        5,
        "it is valid",
        seeing=lambda: valid_condition(api, team),
    )
    # The event of another queue is written after any event about this one.
    create(objects.queue(f"lost-{namespace}", parent="nowhere"))
    wait_for(lambda: reported.events(api, "default", f"lost-{namespace}"), 10, "the later event")
    assert reported.events(api, "default", team) == []


def test_oversized_pod_is_reported_and_other_gangs_start(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Callable[..., Pool]
) -> None:
    pool, extender = nodes(1, cpu="4"), gang_scheduler.extender
    large = objects.pod("large", namespace, node_selector=pool.selector)
    large["spec"]["containers"][0]["ports"] = [
        {"containerPort": port, "hostPort": port} for port in range(20_000, 20_300)
    ]
    api.create(large)

    wait_for(lambda: findings(extender, namespace) == ["TooLarge"], 20, "it is found")
    (found,) = (
        each
        for each in http_json("GET", f"{extender.ops_url}/api/v1/findings") or ()
        if each["name"] == namespace
    )
    assert found["message"] == (
        f"Pod large of namespace {namespace} has more than 256 host ports; write fewer"
    )
    gang(api, "small", namespace, 2, pool)
    wait_until_running(api, "small", namespace, 2)
    assert not api.get("pods", "large", namespace)["spec"].get("nodeName")
    api.delete("pods", "large", namespace)
    wait_for(lambda: findings(extender, namespace) == [], 20, "the finding is gone")

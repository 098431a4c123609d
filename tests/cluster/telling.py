"""What the extender says of a gang, in each of the places where people look."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from tests import objects

from .api import Api, Object
from .components import http_json
from .extender_process import REPOSITORY, Extender
from .waiting import wait_for

#: Once it is known: until it stands everywhere.
_ELSEWHERE_S = 10.0


@dataclass(frozen=True, slots=True)
class Said:
    """A reason and its sentence."""

    reason: str
    message: str


def over_http(extender: Extender, namespace: str, gang: str) -> Object:
    """The explanation of a gang from the operations port."""
    told = http_json("GET", f"{extender.ops_url}/api/v1/gangs/{namespace}/{gang}")
    assert told is not None, f"no gang {namespace}/{gang} at {extender.ops_url}"
    return dict(told)


def on_the_command_line(extender: Extender, namespace: str, gang: str) -> Object:
    """The same from `gang-extender explain`."""
    command = [sys.executable, "-m", "extender", "explain", f"{namespace}/{gang}"]
    command += [f"--ops-url={extender.ops_url}", "-o", "json"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def in_condition(api: Api, namespace: str, gang: str) -> Said | None:
    """The Unschedulable condition of the PodGroup, while it is true."""
    status = api.get(objects.POD_GROUPS, gang, namespace).get("status", {})
    for condition in status.get("conditions", []):
        if condition["type"] == "Unschedulable" and condition["status"] == "True":
            return Said(condition["reason"], condition["message"])
    return None


def in_events(api: Api, namespace: str, name: str) -> list[Said]:
    """Our events about an object, oldest first."""
    events = sorted(_events(api, namespace, name), key=lambda event: event["firstTimestamp"])
    return [Said(event["reason"], event["message"]) for event in events]


def last_in_events(api: Api, namespace: str, name: str) -> set[str]:
    """The reasons of our last events about an object; of one second none is the later."""
    events = _events(api, namespace, name)
    last = max((event["lastTimestamp"] for event in events), default="")
    return {event["reason"] for event in events if event["lastTimestamp"] == last}


def _events(api: Api, namespace: str, name: str) -> list[Object]:
    return [
        event
        for event in api.list("events", namespace, fields=f"involvedObject.name={name}")
        if event["source"].get("component") == "gang-extender"
    ]


def wait_until_said(
    api: Api,
    extender: Extender,
    namespace: str,
    gang: str,
    reason: str,
    seconds: float = 15,
) -> Object:
    """Wait for a reason over HTTP, then demand it soon wherever else it is told.

    That the reporter writes it within a second is told by a clock that nobody stops
    (tests/unit/status/test_reporter.py); here the API server and a shared machine take their time.
    """
    told = wait_for(
        lambda: _if(over_http(extender, namespace, gang), reason),
        seconds,
        f"{gang} waits for {reason}",
        seeing=lambda: over_http(extender, namespace, gang),
    )
    decided = time.monotonic()
    for where, look in (
        ("condition", lambda: _reasons(in_condition(api, namespace, gang))),
        ("last event", lambda: last_in_events(api, namespace, gang)),
    ):
        left = max(0.0, decided + _ELSEWHERE_S - time.monotonic())
        wait_for(
            lambda look=look: reason in look(),  # type: ignore[misc]
            left,
            f"{reason} of {gang} in its {where} too",
            seeing=look,
        )
    return told


def free_slots(api: Api, pool: list[str], cpu: int = 1) -> int:
    """Count from the API server alone how many pods of *cpu* cpus fit on the nodes of *pool*."""
    room = {
        node["metadata"]["name"]: int(node["status"]["allocatable"]["cpu"])
        for node in api.list("nodes")
        if node["metadata"]["name"] in pool
    }
    for pod in api.list("pods"):
        if objects.node_of(pod) in room and objects.phase(pod) not in ("Succeeded", "Failed"):
            asked = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            room[pod["spec"]["nodeName"]] -= int(asked)
    return sum(left // cpu for left in room.values())


def _reasons(said: Said | None) -> set[str]:
    return {said.reason} if said else set()


def _if(told: Object, reason: str) -> Any:
    return told if told["reason"] == reason else None


def wait_until_queue_is_known(extender: Extender, name: str) -> None:
    """Wait until a plan was made with a queue; what comes to it earlier waits for that plan."""
    url = f"{extender.ops_url}/api/v1/queues"

    def is_known() -> bool:
        return any(queue["name"] == name for queue in http_json("GET", url) or ())

    wait_for(is_known, 10, f"the extender knows queue {name}")


def wait_until_nobody_waits(extender: Extender) -> None:
    """Wait until gangs of earlier stories are gone; they go before whoever comes now."""
    wait_for(lambda: extender.metric("volcano_unschedule_job_count") == 0, 20, "nobody waits")


def status(api: Api, name: str, namespace: str) -> Object:
    return dict(api.get(objects.POD_GROUPS, name, namespace).get("status", {}))


def wait_until_running(api: Api, name: str, namespace: str, count: int) -> Object:
    """Wait until the PodGroup itself says that it runs."""

    def runs() -> Object | None:
        now = status(api, name, namespace)
        return now if (now.get("phase"), now.get("running")) == ("Running", count) else None

    return wait_for(
        runs, 15, f"{name} runs by its own word", seeing=lambda: status(api, name, namespace)
    )


def refusals(api: Api, namespace: str, pod: str) -> list[str]:
    """Give what kube-scheduler's events say about a pod that does not start."""
    return [
        event["message"]
        for event in api.list("events", namespace, fields=f"involvedObject.name={pod}")
        if event["reason"] == "FailedScheduling"
    ]


def wait_until_refused(api: Api, namespace: str, pod: str, word: str) -> None:
    """Wait until kube-scheduler has asked about *pod* and was told *word*."""

    def told() -> bool:
        return any(word in message for message in refusals(api, namespace, pod))

    wait_for(
        told, 10, f"{pod} is refused with {word}", seeing=lambda: refusals(api, namespace, pod)
    )


def wait_until_known(extender: Extender, namespace: str, gang: str) -> None:
    """Wait until the extender has heard of a PodGroup and planned with it."""
    url = f"{extender.ops_url}/api/v1/gangs/{namespace}/{gang}"
    wait_for(lambda: http_json("GET", url), 10, f"the extender knows {gang}")


def used_cpus(extender: Extender, queue: str) -> object:
    """What a queue uses by the word of the extender."""
    told = http_json("GET", f"{extender.ops_url}/api/v1/queues") or ()
    return next((each["allocated"].get("cpu") for each in told if each["name"] == queue), None)


def wait_until_used(extender: Extender, queue: str, cpus: str) -> None:
    wait_for(
        lambda: used_cpus(extender, queue) == cpus,
        10,
        f"queue {queue} uses {cpus} cpus",
        seeing=lambda: http_json("GET", f"{extender.ops_url}/api/v1/queues"),
    )


def wait_until_waiting(
    extender: Extender, namespace: str, gang: str, reason: str, seconds: float = 20
) -> Object:
    """Wait until the extender says why a gang waits.

    Not by the PodGroup: several extenders run here, and each writes there what it knows.
    """
    told: Object = wait_for(
        lambda: _if(over_http(extender, namespace, gang), reason),
        seconds,
        f"{gang} waits: {reason}",
        seeing=lambda: over_http(extender, namespace, gang),
    )
    return told

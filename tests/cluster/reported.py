"""What the extender reports about a gang, in each place where users look."""

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

#: Timeout until a reason that the API shows is in condition and event too.
_STATUS_S = 10.0


@dataclass(frozen=True, slots=True)
class Report:
    """A reason and its message."""

    reason: str
    message: str


def explanation(extender: Extender, namespace: str, gang: str) -> Object:
    """Return the explanation of a gang from the operations port."""
    answer = http_json("GET", f"{extender.ops_url}/api/v1/gangs/{namespace}/{gang}")
    assert answer is not None, f"no gang {namespace}/{gang} at {extender.ops_url}"
    return dict(answer)


def explained_by_command(extender: Extender, namespace: str, gang: str) -> Object:
    """Return the explanation of a gang from `gang-extender explain`."""
    command = [sys.executable, "-m", "extender", "explain", f"{namespace}/{gang}"]
    command += [f"--ops-url={extender.ops_url}", "-o", "json"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def condition(api: Api, namespace: str, gang: str) -> Report | None:
    """Return the PodGroup's Unschedulable condition, if it is true."""
    status = api.get(objects.POD_GROUPS, gang, namespace).get("status", {})
    for condition in status.get("conditions", []):
        if condition["type"] == "Unschedulable" and condition["status"] == "True":
            return Report(condition["reason"], condition["message"])
    return None


def events(api: Api, namespace: str, name: str) -> list[Report]:
    """Return the extender's events about an object, oldest first."""
    events = sorted(_events(api, namespace, name), key=lambda event: event["firstTimestamp"])
    return [Report(event["reason"], event["message"]) for event in events]


def last_event_reasons(api: Api, namespace: str, name: str) -> set[str]:
    """Return the reasons of the last events about an object: all of the last second."""
    events = _events(api, namespace, name)
    last = max((event["lastTimestamp"] for event in events), default="")
    return {event["reason"] for event in events if event["lastTimestamp"] == last}


def _events(api: Api, namespace: str, name: str) -> list[Object]:
    return [
        event
        for event in api.list("events", namespace, fields=f"involvedObject.name={name}")
        if event["source"].get("component") == "gang-extender"
    ]


def wait_until_reported(
    api: Api,
    extender: Extender,
    namespace: str,
    gang: str,
    reason: str,
    seconds: float = 15,
) -> Object:
    """Wait for a reason in the API, then in the condition and in the last event.

    tests/unit/status/test_reporter.py tests with a virtual clock that they are written within a
    second; here the machine is shared, so the timeout is longer.
    """
    answer = wait_for(
        lambda: _if(explanation(extender, namespace, gang), reason),
        seconds,
        f"{gang} waits for {reason}",
        seeing=lambda: explanation(extender, namespace, gang),
    )
    decided = time.monotonic()
    for where, reasons in (
        ("condition", lambda: _reasons(condition(api, namespace, gang))),
        ("last event", lambda: last_event_reasons(api, namespace, gang)),
    ):
        left = max(0.0, decided + _STATUS_S - time.monotonic())
        wait_for(
            lambda reasons=reasons: reason in reasons(),  # type: ignore[misc]
            left,
            f"{reason} of {gang} in its {where}",
            seeing=reasons,
        )
    return answer


def free_slots(api: Api, pool: list[str], cpu: int = 1) -> int:
    """Count, without the extender, how many pods of *cpu* cpus fit on the nodes of *pool*."""
    free = {
        node["metadata"]["name"]: int(node["status"]["allocatable"]["cpu"])
        for node in api.list("nodes")
        if node["metadata"]["name"] in pool
    }
    for pod in api.list("pods"):
        if objects.node_of(pod) in free and objects.phase(pod) not in ("Succeeded", "Failed"):
            request = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            free[pod["spec"]["nodeName"]] -= int(request)
    return sum(left // cpu for left in free.values())


def _reasons(report: Report | None) -> set[str]:
    return {report.reason} if report else set()


def _if(answer: Object, reason: str) -> Any:
    return answer if answer["reason"] == reason else None


def wait_until_queue_is_known(extender: Extender, name: str) -> None:
    """Wait until a plan has the queue; gangs created earlier wait for that plan."""
    url = f"{extender.ops_url}/api/v1/queues"

    def is_known() -> bool:
        return any(queue["name"] == name for queue in http_json("GET", url) or ())

    wait_for(is_known, 10, f"the extender knows queue {name}")


def wait_until_no_gang_waits(extender: Extender) -> None:
    """Wait until gangs of earlier tests are gone; they would be ahead of new ones."""
    wait_for(lambda: extender.metric("volcano_unschedule_job_count") == 0, 20, "no gang waits")


def status(api: Api, name: str, namespace: str) -> Object:
    return dict(api.get(objects.POD_GROUPS, name, namespace).get("status", {}))


def wait_until_running(api: Api, name: str, namespace: str, count: int) -> Object:
    """Wait until the status of the PodGroup says that it runs."""

    def runs() -> Object | None:
        now = status(api, name, namespace)
        return now if (now.get("phase"), now.get("running")) == ("Running", count) else None

    return wait_for(
        runs, 15, f"{name} runs by its status", seeing=lambda: status(api, name, namespace)
    )


def refusals(api: Api, namespace: str, pod: str) -> list[str]:
    """Return the messages of kube-scheduler's FailedScheduling events about a pod."""
    return [
        event["message"]
        for event in api.list("events", namespace, fields=f"involvedObject.name={pod}")
        if event["reason"] == "FailedScheduling"
    ]


def wait_until_refused(api: Api, namespace: str, pod: str, word: str) -> None:
    """Wait until a FailedScheduling event of *pod* contains *word*."""

    def is_refused() -> bool:
        return any(word in message for message in refusals(api, namespace, pod))

    wait_for(
        is_refused,
        10,
        f"{pod} is refused with {word}",
        seeing=lambda: refusals(api, namespace, pod),
    )


def wait_until_known(extender: Extender, namespace: str, gang: str) -> None:
    """Wait until the extender has planned with a PodGroup."""
    url = f"{extender.ops_url}/api/v1/gangs/{namespace}/{gang}"
    wait_for(lambda: http_json("GET", url), 10, f"the extender knows {gang}")


def used_cpus(extender: Extender, queue: str) -> object:
    """Return the cpus that a queue uses by the extender's API."""
    answer = http_json("GET", f"{extender.ops_url}/api/v1/queues") or ()
    return next((each["allocated"].get("cpu") for each in answer if each["name"] == queue), None)


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
    """Wait until the extender's API shows *reason* for a gang.

    Not the PodGroup: several extenders run here, and each writes its status.
    """
    answer: Object = wait_for(
        lambda: _if(explanation(extender, namespace, gang), reason),
        seconds,
        f"{gang} waits: {reason}",
        seeing=lambda: explanation(extender, namespace, gang),
    )
    return answer

"""The status of gangs and queues, in the fields of each API."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.findings.finding import Finding
from extender.model.gang import COSCHEDULING, KUBE_BATCH, VOLCANO, Phase
from extender.model.pod import Status
from extender.model.queue import Queue, QueueState
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner.plan import GangStatus, QueueFigures
from extender.status import desired
from tests.builders import pod
from tests.scene import gang, plan, snapshot, verdict


def test_a_waiting_gang_is_unschedulable_for_its_reason() -> None:
    content = desired.of_gang(
        gang(
            "train",
            [
                pod("a"),
                pod("b", on="n"),
                pod("c", on="n", status=Status.SUCCEEDED),
                pod("d", on="n", status=Status.FAILED),
            ],
        ),
        verdict("a/train", Reason.INSUFFICIENT_CAPACITY, message="needs 2 x 1 cpu"),
    )

    assert content is not None
    assert content.body == {
        "phase": "Inqueue",
        "running": 1,
        "succeeded": 1,
        "failed": 1,
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": "InsufficientCapacity",
                "message": "needs 2 x 1 cpu",
            }
            for kind, status in (("Unschedulable", "True"), ("Scheduled", "False"))
        ],
    }


@pytest.mark.parametrize(
    ("reason", "standing", "unschedulable", "scheduled"),
    [
        (Reason.RUNNING, GangStatus.RUNNING, "False", "True"),
        (Reason.ADMITTED, GangStatus.ADMITTED, "False", "False"),
        (Reason.QUEUE_NOT_FOUND, GangStatus.INVALID, "True", "False"),
    ],
)
def test_the_two_conditions_follow_the_gang_status(
    reason: Reason, standing: GangStatus, unschedulable: str, scheduled: str
) -> None:
    content = desired.of_gang(gang("train"), verdict("a/train", reason, standing))

    assert content is not None
    assert [each["status"] for each in content.body["conditions"]] == [unschedulable, scheduled]


@pytest.mark.parametrize(
    ("dialect", "phase", "word", "types"),
    [
        (VOLCANO, Phase.COMPLETED, "Completed", ["Unschedulable", "Scheduled"]),
        (KUBE_BATCH, Phase.INQUEUE, "Pending", ["Unschedulable"]),
        (COSCHEDULING, Phase.COMPLETED, "Finished", []),
    ],
)
def test_every_api_gets_its_own_field_names(
    dialect: str, phase: Phase, word: str, types: list[str]
) -> None:
    content = desired.of_gang(gang("train", dialect=dialect), verdict("a/train", phase=phase))

    assert content is not None
    assert content.body["phase"] == word
    assert [each["type"] for each in content.body.get("conditions", [])] == types


def test_an_unchanged_condition_keeps_its_time_and_foreign_conditions_are_kept() -> None:
    wanted = desired.of_gang(gang("train"), verdict("a/train"))
    there = {
        "conditions": [
            {"type": "Theirs", "status": "True"},
            {"type": "Unschedulable", "status": "False", "lastTransitionTime": "before"},
            {"type": "Scheduled", "status": "False", "lastTransitionTime": "before"},
        ]
    }
    assert wanted is not None

    written = desired.dated(wanted, there, "now")["conditions"]

    assert [(each["type"], each.get("lastTransitionTime")) for each in written] == [
        ("Theirs", None),
        ("Unschedulable", "before"),
        ("Scheduled", "now"),
    ]


def test_the_reason_a_gang_waited_can_be_read_from_its_status() -> None:
    stuck = desired.of_gang(gang("train"), verdict("a/train", Reason.BEHIND_IN_ORDER))
    runs = desired.of_gang(gang("train"), verdict("a/train"))
    assert stuck is not None
    assert runs is not None

    assert desired.stuck_reason(stuck.body) == "BehindInOrder"
    assert desired.stuck_reason(runs.body) == ""


FIGURES = QueueFigures(
    name="left",
    weight=1,
    deserved=Resources({"cpu": 4000, "memory": 2**30}),
    allocated=Resources({"cpu": 2500, "pods": 3}),
    share=0.625,
)


def test_the_status_of_a_queue_has_used_deserved_and_reserved_amounts() -> None:
    gangs = gang("run"), gang("wait", status=Status.PENDING), gang("single", dialect="")
    decided = plan(
        verdict("a/run"),
        verdict("a/wait", Reason.INSUFFICIENT_CAPACITY),
        verdict("a/single"),
        queues={"left": FIGURES},
    )

    content = desired.of_queues(snapshot(*gangs), decided)

    assert content["left"].body == {
        "pending": 0,
        "inqueue": 1,
        "running": 1,
        "unknown": 0,
        "completed": 0,
        "allocated": {"cpu": "2500m", "pods": "3"},
        "deserved": {"cpu": "4", "memory": "1Gi"},
        "share": "0.6250",
        "conditions": [{"type": "Valid", "status": "True", "reason": "NoFindings", "message": ""}],
    }


def test_the_status_of_a_queue_has_a_limited_number_of_resources() -> None:
    junk = {f"a.io/r{number}": 1 for number in range(8_000)}
    used = Resources({**junk, "nvidia.com/gpu": 3, "cpu": 1000})
    deserved = Resources({"nvidia.com/gpu": 8})
    figures = replace(FIGURES, allocated=used, deserved=deserved)

    content = desired.of_queues(snapshot(), plan(queues={"left": figures}))["left"].body

    assert len(content["allocated"]) == 64
    assert (content["allocated"]["nvidia.com/gpu"], content["allocated"]["cpu"]) == ("3", "1")


def test_the_status_of_a_queue_names_its_findings() -> None:
    found = [
        Finding("Queue", "left", "ParentMissing", "its parent is missing"),
        Finding("Queue", "left", "WeightZero", "its weight is 0"),
    ]

    content = desired.of_queues(snapshot(), plan(queues={"left": FIGURES}), lambda name: found)

    assert content["left"].body["conditions"] == [
        {
            "type": "Valid",
            "status": "False",
            "reason": "ParentMissing",
            "message": "its parent is missing; its weight is 0",
        }
    ]


def test_a_closing_queue_is_closed_when_its_last_gang_is_gone() -> None:
    closing = [Queue(name="left", uid="q", state=QueueState.CLOSING)]
    empty = desired.of_queues(snapshot(queues=closing), plan(queues={"left": FIGURES}))
    busy = desired.of_queues(
        snapshot(gang("run"), queues=closing), plan(verdict("a/run"), queues={"left": FIGURES})
    )

    assert empty["left"].body["state"] == "Closed"
    assert "state" not in busy["left"].body


def test_a_queue_without_an_object_has_no_status() -> None:
    implied = snapshot(queues=[Queue(name="left")])

    assert desired.of_queues(implied, plan(queues={"left": FIGURES})) == {}

"""Events: one for each message, a count for repetitions, and a limited rate."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import cast

import pytest

from extender.kube.client import ApiClient
from extender.kube.write.status import EVENT_BURST, ApiEventWriter
from extender.leader.fencing import FencingToken, Term
from extender.metrics import Metrics
from extender.model.gang import VOLCANO
from extender.ports import AlwaysLeader, EventRecord, ObjectReference
from tests.builders import NOW
from tests.series import value
from tests.unit.kube.api_double import TERMINATING, Answer, ApiDouble

EVENTS = "/api/v1/namespaces/a/events"
TRAIN = ObjectReference(kind="PodGroup", dialect=VOLCANO, namespace="a", name="train", uid="u1")
NOTICE = EventRecord(
    subject=TRAIN, reason="InsufficientCapacity", message="needs 4 x 1 cpu", at=NOW
)
TOKEN = FencingToken(AlwaysLeader(), 1)


def event_writer(api: ApiDouble, metrics: Metrics | None = None) -> ApiEventWriter:
    return ApiEventWriter(cast(ApiClient, api), metrics or Metrics(), wait=lambda seconds: None)


def test_an_event_names_its_object_reason_and_message() -> None:
    api = ApiDouble()
    event_writer(api).send(replace(NOTICE, warning=True), TOKEN)

    event = api.asked[0].body
    assert api.requests() == [f"POST {EVENTS}"]
    assert event["involvedObject"] == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "namespace": "a",
        "name": "train",
        "uid": "u1",
    }
    assert (event["reason"], event["type"]) == ("InsufficientCapacity", "Warning")
    assert event["message"] == "needs 4 x 1 cpu"
    assert event["source"] == {"component": "gang-extender"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "1970-01-12T13:48:20Z"


def test_a_repeated_event_raises_its_count() -> None:
    api = ApiDouble()
    writer = event_writer(api)
    for message in ("needs 4", "needs 3", "needs 2"):
        writer.send(replace(NOTICE, message=message), TOKEN)

    assert [asked.method for asked in api.asked] == ["POST", "PATCH", "PATCH"]
    assert [asked.body["count"] for asked in api.asked] == [1, 2, 3]
    assert api.asked[2].body["message"] == "needs 2"
    assert api.asked[1].path == f"{EVENTS}/{api.asked[0].body['metadata']['name']}"


def test_another_message_or_object_is_another_event() -> None:
    api = ApiDouble()
    writer = event_writer(api)
    writer.send(NOTICE, TOKEN)
    writer.send(replace(NOTICE, reason="BehindInOrder"), TOKEN)
    writer.send(replace(NOTICE, subject=replace(TRAIN, uid="u2")), TOKEN)

    assert [asked.method for asked in api.asked] == ["POST"] * 3


def test_an_event_the_api_server_has_expired_is_created_again() -> None:
    api = ApiDouble()
    writer = event_writer(api)
    writer.send(NOTICE, TOKEN)
    name = api.asked[0].body["metadata"]["name"]
    api.answers[f"PATCH {EVENTS}/{name}"] = [(404, {"message": "gone"})]
    writer.send(NOTICE, TOKEN)

    assert [asked.method for asked in api.asked] == ["POST", "PATCH", "POST"]


def test_events_about_one_object_are_rate_limited() -> None:
    api, metrics = ApiDouble(), Metrics()
    writer = event_writer(api, metrics)
    for number in range(EVENT_BURST * 3):
        writer.send(replace(NOTICE, reason=f"Reason{number}"), TOKEN)

    assert len(api.asked) == EVENT_BURST
    assert value(metrics, "status_writes_total", kind="Event", outcome="dropped") == EVENT_BURST * 2


def test_an_event_about_a_cluster_scoped_object_is_in_the_default_namespace() -> None:
    api = ApiDouble()
    queue = ObjectReference(kind="Queue", dialect=VOLCANO, name="left", uid="q")
    event_writer(api).send(replace(NOTICE, subject=queue), TOKEN)

    assert api.requests() == ["POST /api/v1/namespaces/default/events"]
    assert "namespace" not in api.asked[0].body["involvedObject"]


def test_writing_an_event_does_not_block_and_a_refusal_does_not_end_the_thread() -> None:
    api = ApiDouble({f"POST {EVENTS}": [(500, {"message": "no"}), (201, {})]})
    metrics = Metrics()
    writer = event_writer(api, metrics)
    writer.write(NOTICE)
    writer.write(NOTICE)
    writer.start()
    writer.finish()

    outcomes = [
        value(metrics, "status_writes_total", kind="Event", outcome=word)
        for word in ("failed", "written")
    ]
    assert outcomes == [1, 1]


@pytest.mark.parametrize(
    "answer", [TERMINATING, (404, {"message": 'namespaces "a" not found'})], ids=["going", "gone"]
)
def test_an_event_refused_by_a_terminating_namespace_is_counted_without_a_warning(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    writer = event_writer(ApiDouble({f"POST {EVENTS}": [answer]}), metrics)
    writer.write(NOTICE)
    writer.start()
    writer.finish()

    assert value(metrics, "status_writes_total", kind="Event", outcome="gone") == 1
    assert caplog.records == []


def test_many_events_refused_for_one_reason_log_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    writer = event_writer(ApiDouble({f"POST {EVENTS}": [(500, {"message": "no"})]}), metrics)
    for number in range(100):
        writer.write(replace(NOTICE, subject=replace(TRAIN, uid=f"u{number}")))
    writer.start()
    writer.finish()

    assert value(metrics, "status_writes_total", kind="Event", outcome="failed") == 100
    assert [record.message for record in caplog.records] == ["event not written"]


def test_the_name_of_an_event_about_a_long_name_is_valid() -> None:
    api = ApiDouble()
    for mark in "-.":
        long = replace(TRAIN, name="x" * 199 + mark + "y" * 30, uid=f"u{mark}")
        event_writer(api).send(replace(NOTICE, subject=long), TOKEN)

    label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    names = [asked.body["metadata"]["name"] for asked in api.asked]
    assert [name for name in names if not re.fullmatch(rf"{label}(\.{label})*", name)] == []


def test_an_event_queued_in_an_ended_term_is_not_written_in_the_next() -> None:
    api, metrics, term = ApiDouble(), Metrics(), Term(lambda: 0.0)
    writer = ApiEventWriter(cast(ApiClient, api), metrics, wait=lambda seconds: None, fencing=term)
    term.begin(until=1)
    writer.write(NOTICE)
    term.end()
    term.begin(until=1)
    writer.write(replace(NOTICE, reason="BehindInOrder"))
    writer.start()
    writer.finish()

    assert [asked.body["reason"] for asked in api.asked] == ["BehindInOrder"]
    assert value(metrics, "status_writes_total", kind="Event", outcome="dropped") == 1

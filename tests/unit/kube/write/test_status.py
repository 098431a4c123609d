"""How a status reaches the API server, with and without a status subresource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from extender.errors import ApiError, NotLeader
from extender.kube.client import ApiClient
from extender.kube.write.status import ApiStatusWriter
from extender.leader.fencing import Term
from extender.model.gang import COSCHEDULING, VOLCANO
from extender.ports import ObjectReference
from extender.status import desired
from tests.unit.kube.api_double import Answer, ApiDouble

TRAIN = ObjectReference(kind="PodGroup", dialect=VOLCANO, namespace="a", name="train", uid="u1")
PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/a/podgroups/train"
NOT_FOUND: Answer = (404, {"message": "not found"})


def stored(**status: Any) -> Answer:
    return 200, {"metadata": {"uid": "u1"}, "status": status}


def write(
    api: ApiDouble, *subjects: ObjectReference, writes: int = 1
) -> list[Mapping[str, Any] | None]:
    writer = ApiStatusWriter(cast(ApiClient, api), wait=lambda seconds: None)
    answers = [
        writer.write(subject, {"phase": "Running"}).result(timeout=10)
        for subject in subjects or (TRAIN,)
        for _ in range(writes)
    ]
    writer.stop()
    return answers


def test_the_status_subresource_is_patched_and_the_stored_status_returned() -> None:
    api = ApiDouble({f"PATCH {PATH}/status": [stored(phase="Running", theirs=1)]})

    assert write(api) == [{"phase": "Running", "theirs": 1}]
    assert api.asked[0].body == {"metadata": {"uid": "u1"}, "status": {"phase": "Running"}}
    assert api.asked[0].content_type == "application/merge-patch+json"


def test_a_kind_without_a_status_subresource_is_patched_as_a_whole_from_then_on() -> None:
    api = ApiDouble(
        {
            f"PATCH {PATH}/status": [NOT_FOUND],
            f"GET {PATH}": [stored()],
            f"PATCH {PATH}": [stored(phase="Running")],
        }
    )

    assert write(api, writes=2) == [{"phase": "Running"}] * 2
    assert api.requests() == [
        f"PATCH {PATH}/status",
        f"GET {PATH}",
        f"PATCH {PATH}",
        f"PATCH {PATH}",
    ]


def test_a_deleted_object_is_distinguished_from_a_missing_subresource() -> None:
    api = ApiDouble({f"PATCH {PATH}/status": [stored(), NOT_FOUND], f"GET {PATH}": [NOT_FOUND]})

    assert write(api, writes=2) == [{}, None]
    assert f"PATCH {PATH}" not in api.requests()


def test_a_status_is_written_after_its_kind_loses_the_subresource() -> None:
    api = ApiDouble(
        {
            f"PATCH {PATH}/status": [stored(phase="Running"), NOT_FOUND],
            f"GET {PATH}": [stored()],
            f"PATCH {PATH}": [stored(phase="Running", theirs=1)],
        }
    )

    assert write(api, writes=2) == [{"phase": "Running"}, {"phase": "Running", "theirs": 1}]


def test_a_status_is_written_after_its_kind_gets_a_subresource() -> None:
    api = ApiDouble(
        {
            f"PATCH {PATH}/status": [NOT_FOUND, stored(phase="Running", theirs=1)],
            f"GET {PATH}": [stored()],
            # From then on the API server drops a status that is written with the object.
            f"PATCH {PATH}": [stored(phase="Running"), stored(phase="Pending")],
        }
    )

    assert write(api, writes=2) == [{"phase": "Running"}, {"phase": "Running", "theirs": 1}]


def test_a_status_that_its_kind_does_not_store_is_not_written_forever() -> None:
    api = ApiDouble(
        {
            f"PATCH {PATH}/status": [NOT_FOUND],
            f"GET {PATH}": [stored()],
            f"PATCH {PATH}": [stored()],
        }
    )

    assert write(api) == [{}]
    assert api.requests().count(f"PATCH {PATH}") == 2


def test_a_deleted_object_is_reported_as_gone() -> None:
    api = ApiDouble({f"PATCH {PATH}/status": [NOT_FOUND], f"GET {PATH}": [NOT_FOUND]})

    assert write(api) == [None]
    # We may patch few kinds as a whole; a refusal would count as a missing permission.
    assert f"PATCH {PATH}" not in api.requests()


def test_another_object_of_the_same_name_is_not_written() -> None:
    api = ApiDouble({f"PATCH {PATH}/status": [(409, {"message": "uid"})]})

    assert write(api) == [None]


def test_the_state_of_a_queue_is_only_written_at_the_version_that_was_read() -> None:
    gold = ObjectReference(kind="Queue", dialect=VOLCANO, namespace="", name="gold", uid="u1")
    path = "/apis/scheduling.volcano.sh/v1beta1/queues/gold"
    read = (200, {"metadata": {"uid": "u1", "resourceVersion": "7"}, "status": {}})
    written = (200, {"metadata": {"uid": "u1", "resourceVersion": "8"}, "status": {}})
    answers = [written, written, (409, {"message": "the object has been modified"})]
    api = ApiDouble({f"GET {path}": [read], f"PATCH {path}/status": answers})
    writer = ApiStatusWriter(cast(ApiClient, api), wait=lambda seconds: None)
    writer.read(gold).result(timeout=10)
    bodies = ({"state": "Open"}, {"pending": 1}, {"state": "Closed"})
    said = [writer.write(gold, body).result(timeout=10) for body in bodies]
    writer.stop()

    versions = [asked.body["metadata"].get("resourceVersion") for asked in api.asked[1:]]
    assert versions == ["7", None, "8"]
    assert said == [{}, {}, None]


def test_a_refused_status_write_reaches_the_caller() -> None:
    api = ApiDouble({f"PATCH {PATH}/status": [(401, {"message": "unauthenticated"})]})

    with pytest.raises(ApiError, match="unauthenticated"):
        write(api)


def test_each_dialect_and_kind_has_its_path() -> None:
    api = ApiDouble()
    subjects = [
        ObjectReference(kind="Queue", dialect=VOLCANO, name="left", uid="u1"),
        ObjectReference(
            kind="PodGroup", dialect=COSCHEDULING, namespace="a", name="train", uid="u1"
        ),
    ]
    paths = [
        "/apis/scheduling.volcano.sh/v1beta1/queues/left/status",
        "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/a/podgroups/train/status",
    ]
    for path in paths:
        api.answers[f"PATCH {path}"] = [stored()]

    assert write(api, *subjects) == [{}, {}]
    assert [asked.path for asked in api.asked] == paths


def test_a_status_can_be_read_but_not_that_of_another_object() -> None:
    api = ApiDouble({f"GET {PATH}": [stored(phase="Pending"), (200, {"metadata": {"uid": "u2"}})]})
    writer = ApiStatusWriter(cast(ApiClient, api), wait=lambda seconds: None)

    assert writer.read(TRAIN).result(timeout=10) == {"phase": "Pending"}
    assert writer.read(TRAIN).result(timeout=10) is None
    writer.stop()


@pytest.mark.parametrize(
    "status",
    [
        "Running",
        ["Running"],
        {"conditions": None},
        {"conditions": "none"},
        {"conditions": ["x", None, {"type": ["x"]}, {"status": "True"}]},
    ],
    ids=str,
)
def test_a_malformed_status_is_read_as_far_as_it_is_valid(
    status: object,
) -> None:
    """Without a schema in the CRD, a tenant that may write PodGroups may write any status."""
    api = ApiDouble({f"GET {PATH}": [(200, {"metadata": {"uid": "u1"}, "status": status})]})
    writer = ApiStatusWriter(cast(ApiClient, api), wait=lambda seconds: None)
    read = writer.read(TRAIN).result(timeout=10)
    writer.stop()

    assert read is not None
    assert desired.stuck_reason(read) == ""
    assert desired.content(read).main == (None,)
    wanted = desired.content({"phase": "Running", "conditions": [{"type": "Scheduled"}]})
    (condition,) = desired.dated(wanted, read, "now")["conditions"]
    assert condition["lastTransitionTime"] == "now"


def test_a_status_that_waited_for_its_turn_is_not_written_in_another_term() -> None:
    api, term = ApiDouble({f"PATCH {PATH}/status": [stored()]}), Term(lambda: 0.0)
    term.begin(until=1)

    def change_term(seconds: float) -> None:
        term.end()
        term.begin(until=1)

    writer = ApiStatusWriter(cast(ApiClient, api), wait=change_term, fencing=term)
    with pytest.raises(NotLeader):
        writer.write(TRAIN, {"phase": "Running"}).result(timeout=10)
    writer.stop()

    assert api.asked == []

"""The plan as JSON, and why a gang waits, over the operations port."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import given, strategies as st
from msgspec import structs

from extender.forecast.durations import Duration, Ground
from extender.forecast.estimate import Ending, Estimate
from extender.model.gang import GangKey
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner import policy_parser
from extender.planner.plan import GangPlacement, QueueFigures
from extender.status.history import GangHistory
from extender.web import documents
from extender.web.api import CHUNK, Api, json_chunks
from extender.web.plan_documents import PlanDocuments
from tests.builders import NOW
from tests.scene import evictions, gang, node_table, plan, snapshot, verdict

OLD, NEW = gang("old"), gang("new", 2, status=Status.PENDING, queue="right")
TRAIN = gang("train", 4, status=Status.PENDING, created=NOW - 30)
SEEN = snapshot(OLD, NEW, TRAIN, nodes=node_table([3]))
DECIDED = plan(
    verdict("a/new", Reason.ADMITTED, queue="right"),
    verdict("a/old"),
    verdict(
        "a/train",
        Reason.INSUFFICIENT_CAPACITY,
        message="needs 4 x 1 cpu; 1 slot free",
        min_member=4,
        members=4,
        share=1 / 3,
    ),
    placements={
        NEW.key: GangPlacement(
            gang=NEW.key,
            placements={NEW.pods[0].uid: "n0"},
            pipelined={NEW.pods[1].uid: "n0"},
        )
    },
    evictions=tuple(evictions(OLD, beneficiary="a/new")),
    queues={
        "left": QueueFigures(
            name="left",
            weight=2,
            deserved=Resources({"cpu": 1500, "memory": 3 << 30}),
            share=2 / 3,
            overused=True,
        )
    },
    generation=7,
)


@pytest.fixture
def history() -> GangHistory:
    kept = GangHistory()
    kept.note(SEEN, DECIDED)
    return kept


@pytest.fixture
def client(history: GangHistory) -> FlaskClient:
    app = Flask(__name__)
    app.register_blueprint(Api(history, lambda: policy_parser.DEFAULT, lambda: NOW).blueprint())
    return app.test_client()


def got(client: FlaskClient, path: str) -> Any:
    reply = client.get(f"/api/v1/{path}")
    assert reply.status_code == 200, reply.text
    return reply.json


def test_the_plan_names_pods_and_writes_amounts_as_kubernetes_does(client: FlaskClient) -> None:
    document = got(client, "plan")

    assert document["generation"] == 7
    assert document["binds"] == {"a/new-0": "n0"}
    assert document["evictions"] == [
        {"pod": f"a/old-{index}", "node": "n", "action": "reclaim", "for": "a/new"}
        for index in range(2)
    ]
    assert document["queues"] == [
        {
            "name": "left",
            "weight": 2,
            "deserved": {"cpu": "1500m", "memory": "3Gi"},
            "allocated": {},
            "own": {},
            "requested": {},
            "borrowed": {},
            "share": 0.666667,
            "overused": True,
        }
    ]
    assert document["gangs"][0]["placements"] == {"new-0": "n0"}
    assert document["gangs"][0]["pipelined"] == {"new-1": "n0"}


def test_queues_and_gangs_are_parts_of_the_plan(client: FlaskClient) -> None:
    whole = got(client, "plan")

    assert got(client, "queues") == whole["queues"]
    assert got(client, "gangs") == whole["gangs"]


def test_a_gang_shows_why_it_waits_since_when_and_what_would_help(client: FlaskClient) -> None:
    shown = got(client, "gangs/a/train")

    assert (shown["verdict"], shown["reason"]) == ("waiting", "InsufficientCapacity")
    assert shown["message"] == "needs 4 x 1 cpu; 1 slot free"
    assert (shown["since"], shown["lasted_s"]) == ("1970-01-12T13:47:50.000Z", 30.0)
    assert shown["needs"] == [
        {
            "members": 4,
            "each": {"cpu": "1"},
            "slots": 2,
            "empty_slots": 3,
            "takers": 1,
            "obstacles": {},
            "nearest": [],
        }
    ]
    assert shown["would_start_with"] == [
        "capacity for 2 more members of 1 cpu each: the cluster, empty, takes 3 of 4,"
        " and a/new gone, which is ahead"
    ]
    assert shown["queue_figures"]["name"] == "left"
    assert [line["reason"] for line in shown["history"]] == ["InsufficientCapacity"]


def test_a_deleted_gang_still_has_its_history(client: FlaskClient, history: GangHistory) -> None:
    history.note(snapshot(OLD), plan(verdict("a/old")))
    reply = client.get("/api/v1/gangs/a/train")

    assert reply.status_code == 404
    assert "there is no gang a/train" in reply.json["error"]
    assert [line["reason"] for line in reply.json["history"]] == ["InsufficientCapacity", "Gone"]


def test_before_the_first_plan_lists_are_empty_and_no_gang_is_reported_as_missing() -> None:
    app = Flask(__name__)
    app.register_blueprint(Api(GangHistory(), lambda: policy_parser.DEFAULT).blueprint())
    client = app.test_client()

    assert got(client, "plan") == {
        "generation": 0,
        "queues": [],
        "shares": [],
        "gangs": [],
        "binds": {},
        "evictions": [],
        "idle": {},
        "held": [],
        "schedulers": [],
    }
    assert got(client, "queues") == got(client, "gangs") == []
    for path in ("gangs/a/train", "pods/a/train-0"):
        reply = client.get(f"/api/v1/{path}")
        assert reply.status_code == 503
        assert reply.json == {"error": "the first plan is being made; try again in a moment"}


def test_a_gang_that_is_not_in_the_snapshot_has_uids_for_names() -> None:
    document = PlanDocuments(DECIDED, snapshot()).plan()

    assert document.gangs[0].placements == {"a-new-0": "n0"}


def test_of_thousands_of_blocking_gangs_the_last_are_listed_and_all_are_counted() -> None:
    lasting = Duration(60.0, Ground.ANNOTATION)
    endings = tuple(Ending(GangKey(f"a/g{at}"), float(at), lasting) for at in range(5000))

    estimate = Estimate(gang=GangKey("a/x"), now=0.0, at=5000.0, after=endings)
    shown = PlanDocuments(DECIDED, SEEN, estimates=lambda _: estimate).gangs()[0].estimate

    assert shown is not None
    assert [each.gang for each in shown.after] == [f"a/g{at}" for at in range(4990, 5000)]
    assert shown.after_count == 5000


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_chunks_joined_are_the_whole_document(document: object) -> None:
    assert json.loads(b"".join(json_chunks(document))) == document


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, b"{}"),
        ([], b"[]"),
        ((), b"[]"),
        ({"a": []}, b'{"a":[]}'),
        ({"a": {}}, b'{"a":{}}'),
        ({"a": iter(())}, b'{"a":[]}'),
        (3, b"3"),
        (None, b"null"),
    ],
)
def test_empty_documents_are_serialized(document: object, text: bytes) -> None:
    assert b"".join(json_chunks(document)) == text


def test_a_struct_is_serialized_in_chunks_as_in_one_piece() -> None:
    eviction = documents.Eviction(pod="x" * 1000, node="n", action="reclaim", beneficiary="a/x")
    document = structs.replace(documents.NO_PLAN, evictions=[eviction] * 200)
    written = [*json_chunks(document)]

    assert len(written) > 2
    assert b"".join(written) == msgspec.json.encode(document)


def test_items_are_serialized_lazily_and_no_chunk_is_large() -> None:
    made: list[int] = []

    def items() -> object:
        for index in range(1000):
            made.append(index)
            yield {"name": "x" * 1000, "index": index}

    written = json_chunks({"kind": "List", "items": items()})
    first = next(written)

    assert len(made) < 100
    rest = list(written)
    assert all(len(piece) < 2 * CHUNK for piece in (first, *rest))
    assert len(json.loads(b"".join((first, *rest)))["items"]) == 1000

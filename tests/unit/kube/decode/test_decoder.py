from __future__ import annotations

import json
import logging
from functools import partial
from typing import Any

import pytest

from extender.cache.changes import Delete, Kind, SeenPod, Upsert, key_of, kind_of
from extender.kube.decode import resources
from extender.kube.decode.decoder import ObjectDecoder, WatchLine
from extender.kube.decode.podgroups import RawGroup, unreadable_group
from extender.model.gang import VOLCANO, PodGroup
from extender.model.queue import Queue
from tests import objects

PODS = resources.pods(frozenset({"gang-scheduler"}))
GROUPS = resources.groups(VOLCANO)
QUEUES = resources.queues(VOLCANO)
BY_NAME = {each.name: each.decoder for each in resources.resources(frozenset())}


def line(codec: Any, verb: str, thing: dict[str, Any]) -> WatchLine:
    thing = {**thing, "metadata": {"resourceVersion": "7", **thing.get("metadata", {})}}
    read: WatchLine = codec.line(json.dumps({"type": verb, "object": thing}).encode())
    return read


def added(codec: Any, thing: dict[str, Any]) -> Any:
    """Return the item of an event that adds *thing*."""
    change = line(codec, "ADDED", thing).change
    assert isinstance(change, Upsert)
    return change.item


@pytest.mark.parametrize("verb", ["ADDED", "MODIFIED"])
def test_an_added_or_modified_object_is_an_upsert(verb: str) -> None:
    read = line(PODS, verb, objects.stored_pod("p"))

    assert (read.type, read.version) == (verb, "7")
    assert isinstance(read.change, Upsert)
    assert isinstance(read.change.item, SeenPod)
    assert read.change.item.pod.key == "a/p"


def test_a_deleted_object_is_named_by_its_key() -> None:
    group, queue = objects.pod_group("train"), objects.queue("gold")

    assert line(PODS, "DELETED", objects.stored_pod("p")).change == Delete(Kind.POD, "uid-p", "")
    assert line(GROUPS, "DELETED", group).change == Delete(Kind.GROUP, "a/train", VOLCANO)
    assert line(QUEUES, "DELETED", queue).change == Delete(Kind.QUEUE, "gold", VOLCANO)


def test_each_kind_uses_the_same_key_for_upsert_and_delete() -> None:
    thing = {"metadata": {"name": "x", "namespace": "a", "uid": "u"}}
    for codec in BY_NAME.values():
        there, gone = line(codec, "ADDED", thing).change, line(codec, "DELETED", thing).change

        assert isinstance(there, Upsert)
        assert isinstance(gone, Delete)
        assert (kind_of(there.item), key_of(there.item)) == (gone.kind, gone.key)
        assert there.dialect == gone.dialect


def test_a_bookmark_carries_only_a_version() -> None:
    for codec in BY_NAME.values():
        read = line(codec, "BOOKMARK", {"metadata": {"creationTimestamp": None}})

        assert read == WatchLine("BOOKMARK", "7")


def test_the_bookmark_that_ends_a_streamed_list_is_marked() -> None:
    for codec in BY_NAME.values():
        meta = {"annotations": {"k8s.io/initial-events-end": "true"}}

        assert line(codec, "BOOKMARK", {"metadata": meta}).is_end_of_list


def test_an_error_carries_its_status() -> None:
    status = {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}
    for codec in BY_NAME.values():
        read = line(codec, "ERROR", status)

        assert (read.type, read.code, read.change) == ("ERROR", 410, None)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"type":"ADDED"}', b'{"type":"ADDED","obj'])
def test_a_line_that_is_no_event_is_ignored(data: bytes) -> None:
    assert PODS.line(data) == WatchLine("")


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"minMember": "three"}, "spec.minMember expected int | null, got str"),
        ({"minMember": 1.5}, "spec.minMember"),
        ({"minTaskMember": [1]}, "spec.minTaskMember"),
        ({"queue": 7}, "spec.queue"),
        ({"minResources": "all"}, "spec.minResources"),
    ],
)
def test_an_unreadable_pod_group_is_kept_with_its_problem(
    spec: dict[str, Any], complaint: str
) -> None:
    group = added(GROUPS, objects.stored(objects.pod_group("train")) | {"spec": spec})

    assert isinstance(group, PodGroup)
    assert (group.key, group.uid, group.dialect) == ("a/train", "uid-train", VOLCANO)
    assert group.problem.startswith("PodGroup a/train cannot be read: ")
    assert complaint in group.problem


#: Fields beside metadata that a CRD preserves without knowing them.
BESIDE = [{}, {"code": "x"}, {"code": None}, {"code": [1]}, {"type": "ERROR"}]


@pytest.mark.parametrize("beside", BESIDE, ids=str)
def test_an_unreadable_pod_group_is_kept_whatever_unknown_fields_it_has(
    beside: dict[str, Any],
) -> None:
    odd = objects.pod_group("train", min_member="three") | beside
    read = line(GROUPS, "MODIFIED", odd)

    assert (read.type, read.version) == ("MODIFIED", "7")
    assert isinstance(read.change, Upsert)
    assert read.change.item == GROUPS.item(json.dumps(odd).encode())
    assert "spec.minMember expected int" in getattr(read.change.item, "problem", "")
    assert line(GROUPS, "DELETED", odd).change == Delete(Kind.GROUP, "a/train", VOLCANO)


def test_a_pod_group_with_invalid_annotations_keeps_its_name() -> None:
    thing = {"metadata": {"name": "train", "namespace": "a", "annotations": [1]}}

    assert key_of(added(GROUPS, thing)) == "a/train"
    assert line(GROUPS, "DELETED", thing).change == Delete(Kind.GROUP, "a/train", VOLCANO)


@pytest.mark.parametrize("verb", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize("thing", [3, None, [], {}, {"metadata": 3}, {"metadata": {"name": 3}}])
def test_an_event_of_an_object_without_a_name_carries_no_change(verb: str, thing: Any) -> None:
    for codec in BY_NAME.values():
        assert codec.line(json.dumps({"type": verb, "object": thing}).encode()) == WatchLine(verb)


@pytest.mark.parametrize("status", [{"code": "x"}, {"code": True}, {"code": 410.5}, {}, [], 3])
def test_an_error_without_a_status_is_an_error(status: Any) -> None:
    read = GROUPS.line(json.dumps({"type": "ERROR", "object": status}).encode())

    assert read == WatchLine("ERROR")


def test_an_unreadable_bookmark_is_ignored() -> None:
    """It may have been the end of a list, which the reflector waits for."""
    assert GROUPS.line(b'{"type":"BOOKMARK","object":{"metadata":3}}') == WatchLine("")


def test_an_unreadable_queue_is_kept_with_its_problem() -> None:
    queue = added(QUEUES, objects.queue("gold", weight="heavy"))

    assert isinstance(queue, Queue)
    assert "spec.weight expected int" in queue.problem


def test_an_unreadable_pod_is_kept_as_a_gang_with_its_problem() -> None:
    thing = objects.stored_pod("p")
    thing["spec"]["containers"] = "none"
    membership = added(PODS, thing).membership

    assert membership.key == "a/pod:p"
    assert "pod p cannot be read: spec.containers" in membership.problem


def test_an_unusable_object_is_skipped_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read = line(BY_NAME["nodes"], "ADDED", {"metadata": {"name": "n"}, "status": 3})

    assert (read.type, read.change) == ("ADDED", None)
    assert "an object cannot be read" in caplog.text


def test_a_bug_in_decoding_affects_one_object_only() -> None:
    def fail(raw: object) -> Any:
        raise RuntimeError("bug")

    placeholder = partial(unreadable_group, dialect=VOLCANO)
    codec = ObjectDecoder(Kind.GROUP, RawGroup, fail, placeholder=placeholder, dialect=VOLCANO)

    assert "bug" in added(codec, objects.pod_group("train")).problem


def test_many_unreadable_objects_log_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    codec = resources.groups(VOLCANO)
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            line(codec, "ADDED", objects.pod_group(f"g{number}", min_member="three"))

    assert len(caplog.records) == 1


DEEP = 9_990
#: Where an object may be nested deeply, and the brackets of the nesting.
NESTED = [
    pytest.param(place, opened, closed, id=f"{place} of {opened.decode()}")
    for place in ("spec", "metadata", "status", "beside")
    for opened, closed in ((b'{"a":', b"}"), (b"[", b"]"))
]


def nested(verb: str, place: str, opened: bytes, closed: bytes, depth: int = DEEP) -> bytes:
    """An event whose object has the fields all kinds need, and deep nesting at *place*."""
    meta = b'"name":"x","namespace":"a","uid":"u","resourceVersion":"7"'
    deep = b'"networkTopology":' + opened * depth + b"1" + closed * depth
    parts = {"metadata": meta, "spec": b"", "status": b"", "beside": b""}
    parts[place] = b",".join(filter(None, (parts[place], deep)))
    thing = b",".join(b'"%s":{%s}' % (name.encode(), text) for name, text in parts.items())
    return b'{"type":"%s","object":{%s}}' % (verb.encode(), thing)


@pytest.mark.parametrize(("place", "opened", "closed"), NESTED)
def test_an_object_of_any_kind_that_is_nested_too_deeply_is_read_and_deleted(
    place: str, opened: bytes, closed: bytes
) -> None:
    for codec in BY_NAME.values():
        there = codec.line(nested("ADDED", place, opened, closed))
        gone = codec.line(nested("DELETED", place, opened, closed))

        assert (there.type, there.version) == ("ADDED", "7")
        assert isinstance(there.change, Upsert)
        assert isinstance(gone.change, Delete)
        assert (kind_of(there.change.item), key_of(there.change.item)) == (
            gone.change.kind,
            gone.change.key,
        )
        event = json.loads(nested("ADDED", place, b"", b""))
        thing = nested("ADDED", place, opened, closed)[len('{"type":"ADDED","object":') : -1]
        assert event["object"]["metadata"]["name"] == "x"
        assert codec.item(thing) == there.change.item


def test_a_bookmark_or_an_error_that_is_nested_too_deeply_is_recognized() -> None:
    mark = nested("BOOKMARK", "beside", b"[", b"]")
    error = nested("ERROR", "beside", b"[", b"]").replace(b'"beside"', b'"code":410,"beside"')
    for codec in BY_NAME.values():
        assert codec.line(mark) == WatchLine("BOOKMARK", "7")
        assert (codec.line(error).type, codec.line(error).code) == ("ERROR", 410)


def test_a_pod_group_that_is_nested_too_deeply_keeps_its_minimum_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    codec = resources.groups(VOLCANO)
    data = nested("ADDED", "spec", b'{"a":', b"}").replace(
        b'"networkTopology"', b'"minMember":3,"networkTopology"'
    )
    read = codec.line(data)

    assert isinstance(read.change, Upsert)
    assert isinstance(read.change.item, PodGroup)
    assert read.change.item.min_member == 3
    assert "networkTopology of mode hard is not supported here" in read.change.item.problem
    assert caplog.records[-1].facts["object"] == "a/x"  # type: ignore[attr-defined]


def test_a_pod_that_is_nested_too_deeply_counts_with_its_requests() -> None:
    data = json.dumps({"type": "ADDED", "object": objects.stored_pod("p", node="n")})
    deep = '{"a":' * DEEP + "1" + "}" * DEEP
    read = PODS.line(data.replace('"spec": {', f'"spec": {{"odd": {deep}, ').encode())

    assert isinstance(read.change, Upsert)
    assert isinstance(read.change.item, SeenPod)
    assert dict(read.change.item.pod.requests) == {"cpu": 1000, "memory": 64 << 20, "pods": 1}

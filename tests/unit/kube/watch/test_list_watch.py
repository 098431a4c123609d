from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from extender.cache.changes import Delete, SeenPod, Upsert, key_of
from extender.errors import NoResponse
from extender.kube.decode import resources
from extender.kube.list_watch import ListWatch, Mode, Signal, Step, lines
from tests import objects


def new_list_watch(**rest: Any) -> ListWatch:
    return ListWatch(resources.pods(frozenset({"gang-scheduler"})), **rest)


def event_line(verb: str, version: int, name: str = "p", **thing: Any) -> bytes:
    thing = thing or objects.stored_pod(name)
    thing["metadata"] = {**thing.get("metadata", {}), "resourceVersion": str(version)}
    return json.dumps({"type": verb, "object": thing}).encode()


def end_of_list(version: int) -> bytes:
    mark = {"k8s.io/initial-events-end": "true"}
    return event_line("BOOKMARK", version, metadata={"annotations": mark})


def error(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": {"metadata": {}, "code": code}}).encode()


def page(*names: str, version: int = 5, more: str = "") -> bytes:
    meta = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return json.dumps(
        {"metadata": meta, "items": [objects.stored_pod(name) for name in names]}
    ).encode()


def begun(**rest: Any) -> ListWatch:
    """Return a list-watch that has requested its list."""
    made = new_list_watch(**rest)
    made.next_request(60)
    return made


def listed(version: int = 5) -> ListWatch:
    """Return a list-watch that has completed its list and watches now."""
    made = begun()
    made.line(end_of_list(version))
    made.next_request(60)
    return made


def test_the_first_list_is_requested_as_a_stream() -> None:
    request = new_list_watch().next_request(60)

    assert request.mode is Mode.STREAM
    assert request.query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "60",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


def test_a_streamed_list_ends_with_a_bookmark_and_continues_as_a_watch() -> None:
    made = begun()

    assert isinstance(made.line(event_line("ADDED", 2)), Upsert)
    assert not made.is_listed
    assert made.line(end_of_list(9)) is Signal.LISTED
    assert made.is_listed
    assert isinstance(made.line(event_line("DELETED", 10)), Delete)
    assert made.next_request(60).query["resourceVersion"] == "10"


@pytest.mark.parametrize("status", [400, 422])
def test_pages_are_requested_if_streaming_is_refused(status: int) -> None:
    made = begun()

    assert made.refused(status) is Step.PAGES
    request = made.next_request(60)
    assert request.mode is Mode.PAGE
    assert request.query == {"limit": "250"}


@pytest.mark.parametrize("line", [error(500), b"nonsense"], ids=["error", "nonsense"])
def test_a_streamed_list_that_fails_twice_is_requested_in_pages_until_one_completes(
    line: bytes,
) -> None:
    made = new_list_watch()
    for _ in range(2):
        assert made.next_request(60).mode is Mode.STREAM
        made.line(event_line("ADDED", 2))
        assert made.line(line) is Signal.BROKEN

    assert made.next_request(60).mode is Mode.PAGE
    made.refused(410)
    assert made.next_request(60).mode is Mode.PAGE

    list(made.page(page("x")))
    assert made.next_request(60).mode is Mode.WATCH
    made.start_over()
    assert made.next_request(60).mode is Mode.STREAM


def test_a_streamed_list_that_falls_silent_is_requested_again_as_a_stream() -> None:
    made = new_list_watch()
    for _ in range(10):
        assert made.next_request(60).mode is Mode.STREAM
        made.line(event_line("ADDED", 2))
        made.timed_out()


def test_a_complete_list_resets_the_count_of_failed_streams() -> None:
    made = new_list_watch()
    for _ in range(4):
        made.next_request(60)
        made.line(error(500))
        assert made.next_request(60).mode is Mode.STREAM
        made.line(end_of_list(5))
        made.start_over()


def test_an_object_that_cannot_be_named_does_not_end_a_streamed_list() -> None:
    made = begun()

    assert made.line(b'{"type":"ADDED","object":{"metadata":3}}') is Signal.SKIPPED
    assert isinstance(made.line(event_line("ADDED", 2)), Upsert)
    assert made.line(end_of_list(5)) is Signal.LISTED


def test_pages_follow_each_other_until_the_last() -> None:
    made = begun(streaming=False, page_size=2)
    first = list(made.page(page("x", "y", more="token")))

    assert [key_of(item) for item in first] == ["uid-x", "uid-y"]
    assert not made.is_listed
    assert made.next_page().query == {"limit": "2", "continue": "token"}

    last = list(made.page(page("z")))

    assert [key_of(item) for item in last] == ["uid-z"]
    assert made.is_listed
    assert made.next_request(60).query["resourceVersion"] == "5"


def test_a_paged_list_that_broke_off_or_expired_is_restarted() -> None:
    made = begun(streaming=False)
    list(made.page(page("x", more="token")))
    assert made.next_request(60).query == {"limit": "250"}
    list(made.page(page("x", more="token")))

    assert made.refused(410) is Step.RELIST
    assert made.next_request(60).query == {"limit": "250"}


def test_an_empty_list_is_a_list() -> None:
    made = begun(streaming=False)

    assert list(made.page(b'{"metadata":{"resourceVersion":"3"},"items":null}')) == []
    assert made.is_listed


def test_a_response_without_a_resource_version_is_not_a_list() -> None:
    made = begun(streaming=False)

    with pytest.raises(NoResponse, match="no resourceVersion"):
        list(made.page(b'{"kind":"Status","metadata":{},"status":"Success"}'))


def test_an_invalid_object_does_not_fail_its_page() -> None:
    body = json.dumps(
        {
            "metadata": {"resourceVersion": "3"},
            "items": [{"metadata": 3}, objects.stored_pod("p"), 7],
        }
    ).encode()

    (item,) = new_list_watch(streaming=False).page(body)

    assert isinstance(item, SeenPod)


def test_each_event_moves_the_resume_point_of_the_watch() -> None:
    made = listed()
    made.line(event_line("MODIFIED", 8))

    assert made.next_request(60).query["resourceVersion"] == "8"

    assert made.line(event_line("BOOKMARK", 12, metadata={})) is Signal.ALIVE
    assert made.next_request(60).query["resourceVersion"] == "12"


def test_an_expired_resource_version_is_dropped() -> None:
    made = listed()

    assert made.line(error(410)) is Signal.EXPIRED
    assert made.next_request(60).mode is Mode.STREAM


def test_other_errors_are_retried_twice_before_the_version_is_dropped() -> None:
    made = listed()
    for _ in range(2):
        assert made.line(error(500)) is Signal.BROKEN
        assert made.next_request(60).mode is Mode.WATCH

    made.line(error(500))

    assert made.next_request(60).mode is Mode.STREAM


def test_a_valid_event_resets_the_count_of_errors() -> None:
    made = listed()
    for version in range(6, 12):
        made.line(error(500))
        made.line(event_line("MODIFIED", version))

    assert made.next_request(60).mode is Mode.WATCH


def test_a_truncated_line_does_not_move_the_resume_point() -> None:
    made = listed()

    assert made.line(event_line("ADDED", 9)[:40]) is Signal.BROKEN
    assert made.next_request(60).query["resourceVersion"] == "5"


def test_an_object_that_is_skipped_moves_the_resume_point() -> None:
    made = ListWatch(resources.resources(frozenset())[0].decoder)
    made.next_request(60)
    made.line(end_of_list(5))

    assert made.line(event_line("ADDED", 9, metadata={"name": "n"}, status=3)) is Signal.SKIPPED
    assert made.next_request(60).query["resourceVersion"] == "9"


@pytest.mark.parametrize(
    ("status", "step"),
    [
        (401, Step.RENEW),
        (403, Step.RETRY),
        (404, Step.ABSENT),
        (410, Step.RELIST),
        (429, Step.RETRY),
        (500, Step.RETRY),
        (504, Step.RETRY),
    ],
)
def test_each_refusal_leads_to_its_next_request(status: int, step: Step) -> None:
    assert listed().refused(status) is step


@pytest.mark.parametrize("status", [403, 429])
def test_a_refusal_that_is_not_about_the_version_keeps_the_version(status: int) -> None:
    made = listed()
    for _ in range(10):
        made.refused(status)

    assert made.is_listed


def test_a_list_is_requested_if_the_server_cannot_serve_our_version() -> None:
    made = listed()
    for _ in range(3):
        made.refused(504)

    assert not made.is_listed


def test_a_version_from_which_no_event_ever_comes_is_dropped() -> None:
    made = listed()
    made.timed_out()
    made.timed_out()
    made.line(event_line("BOOKMARK", 6, metadata={}))
    made.timed_out()
    made.timed_out()
    assert made.is_listed

    made.timed_out()

    assert not made.is_listed


def test_a_resource_that_is_reinstalled_is_listed_again() -> None:
    made = listed()
    made.refused(404)

    assert made.next_request(60).mode is Mode.STREAM


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"o", b"n", b"e\ntw", b"o\n"], [b"one", b"two"]),
        ([b"one\ntw"], [b"one"]),
        ([b"\n\none\n", b"\n", b""], [b"one"]),
        # Many short lines are not taken for a long line.
        ([b"one\ntw", b"o\nthr", b"ee\n"] * 10, [b"one", b"two", b"three"] * 10),
    ],
)
def test_whole_lines_are_cut_at_newlines(chunks: list[bytes], expected: list[bytes]) -> None:
    assert list(lines(chunks, longest=10)) == expected


def test_an_endless_line_is_cut_and_ends_the_stream() -> None:
    consumed: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        for chunk in [b"one\nt", *[b"wo"] * 100, b"\nthree\n"]:
            consumed.append(chunk)
            yield chunk

    assert list(lines(chunks(), longest=10)) == [b"one", b"t" + b"wo" * 5]
    assert len(consumed) == 6, "nothing more is read"


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
def test_the_chunking_of_a_stream_does_not_change_its_lines(
    whole: list[bytes], data: st.DataObject
) -> None:
    text = b"".join(line + b"\n" for line in whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert list(lines(chunks)) == whole

"""h11 reads the same calls from the corpus, or there is a reason for the difference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nightly.fuzz import h11_reader
from tests.nightly.fuzz.edges.hook_port import HookStreams, Result, compare
from tests.nightly.fuzz.h11_reader import Call
from tests.unit.web.test_corpus import CORPUS, VERDICTS

#: Calls that only h11 reads, with the reason: ours refuses them, and reads nothing behind them.
REFUSED = {
    "filter-behind-a-held-bind": "kube-scheduler never pipelines calls",
    "connect": "behind a call for a tunnel there might be a tunnel",
    "upgrade-with-a-body": "the parser would take the body for the other protocol",
    "length-and-chunks": "request smuggling: two readers would see two calls",
    "chunks-and-length": "request smuggling: two readers would see two calls",
    "http-1.0-chunked": "Go sees no chunks there, and would take them for the next call",
    "http-2.0": "a version that is not ours may end a call elsewhere",
    "http-9.9": "a version that is not ours may end a call elsewhere",
    "http2": "what follows is HTTP/2, which is not spoken here",
    "line-feed-alone": "not every reader ends a line there",
    "folded": "some take the second line for a header of its own",
    "no-such-method": "the parser knows methods by name, and we only POST",
    "expect-from-a-browser": "it is turned away before it sends its body",
}
#: Calls that ours reads to the end before it refuses them, and h11 refuses at the headers.
REFUSED_LATER = {"no-host", "two-hosts"}


@pytest.fixture(scope="module")
def streams() -> Iterator[HookStreams]:
    with HookStreams() as made:
        yield made


def read(streams: HookStreams, name: str) -> tuple[Result, list[Call]]:
    """Return the result of the hook port, and the calls that h11 reads."""
    sent = (CORPUS / f"{name}.http").read_bytes()
    return streams.result_of(sent), h11_reader.calls(sent)


@pytest.mark.parametrize("name", sorted({*VERDICTS} - {*REFUSED} - REFUSED_LATER))
def test_both_readers_read_the_same_calls(streams: HookStreams, name: str) -> None:
    ours, theirs = read(streams, name)

    assert len(ours.calls) == len(theirs)
    compare(ours, theirs)


@pytest.mark.parametrize("name", REFUSED)
def test_call_that_only_h11_reads_is_refused_and_ends_the_connection(
    streams: HookStreams, name: str
) -> None:
    ours, theirs = read(streams, name)
    count = len(ours.calls)

    assert count < len(theirs)
    compare(ours, theirs)
    assert ours.end != "open"


@pytest.mark.parametrize("name", sorted(REFUSED_LATER))
def test_call_that_only_ours_reads_is_refused_and_ends_the_connection(
    streams: HookStreams, name: str
) -> None:
    ours, theirs = read(streams, name)

    assert len(ours.calls) == 1
    assert not theirs
    assert not ours.answered
    assert ours.end == "closed"


def test_h11_does_not_return_incomplete_calls() -> None:
    sent = (CORPUS / "two-in-a-row.http").read_bytes()

    seen = [len(h11_reader.calls(sent[:at])) for at in range(len(sent) + 1)]

    assert seen.index(2) == len(sent)
    assert seen == sorted(seen)

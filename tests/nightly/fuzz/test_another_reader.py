"""Every piece of the corpus as another reader reads it: the same calls, or a reason why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nightly.fuzz import another_reader
from tests.nightly.fuzz.another_reader import Call
from tests.nightly.fuzz.edges.hook_port import HookStreams, Verdict
from tests.unit.web.test_corpus import CORPUS, VERDICTS

#: What the other sees and we do not, with the reason: it is refused, and nothing behind it is read.
UNSEEN = {
    "filter-behind-a-held-bind": "nobody who may ask us asks again before the answer",
    "connect": "behind a call for a tunnel there might be a tunnel",
    "upgrade-with-a-body": "the parser would take the body for the other protocol",
    "length-and-chunks": "whoever sends both may want two readers to see two calls",
    "chunks-and-length": "whoever sends both may want two readers to see two calls",
    "http-1.0-chunked": "Go sees no chunks there, and would take them for the next call",
    "http-2.0": "a version that is not ours may end a call elsewhere",
    "http-9.9": "a version that is not ours may end a call elsewhere",
    "http2": "what follows is HTTP/2, which is not spoken here",
    "line-feed-alone": "not every reader ends a line there",
    "folded": "some take the second line for a header of its own",
    "no-such-method": "the parser knows methods by name, and we only POST",
    "expect-from-a-browser": "it is turned away before it sends its body",
}
#: What we read to its end before we refuse it, and the other refuses at its headers.
REFUSED_LATER = {"no-host", "two-hosts"}


@pytest.fixture(scope="module")
def streams() -> Iterator[HookStreams]:
    with HookStreams() as made:
        yield made


def read(streams: HookStreams, name: str) -> tuple[Verdict, list[Call]]:
    """Give our verdict and what the other reads."""
    sent = (CORPUS / f"{name}.http").read_bytes()
    return streams.verdict_of(sent)[1], another_reader.calls(sent)


def without_refused_bodies(ours: tuple[Call, ...], theirs: list[Call]) -> list[Call]:
    """Give theirs, without the bodies of which we keep the length alone, as of a refused call."""
    bodies = [body for _, _, body in ours]
    return [
        (method, target, kept if kept == b"?" * len(body) else body)
        for (method, target, body), kept in zip(theirs, bodies, strict=True)
    ]


@pytest.mark.parametrize("name", sorted({*VERDICTS} - {*UNSEEN} - REFUSED_LATER))
def test_both_read_the_same_calls(streams: HookStreams, name: str) -> None:
    ours, theirs = read(streams, name)

    assert len(ours.calls) == len(theirs)
    assert list(ours.calls) == without_refused_bodies(ours.calls, theirs)


@pytest.mark.parametrize("name", UNSEEN)
def test_what_another_reads_beyond_us_is_refused_and_nothing_behind_it_heeded(
    streams: HookStreams, name: str
) -> None:
    ours, theirs = read(streams, name)
    count = len(ours.calls)

    assert count < len(theirs)
    assert list(ours.calls) == without_refused_bodies(ours.calls, theirs[:count])
    assert ours.end != "open"


@pytest.mark.parametrize("name", sorted(REFUSED_LATER))
def test_what_only_we_read_is_not_heeded_and_ends_the_connection(
    streams: HookStreams, name: str
) -> None:
    ours, theirs = read(streams, name)

    assert len(ours.calls) == 1
    assert not theirs
    assert not ours.asked
    assert ours.end == "closed"


def test_the_other_does_not_see_a_call_that_has_not_come_whole() -> None:
    sent = (CORPUS / "two-in-a-row.http").read_bytes()

    seen = [len(another_reader.calls(sent[:at])) for at in range(len(sent) + 1)]

    assert seen.index(2) == len(sent)
    assert seen == sorted(seen)

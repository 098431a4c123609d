"""Requests of the hook port byte for byte, with the same result however they are split.

`corpus/*.http` is sent whole, byte by byte, and in two pieces split at every byte. The verdict is
the same each time: the statuses answered, the hooks that were called, and whether the connection
stays open, is closed after its answer, or is cut off.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from extender.hooks.handlers import HookAnswer
from extender.hooks.http_connection import HttpConnection
from extender.hooks.server import LIMITS, HookServer
from extender.metrics import Metrics

CORPUS = Path(__file__).with_name("corpus")
BODY = b'{"a":1}'
#: Refusals are not delayed here.
AT_ONCE = replace(LIMITS, refusal_delay_s=0.0)

OPEN, CLOSED, ABORTED = "open", "closed", "cut off"


class Verdict(NamedTuple):
    statuses: list[int]
    calls: list[str]
    end: str


#: Go's net/http (1.27), given the whole file, has the same verdict except where a comment says
#: otherwise and where its handler decides: paths, methods, origins. The comparison with Go was made
#: once by hand; the automatic comparison is with h11 (`test_h11_reader.py`).
VERDICTS = {
    "plain": Verdict([200], ["filter"], OPEN),
    "query-and-prefix": Verdict([200], ["filter"], OPEN),
    "chunked": Verdict([200], ["filter"], OPEN),
    "chunk-extensions-and-trailers": Verdict([200], ["filter"], OPEN),
    "two-in-a-row": Verdict([200, 200], ["filter", "prioritize"], OPEN),
    # Go answers in order; kube-scheduler never pipelines, and the first response may take long.
    "filter-behind-a-held-bind": Verdict([], ["bind"], ABORTED),
    "half-a-filter-behind-a-held-bind": Verdict([], ["bind"], ABORTED),
    "blank-lines-behind-a-held-bind": Verdict([], ["bind"], OPEN),
    # Go refuses these lines.
    "blank-lines-first": Verdict([200], ["filter"], OPEN),
    # Go ignores this, reads on and keeps the connection.
    "upgrade-with-a-body": Verdict([400], [], CLOSED),
    "upgrade-without-a-body": Verdict([405], [], CLOSED),
    "upgrade-and-the-other-protocol": Verdict([405], [], CLOSED),
    "connect": Verdict([404], [], CLOSED),
    # Go leaves this to its handler.
    "http2": Verdict([400], [], CLOSED),
    # Go uses the chunks; a request with both may try to smuggle a second call.
    "length-and-chunks": Verdict([400], [], CLOSED),
    "chunks-and-length": Verdict([400], [], CLOSED),
    "two-lengths": Verdict([400], [], CLOSED),
    "length-with-a-sign": Verdict([400], [], CLOSED),
    "length-below-nothing": Verdict([400], [], CLOSED),
    "length-beyond-counting": Verdict([400], [], CLOSED),
    "chunk-size-nonsense": Verdict([400], [], CLOSED),
    "chunk-size-beyond-counting": Verdict([400], [], CLOSED),
    "chunk-longer-than-it-says": Verdict([400], [], CLOSED),
    # Go answers 501.
    "chunked-is-not-the-last": Verdict([400], [], CLOSED),
    # Go answers 501 to both.
    "gzip-and-chunked": Verdict([400], [], CLOSED),
    "identity-and-chunked": Verdict([400], [], CLOSED),
    # Go does not decode chunks in HTTP/1.0, and parses them as the next call.
    "http-1.0-chunked": Verdict([400], [], CLOSED),
    "space-before-the-colon": Verdict([400], [], CLOSED),
    "nothing-before-the-colon": Verdict([400], [], CLOSED),
    "zero-byte": Verdict([400], [], CLOSED),
    # Go accepts this line ending.
    "line-feed-alone": Verdict([400], [], CLOSED),
    "carriage-return-alone": Verdict([400], [], CLOSED),
    # Go joins them.
    "folded": Verdict([400], [], CLOSED),
    "no-host": Verdict([400], [], CLOSED),
    "two-hosts": Verdict([400], [], CLOSED),
    # Our own choice: an error that kube-scheduler shows.
    "foreign-host": Verdict([200], [], CLOSED),
    # Go looks at the path alone; kube-scheduler sends nothing else.
    "whole-address": Verdict([404], [], CLOSED),
    "http-1.0": Verdict([200], ["filter"], CLOSED),
    "http-1.0-keep-alive": Verdict([200], ["filter"], OPEN),
    "no-version": Verdict([400], [], CLOSED),
    # Go answers 505 to both.
    "http-2.0": Verdict([400], [], CLOSED),
    "http-9.9": Verdict([400], [], CLOSED),
    "closed-and-more": Verdict([200], ["filter"], CLOSED),
    "expect": Verdict([100, 200], ["filter"], OPEN),
    "expect-twice": Verdict([100, 200], ["filter"], OPEN),
    "expect-from-a-browser": Verdict([403], [], CLOSED),
    "browser": Verdict([403], [], CLOSED),
    "browser-same-site": Verdict([403], [], CLOSED),
    "form": Verdict([415], [], CLOSED),
    "no-media-type": Verdict([415], [], CLOSED),
    "media-type-with-a-parameter": Verdict([200], ["filter"], OPEN),
    "get": Verdict([405], [], CLOSED),
    "no-such-method": Verdict([400], [], CLOSED),
    "no-such-hook": Verdict([404], [], CLOSED),
    # Go waits for the end of the line.
    "tls": Verdict([400], [], CLOSED),
    "nonsense": Verdict([400], [], CLOSED),
    "unfinished-head": Verdict([], [], OPEN),
    "unfinished-body": Verdict([], [], OPEN),
}


class RecordingHooks:
    """Replaces the hooks and records calls; every bind waits for ever."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.leaders: list[str] = []

    def answer(self, verb: str, body: bytes) -> HookAnswer:
        assert body == BODY
        self.calls.append(verb)
        return HookAnswer(b"{}")

    def bind(self, body: bytes, _: object) -> int:
        assert body == BODY
        self.calls.append("bind")
        return 1

    def standby(self) -> list[str]:
        return self.leaders


class TransportDouble:
    """Replaces the transport of a connection."""

    def __init__(self) -> None:
        self.sent = b""
        self.end = OPEN

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 8888)

    def write(self, data: bytes) -> None:
        assert self.end == OPEN
        self.sent += data

    def close(self) -> None:
        self.end = CLOSED

    def abort(self) -> None:
        self.end = ABORTED


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def verdict_on(
    loop: asyncio.AbstractEventLoop, *pieces: bytes, leaders: Sequence[str] = ()
) -> Verdict:
    hooks, transport = RecordingHooks(), TransportDouble()
    hooks.leaders.extend(leaders)
    port = HookServer(hooks, METRICS, loop, limits=AT_ONCE)  # type: ignore[arg-type]
    connection = HttpConnection(port)
    connection.connection_made(transport)  # type: ignore[arg-type]
    for piece in pieces:
        if transport.end == OPEN:
            connection.data_received(piece)
    statuses = [int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", transport.sent)]
    return Verdict(statuses, hooks.calls, transport.end)


METRICS = Metrics()


def test_every_file_of_the_corpus_has_a_verdict() -> None:
    assert {each.stem for each in CORPUS.glob("*.http")} == set(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_does_not_depend_on_how_the_bytes_are_split(
    loop: asyncio.AbstractEventLoop, name: str
) -> None:
    sent = (CORPUS / f"{name}.http").read_bytes()

    assert verdict_on(loop, sent) == VERDICTS[name], "whole"
    assert verdict_on(loop, *(sent[at : at + 1] for at in range(len(sent)))) == VERDICTS[name]
    for at in range(1, len(sent)):
        assert verdict_on(loop, sent[:at], sent[at:]) == VERDICTS[name], f"cut at {at}"


def test_after_the_last_answer_of_a_standby_nothing_more_is_done(
    loop: asyncio.AbstractEventLoop,
) -> None:
    sent = (CORPUS / "plain.http").read_bytes()
    bind = sent.replace(b"/filter", b"/bind")

    assert verdict_on(loop, sent + bind, leaders=["another leads"]) == Verdict(
        [200], ["filter"], CLOSED
    )

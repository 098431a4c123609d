"""What comes in on the hook port, byte for byte, and what becomes of it however it is cut up.

`corpus/*.http` is sent whole, byte by byte, and in two pieces cut at every place. The verdict is
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
from extender.hooks.server import LIMITS, HookConnection, HookServer
from extender.metrics import Metrics

CORPUS = Path(__file__).with_name("corpus")
BODY = b'{"a":1}'
#: A verdict does not wait for a breath.
AT_ONCE = replace(LIMITS, refusal_delay_s=0.0)

OPEN, CLOSED, CUT_OFF = "open", "closed", "cut off"


class Verdict(NamedTuple):
    statuses: list[int]
    calls: list[str]
    end: str


#: Go's server, kube-scheduler's kin, says the same (sent whole, to net/http of Go 1.27) but where a
#: note says otherwise, and where its handler would have to say it: paths, methods, who asks. What
#: is said of Go was tried once by hand, and nothing in this tree tries it again; what all of this
#: is compared with each time is h11 (`test_another_reader.py`).
VERDICTS = {
    "plain": Verdict([200], ["filter"], OPEN),
    "query-and-prefix": Verdict([200], ["filter"], OPEN),
    "chunked": Verdict([200], ["filter"], OPEN),
    "chunk-extensions-and-trailers": Verdict([200], ["filter"], OPEN),
    "two-in-a-row": Verdict([200, 200], ["filter", "prioritize"], OPEN),
    # Go answers one after the other; nobody who may ask us does this, and the first may take long.
    "filter-behind-a-held-bind": Verdict([], ["bind"], CUT_OFF),
    "half-a-filter-behind-a-held-bind": Verdict([], ["bind"], CUT_OFF),
    "blank-lines-behind-a-held-bind": Verdict([], ["bind"], OPEN),
    # Go refuses these lines.
    "blank-lines-first": Verdict([200], ["filter"], OPEN),
    # Go heeds no such wish, reads on and keeps the connection.
    "upgrade-with-a-body": Verdict([400], [], CLOSED),
    "upgrade-without-a-body": Verdict([405], [], CLOSED),
    "upgrade-and-the-other-protocol": Verdict([405], [], CLOSED),
    "connect": Verdict([404], [], CLOSED),
    # Go leaves this to its handler.
    "http2": Verdict([400], [], CLOSED),
    # Go takes the chunks; whoever sends both may want two readers to see two calls.
    "length-and-chunks": Verdict([400], [], CLOSED),
    "chunks-and-length": Verdict([400], [], CLOSED),
    "two-lengths": Verdict([400], [], CLOSED),
    "length-with-a-sign": Verdict([400], [], CLOSED),
    "length-below-nothing": Verdict([400], [], CLOSED),
    "length-beyond-counting": Verdict([400], [], CLOSED),
    "chunk-size-nonsense": Verdict([400], [], CLOSED),
    "chunk-size-beyond-counting": Verdict([400], [], CLOSED),
    "chunk-longer-than-it-says": Verdict([400], [], CLOSED),
    # Go says 501.
    "chunked-is-not-the-last": Verdict([400], [], CLOSED),
    # Go says 501 to either.
    "gzip-and-chunked": Verdict([400], [], CLOSED),
    "identity-and-chunked": Verdict([400], [], CLOSED),
    # Go sees no chunks in HTTP/1.0, and takes them for the next call.
    "http-1.0-chunked": Verdict([400], [], CLOSED),
    "space-before-the-colon": Verdict([400], [], CLOSED),
    "nothing-before-the-colon": Verdict([400], [], CLOSED),
    "zero-byte": Verdict([400], [], CLOSED),
    # Go reads lines that end so.
    "line-feed-alone": Verdict([400], [], CLOSED),
    "carriage-return-alone": Verdict([400], [], CLOSED),
    # Go joins them.
    "folded": Verdict([400], [], CLOSED),
    "no-host": Verdict([400], [], CLOSED),
    "two-hosts": Verdict([400], [], CLOSED),
    # Ours: an error that kube-scheduler shows.
    "foreign-host": Verdict([200], [], CLOSED),
    # Go looks at the path alone; kube-scheduler sends nothing else.
    "whole-address": Verdict([404], [], CLOSED),
    "http-1.0": Verdict([200], ["filter"], CLOSED),
    "http-1.0-keep-alive": Verdict([200], ["filter"], OPEN),
    "no-version": Verdict([400], [], CLOSED),
    # Go says 505 to either.
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


class Heard:
    """In place of the hooks: every bind waits for ever."""

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


class Line:
    """In place of a transport."""

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
        self.end = CUT_OFF


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def judged(loop: asyncio.AbstractEventLoop, *pieces: bytes, leaders: Sequence[str] = ()) -> Verdict:
    heard, line = Heard(), Line()
    heard.leaders.extend(leaders)
    port = HookServer(heard, METRICS, loop, limits=AT_ONCE)  # type: ignore[arg-type]
    connection = HookConnection(port)
    connection.connection_made(line)  # type: ignore[arg-type]
    for piece in pieces:
        if line.end == OPEN:
            connection.data_received(piece)
    statuses = [int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", line.sent)]
    return Verdict(statuses, heard.calls, line.end)


METRICS = Metrics()


def test_every_file_of_the_corpus_has_a_verdict() -> None:
    assert {each.stem for each in CORPUS.glob("*.http")} == set(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_does_not_depend_on_how_the_bytes_are_split(
    loop: asyncio.AbstractEventLoop, name: str
) -> None:
    sent = (CORPUS / f"{name}.http").read_bytes()

    assert judged(loop, sent) == VERDICTS[name], "whole"
    assert judged(loop, *(sent[at : at + 1] for at in range(len(sent)))) == VERDICTS[name]
    for at in range(1, len(sent)):
        assert judged(loop, sent[:at], sent[at:]) == VERDICTS[name], f"cut at {at}"


def test_after_the_last_answer_of_a_standby_nothing_more_is_done(
    loop: asyncio.AbstractEventLoop,
) -> None:
    sent = (CORPUS / "plain.http").read_bytes()
    bind = sent.replace(b"/filter", b"/bind")

    assert judged(loop, sent + bind, leaders=["another leads"]) == Verdict(
        [200], ["filter"], CLOSED
    )

"""HTTP on the hook port: the result does not depend on packets, and another parser agrees."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

import h11

from extender.hooks.handlers import HookAnswer
from extender.hooks.http_connection import _MOST_CALLS, HttpConnection
from extender.hooks.server import LIMITS, HookServer
from extender.metrics import Metrics
from tests.nightly.fuzz import h11_reader
from tests.nightly.fuzz.edge import Edge, must, must_be_text

CORPUS = Path(__file__).parents[3] / "unit" / "web" / "corpus"
#: A call of kube-scheduler.
GOOD = (CORPUS / "plain.http").read_bytes()
#: Refusals without a delay. Buffers for two inputs: bytes that were not released would soon end a
#: connection.
AT_ONCE = replace(LIMITS, refusal_delay_s=0.0, bodies=24_000)
OPEN, CLOSED, CUT_OFF = "open", "closed", "cut off"

_METHODS = (b"POST", b"GET", b"HEAD", b"PUT", b"CONNECT", b"OPTIONS", b"post", b"PRI", b"")
_PATHS = (b"/filter", b"/prioritize", b"/preempt", b"/bind", b"/v1/filter", b"/nobody", b"*",
          b"/%2e", b"/\x9b", b"/filter?x=y", b"http://localhost/filter", b"")  # fmt: skip
_VERSIONS = (b"HTTP/1.1",) * 6 + (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1 ", b"")
_ENDS = (b"\r\n",) * 8 + (b"\n", b"\r", b"\r\r\n")
_HEADERS = (
    b"Host: localhost", b"Host: 127.0.0.1:8888", b"Host: evil.example", b"Host:", b"host: [::1]:1",
    b"Content-Type: application/json", b"Content-Type: text/plain",
    b"content-type:application/json; charset=utf-8", b"Origin: http://x", b"Sec-Fetch-Mode: cors",
    b"Connection: close", b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c",
    b"Expect: 100-continue", b"Expect: 200-ok", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding : chunked", b"Transfer-Encoding: \x0bchunked", b"Content-Length: +7",
    b"Content-Length: 7, 7", b"Content-Length: 0x7", b"Content-Length: 99999999999999999999",
    b"X: " + b"y" * 3000, b" folded", b": nothing", b"X\x00: y", b"Authorization: Basic eDp5",
)  # fmt: skip
_BODIES = (b"", b"{}", b'{"a":1}', b"x" * 300)


class Result(NamedTuple):
    """The effects of a stream."""

    #: Methods, paths and sizes of the bodies of complete calls.
    calls: tuple[tuple[bytes, bytes, int], ...]
    #: Verbs and bodies that reached the hooks.
    answered: tuple[tuple[str, bytes], ...]
    statuses: tuple[int, ...]
    end: str


class FakeTransport:
    """Replaces a transport."""

    def __init__(self) -> None:
        self.sent = b""
        self.end = OPEN

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 8888)

    def write(self, data: bytes | memoryview) -> None:
        must(self.end == OPEN, "bytes are written after the end")
        self.sent += bytes(data)

    def close(self) -> None:
        self.end = CLOSED if self.end == OPEN else self.end

    def abort(self) -> None:
        self.end = CUT_OFF

    def pause_reading(self) -> None:
        """No input is large enough."""

    resume_reading = pause_reading


class _FakeHooks:
    """Replaces the hooks: no bind is ever answered."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.gone = 0

    def answer(self, verb: str, body: bytes) -> HookAnswer:
        self.calls.append((verb, body))
        return HookAnswer(b"{}")

    def bind(self, body: bytes, answer: object) -> int:
        self.calls.append(("bind", body))
        return 1

    def peer_gone(self, call: int) -> None:
        self.gone += 1

    def standby(self) -> list[str]:
        return []


class HookStreams(Edge):
    """Input: the bytes of one connection."""

    name = "hook-port"
    count = 1200
    suffix = ".http"
    longest = 12_000
    words = (*_HEADERS, *_METHODS[:-1], *_PATHS[:-1], b"\r\n", b"\r\n\r\n", b"\n", b"0\r\n\r\n",
             b"7\r\n", b"fffffffffffffffff\r\n", b"7;x=y\r\n", b"\x16\x03\x01", GOOD)  # fmt: skip

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._hooks: Any = _FakeHooks()
        self._port = _RecordingServer(self._hooks, Metrics(), self._loop, limits=AT_ONCE)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.close()

    def real(self) -> list[bytes]:
        return [each.read_bytes() for each in sorted(CORPUS.glob("*.http"))]

    def made(self, rng: Random) -> bytes:
        return b"".join(_message(rng) for _ in range(rng.choice((1, 1, 2, 3))))

    def judge(self, data: bytes) -> None:
        result = self.result_of(data)
        for pieces in cuts(data):
            must(self.result_of(*pieces) == result, "the result differs when the input is cut")
        compare(result, h11_reader.calls(data))
        must(self.result_of(GOOD).statuses == (200,), "the next good call is not answered")

    def result_of(self, *pieces: bytes) -> Result:
        transport = FakeTransport()
        self._hooks.calls, self._hooks.gone, self._port.calls = [], 0, []
        connection = HttpConnection(self._port)
        connection.connection_made(transport)  # type: ignore[arg-type]
        try:
            for piece in pieces:
                if transport.end == OPEN:
                    connection.data_received(piece)
            end = transport.end
            must_be_answers(transport.sent)
        finally:
            connection.connection_lost(None)
        is_counted = connection in self._port.connections
        self._port.connections.discard(connection)  # not to fail for the next input, too
        must(not is_counted, "a lost connection is still counted")
        answered = tuple(self._hooks.calls)
        binds = sum(verb == "bind" for verb, _ in answered)
        must(self._hooks.gone == binds <= 1, "the bind of a disconnected caller still waits")
        statuses = tuple(int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", transport.sent))
        return Result(tuple(self._port.calls), answered, statuses, end)


class _RecordingServer(HookServer):
    """Records complete calls."""

    calls: list[tuple[bytes, bytes, int]]

    def handle(self, call: HttpConnection) -> None:
        self.calls.append((call.method, call.url, call.size))
        super().handle(call)


def compare(result: Result, theirs: list[h11_reader.Call]) -> None:
    """Object to a call that another parser reads differently, or not at all.

    It may read more calls: the extender refuses some valid ones, and closes the connection.
    """
    answered = len(result.answered)
    must(len(result.calls) <= answered + 1, "bytes after a refused call are read")
    must(answered <= len(theirs), "a call is answered that another parser does not see")
    for ours, other in zip(result.calls, theirs, strict=False):
        must(ours == (*other[:2], len(other[2])), "another parser reads another call")
    for (_, body), other in zip(result.answered, theirs, strict=False):
        must(body == other[2], "another parser reads another body")


def must_be_answers(sent: bytes) -> None:
    """Object unless all sent bytes are HTTP answers, without control characters."""
    left = sent.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    while left:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(left)
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            must(event is not h11.NEED_DATA, "an answer is incomplete")
            if isinstance(event, h11.Data):
                must_be_text(bytes(event.data).decode(), "an answer")
        left = reader.trailing_data[0]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield the same bytes in pieces: one by one, and in two, cut at some places.

    Not with many calls: the number of calls in one piece is limited.
    """
    if data.count(b"HTTP/") > _MOST_CALLS:
        return
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data), max(1, len(data) // 12)):
        yield [data[:at], data[at:]]


def _message(rng: Random) -> bytes:
    body, end = rng.choice(_BODIES), rng.choice(_ENDS)
    headers = [*_HEADERS[:1], *_HEADERS[5:6]] if rng.random() < 0.8 else []
    headers += rng.choices(_HEADERS, k=rng.choice((0, 0, 1, 1, 2, 4)))
    if rng.random() < 0.5:
        headers.append(f"Content-Length: {len(body) + rng.choice((0, 0, 0, 1, -1))}".encode())
    else:
        headers.append(b"Transfer-Encoding: chunked")
        body = _chunked(body, rng)
    rng.shuffle(headers)
    usual = rng.random() < 0.8
    line = b" ".join((
        _METHODS[0] if usual else rng.choice(_METHODS),
        rng.choice(_PATHS[:4]) if usual else rng.choice(_PATHS),
        rng.choice(_VERSIONS),
    ))  # fmt: skip
    return end.join((line, *headers, b"", b"")) + body


def _chunked(body: bytes, rng: Random) -> bytes:
    if not body:
        return b"0\r\n\r\n"
    at = rng.randrange(len(body))
    pieces = [each for each in (body[:at], body[at:]) if each]
    extension = rng.choice((b"", b"", b";x=y", b" ", b";" + b"z" * 200))
    chunks = [f"{len(each):x}".encode() + extension + b"\r\n" + each + b"\r\n" for each in pieces]
    return b"".join(chunks) + b"0\r\n" + rng.choice((b"", b"", b"X: y\r\n")) + b"\r\n"

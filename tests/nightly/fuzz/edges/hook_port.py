"""HTTP on the hook port: one verdict however bytes are cut, and the one other readers have."""

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
#: As kube-scheduler asks, on a connection of its own.
GOOD = (CORPUS / "plain.http").read_bytes()
#: A verdict does not wait for a breath.
AT_ONCE = replace(LIMITS, refusal_delay_s=0.0)
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


class Verdict(NamedTuple):
    """What became of a stream."""

    #: Methods, paths and bodies that came in whole.
    calls: tuple[tuple[bytes, bytes, bytes], ...]
    asked: tuple[tuple[str, bytes], ...]
    statuses: tuple[int, ...]
    end: str


class Line:
    """In place of a transport."""

    def __init__(self) -> None:
        self.sent = b""
        self.end = OPEN

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 8888)

    def write(self, data: bytes | memoryview) -> None:
        must(self.end == OPEN, "something is written after the end")
        self.sent += bytes(data)

    def close(self) -> None:
        self.end = CLOSED if self.end == OPEN else self.end

    def abort(self) -> None:
        self.end = CUT_OFF

    def pause_reading(self) -> None:
        """Nobody here is slow."""

    resume_reading = pause_reading


class _Heard:
    """In place of the hooks: every bind waits for ever."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.gone = 0

    def answer(self, verb: str, body: bytes) -> HookAnswer:
        self.asked.append((verb, body))
        return HookAnswer(b"{}")

    def bind(self, body: bytes, answer: object) -> int:
        self.asked.append(("bind", body))
        return 1

    def peer_gone(self, call: int) -> None:
        self.gone += 1

    def standby(self) -> list[str]:
        return []


class HookStreams(Edge):
    """Input: all that comes on one connection."""

    name = "hook-port"
    count = 1200
    suffix = ".http"
    longest = 12_000
    words = (*_HEADERS, *_METHODS[:-1], *_PATHS[:-1], b"\r\n", b"\r\n\r\n", b"\n", b"0\r\n\r\n",
             b"7\r\n", b"fffffffffffffffff\r\n", b"7;x=y\r\n", b"\x16\x03\x01", GOOD)  # fmt: skip

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._metrics = Metrics()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.close()

    def real(self) -> list[bytes]:
        return [each.read_bytes() for each in sorted(CORPUS.glob("*.http"))]

    def made(self, chance: Random) -> bytes:
        return b"".join(_message(chance) for _ in range(chance.choice((1, 1, 2, 3))))

    def judge(self, data: bytes) -> None:
        port, verdict = self.verdict_of(data)
        must(not port.connections, "a connection that is lost is still counted")
        must(port._buffered == 0, "what was kept of a body is never given back")
        for pieces in cuts(data):
            must(self.verdict_of(*pieces)[1] == verdict, "the verdict is another when it is cut")
        _compare(verdict, h11_reader.calls(data))
        must(self.verdict_of(GOOD)[1].statuses == (200,), "the next good call is not answered")

    def verdict_of(self, *pieces: bytes) -> tuple[HookServer, Verdict]:
        heard, line = _Heard(), Line()
        port = _Recording(heard, self._metrics, self._loop, limits=AT_ONCE)  # type: ignore[arg-type]
        connection = HttpConnection(port)
        connection.connection_made(line)  # type: ignore[arg-type]
        for piece in pieces:
            if line.end == OPEN:
                connection.data_received(piece)
        end = line.end
        must_be_answers(line.sent)
        connection.connection_lost(None)
        binds = sum(verb == "bind" for verb, _ in heard.asked)
        must(heard.gone == binds <= 1, "a bind is held for somebody who has left")
        statuses = tuple(int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", line.sent))
        return port, Verdict(tuple(port.calls), tuple(heard.asked), statuses, end)


class _Recording(HookServer):
    """Notes what came in whole."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[tuple[bytes, bytes, bytes]] = []

    def handle(self, call: HttpConnection) -> None:
        is_kept = call.refusal is None and call.size <= self.limits.body
        body = bytes(call._body) if is_kept else b"?" * call.size
        self.calls.append((call.method, call.url, body))
        super().handle(call)


def _compare(verdict: Verdict, theirs: list[h11_reader.Call]) -> None:
    """Object to a call that another reader sees otherwise, or not at all.

    It may see more: we refuse what it need not, and end there.
    """
    heeded = len(verdict.asked)
    must(len(verdict.calls) <= heeded + 1, "something is read behind a call that was refused")
    must(heeded <= len(theirs), "a call is heeded that another reader does not see")
    for ours, other in zip(verdict.calls, theirs, strict=False):
        # Of a call that is refused only the length of the body is known.
        same = ours == other or ours == (*other[:2], b"?" * len(other[2]))
        must(same, "another reader reads another call")


def must_be_answers(sent: bytes) -> None:
    """Object unless all that was sent is HTTP to its last byte, and its text steers nothing."""
    left = sent.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    while left:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(left)
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            must(event is not h11.NEED_DATA, "an answer breaks off")
            if isinstance(event, h11.Data):
                must_be_text(bytes(event.data).decode(), "an answer")
        left = reader.trailing_data[0]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Give the same bytes in pieces: one by one, and in two, cut at some places.

    But for a crowd of calls: how many may come in one piece is bounded.
    """
    if data.count(b"HTTP/") > _MOST_CALLS:
        return
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data), max(1, len(data) // 12)):
        yield [data[:at], data[at:]]


def _message(chance: Random) -> bytes:
    body, end = chance.choice(_BODIES), chance.choice(_ENDS)
    headers = [*_HEADERS[:1], *_HEADERS[5:6]] if chance.random() < 0.8 else []
    headers += chance.choices(_HEADERS, k=chance.choice((0, 0, 1, 1, 2, 4)))
    if chance.random() < 0.5:
        headers.append(f"Content-Length: {len(body) + chance.choice((0, 0, 0, 1, -1))}".encode())
    else:
        headers.append(b"Transfer-Encoding: chunked")
        body = _chunked(body, chance)
    chance.shuffle(headers)
    usual = chance.random() < 0.8
    line = b" ".join((
        _METHODS[0] if usual else chance.choice(_METHODS),
        chance.choice(_PATHS[:4]) if usual else chance.choice(_PATHS),
        chance.choice(_VERSIONS),
    ))  # fmt: skip
    return end.join((line, *headers, b"", b"")) + body


def _chunked(body: bytes, chance: Random) -> bytes:
    if not body:
        return b"0\r\n\r\n"
    at = chance.randrange(len(body))
    pieces = [each for each in (body[:at], body[at:]) if each]
    extension = chance.choice((b"", b"", b";x=y", b" ", b";" + b"z" * 200))
    chunks = [f"{len(each):x}".encode() + extension + b"\r\n" + each + b"\r\n" for each in pieces]
    return b"".join(chunks) + b"0\r\n" + chance.choice((b"", b"", b"X: y\r\n")) + b"\r\n"

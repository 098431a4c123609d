"""HTTP on the operations port: pages for whoever asks, one verdict however bytes are cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, Self

from extender.hooks.http_connection import HttpConnection
from extender.web.page_worker import PageRequest, PageWorker
from extender.web.server import LIMITS, OperationsServer
from tests.nightly.fuzz.edge import Edge, must
from tests.nightly.fuzz.edges.hook_port import CORPUS, OPEN, Line, cuts, must_be_answers
from tests.unit.web.conftest import World

_PATHS = (b"/", b"/healthz", b"/readyz", b"/warmz", b"/metrics", b"/api/v1/plan", b"/api/v1/gangs",
          b"/api/v1/gangs/a/train", b"/api/v1/pods/a/p", b"/api/v1/queues", b"/api/v1/snapshot",
          b"/api/v1/findings", b"/gangs", b"/gangs/a/train", b"/gangs?find=x&sort=-age&page=2",
          b"/?resource=cpu", b"/assets/x/live.js", b"/nodes?sort=free", b"/holds",
          b"/evictions", b"/policy", b"/health", b"/filter", b"/bind",
          b"/whatif?name=x&members=3&cpu=1&with=queue/x.weight=5&without=node/n7")  # fmt: skip
_ODD = (b"", b"/", b"//", b"%00", b"%9b", b"%ff", b"%1b[2J", b"\x9b", b"..", b"%2e%2e%2f", b"?x=y",
        b"#x", b"%", b"%zz", b"<b>", b"%E2%80%AE", b"x" * 3000)  # fmt: skip
_HEADERS = (b"Host: x", b"Connection: close", b"Expect: 100-continue", b"Upgrade: websocket",
            b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Range: bytes=0-9",
            b"Accept-Encoding: gzip", b"Origin: http://x", b"X: " + b"y" * 2000)  # fmt: skip
GOOD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
#: A verdict waits for no breath and no pace.
AT_ONCE = replace(LIMITS, refusal_delay_s=0.0, response_pause_s=0.0)


class Verdict(NamedTuple):
    """What became of a stream."""

    statuses: tuple[int, ...]
    end: str


class PageStreams(Edge):
    """Input: all that comes on one connection."""

    name = "page-port"
    count = 300
    suffix = ".http"
    longest = 8000
    words = (*_PATHS, *_ODD, *_HEADERS, b"HEAD", b"GET", b"POST", b"DELETE", b"\r\n\r\n", GOOD)

    def __enter__(self) -> Self:
        self._world = World().__enter__()
        # Everything in one thread.
        self._port = OperationsServer(self._world.runtime.pages, limits=AT_ONCE)
        self._own_loop = self._port.loop
        self._waiting = _Waiting(PageWorker(self._world.runtime.pages.wsgi_app))
        self._port.loop = self._port.page_worker = self._waiting  # type: ignore[assignment]
        return self

    def __exit__(self, *error: object) -> None:
        self._own_loop.close()
        self._world.__exit__(*error)

    def real(self) -> list[bytes]:
        asked = [b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n" for path in _PATHS]
        return asked + [each.read_bytes() for each in sorted(CORPUS.glob("*.http"))]

    def made(self, chance: Random) -> bytes:
        asked = []
        for _ in range(chance.choice((1, 1, 2))):
            method = chance.choice((b"GET",) * 5 + (b"HEAD", b"POST", b"PUT", b"OPTIONS"))
            path = chance.choice(_PATHS) + chance.choice(_ODD) * chance.choice((1, 1, 1, 50))
            headers = chance.sample(_HEADERS, k=chance.randrange(4))
            line = b" ".join((method, path, b"HTTP/1.1"))
            body = chance.choice((b"", b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n"))
            asked.append(b"\r\n".join((line, *headers, b"", b"")) + body)
        return b"".join(asked)

    def judge(self, data: bytes) -> None:
        for is_slow in (False, True):
            verdict = self.verdict_of(data, is_slow=is_slow)
            must(500 not in verdict.statuses, "a page fails")
            for pieces in cuts(data):
                other = self.verdict_of(*pieces, is_slow=is_slow)
                must(other == verdict, "the verdict is another when it is cut")
        must(self.verdict_of(GOOD).statuses == (200,), "the next good question is not answered")
        must(not self._port.connections, "a connection that is lost is still counted")
        must(self._port._buffered == 0, "what was kept of a body is never given back")

    def verdict_of(self, *pieces: bytes, is_slow: bool = False) -> Verdict:
        """Send, to a desk that writes at once or one that is *slow*."""
        line, self._waiting.is_slow = Line(), is_slow
        connection = HttpConnection(self._port)
        connection.connection_made(line)  # type: ignore[arg-type]
        try:
            for piece in pieces:
                if line.end == OPEN:
                    connection.data_received(piece)
            self._waiting.work_off()
            end = line.end
            is_bare = any(word in b"".join(pieces) for word in (b"HEAD", b"100-continue"))
            if not is_bare:
                must_be_answers(line.sent)
        finally:  # what is objected to here is nothing that the next one has to answer for
            connection.connection_lost(None)
        statuses = tuple(int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", line.sent))
        return Verdict(statuses, end)


class _Waiting:
    """In place of desk and loop: what they would do is done while they are asked, or later."""

    def __init__(self, desk: PageWorker) -> None:
        self._desk = desk
        self._seen: dict[Any, Any] = {}
        self._later: list[Callable[[], None]] = []
        self.is_slow = False

    def call_soon_threadsafe(self, give: Callable[..., None], *what: Any) -> None:
        if self.is_slow:
            self._later.append(lambda: give(*what))
        else:
            give(*what)

    def time(self) -> float:
        return 0.0

    def work_off(self) -> None:
        for each in self._later:
            each()
        self._later.clear()

    def ask(self, inquiry: PageRequest) -> None:
        # The same for the same question: what is compared is how it came.
        key = inquiry.key
        if key not in self._seen:
            if len(self._seen) > 64:
                self._seen.clear()
            self._seen[key] = self._desk._render(inquiry, 0.0)
        inquiry.take(self._seen[key])

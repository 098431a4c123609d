"""HTTP on the operations port: every request gets a page; the result does not depend on packets."""

from __future__ import annotations

import queue
import re
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, Self

from extender.hooks.http_connection import HttpConnection
from extender.web.page_worker import Page, PageRequest, PageWorker
from extender.web.server import LIMITS, OperationsServer
from tests.nightly.fuzz.edge import Edge, must
from tests.nightly.fuzz.edges.hook_port import CORPUS, OPEN, FakeTransport, cuts, must_be_answers
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
#: Without delays. Buffers for two inputs: bytes that were not released would soon end a connection.
AT_ONCE = replace(LIMITS, refusal_delay_s=0.0, response_pause_s=0.0, bodies=16_000)


class Result(NamedTuple):
    """The effects of a stream."""

    statuses: tuple[int, ...]
    end: str


class PageStreams(Edge):
    """Input: the bytes of one connection."""

    name = "page-port"
    count = 300
    suffix = ".http"
    longest = 8000
    words = (*_PATHS, *_ODD, *_HEADERS, b"HEAD", b"GET", b"POST", b"DELETE", b"\r\n\r\n", GOOD)

    def __enter__(self) -> Self:
        self._world = World().__enter__()
        self._port = OperationsServer(self._world.runtime.pages, limits=AT_ONCE)
        self._own_loop = self._port.loop
        pages = PageWorker(self._world.runtime.pages.wsgi_app, rest=lambda seconds: None)
        pages.start()
        self._pages = _Pages(pages)
        self._port.loop = self._port.page_worker = self._pages  # type: ignore[assignment]
        return self

    def __exit__(self, *error: object) -> None:
        self._pages.worker.stop()
        self._own_loop.close()
        self._world.__exit__(*error)

    def real(self) -> list[bytes]:
        requests = [b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n" for path in _PATHS]
        return requests + [each.read_bytes() for each in sorted(CORPUS.glob("*.http"))]

    def made(self, rng: Random) -> bytes:
        requests = []
        for _ in range(rng.choice((1, 1, 2))):
            method = rng.choice((b"GET",) * 5 + (b"HEAD", b"POST", b"PUT", b"OPTIONS"))
            path = rng.choice(_PATHS) + rng.choice(_ODD) * rng.choice((1, 1, 1, 50))
            headers = rng.sample(_HEADERS, k=rng.randrange(4))
            line = b" ".join((method, path, b"HTTP/1.1"))
            body = rng.choice((b"", b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n"))
            requests.append(b"\r\n".join((line, *headers, b"", b"")) + body)
        return b"".join(requests)

    def judge(self, data: bytes) -> None:
        for is_slow in (False, True):
            result = self.result_of(data, is_slow=is_slow)
            must(500 not in result.statuses, "a page fails")
            for pieces in cuts(data):
                other = self.result_of(*pieces, is_slow=is_slow)
                must(other == result, "the result differs when the input is cut")
        must(self.result_of(GOOD).statuses == (200,), "the next good request is not answered")
        must(not self._port.connections, "a lost connection is still counted")

    def result_of(self, *pieces: bytes, is_slow: bool = False) -> Result:
        """Send *pieces*; pages come at once, or after all pieces if *is_slow*."""
        transport, self._pages.is_slow = FakeTransport(), is_slow
        connection = HttpConnection(self._port)
        connection.connection_made(transport)  # type: ignore[arg-type]
        try:
            for piece in pieces:
                if transport.end == OPEN:
                    connection.data_received(piece)
            self._pages.run_deferred()
            end = transport.end
            has_no_body = any(word in b"".join(pieces) for word in (b"HEAD", b"100-continue"))
            if not has_no_body:
                must_be_answers(transport.sent)
        finally:  # also after an objection, for the next input
            connection.connection_lost(None)
        statuses = tuple(int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", transport.sent))
        return Result(statuses, end)


class _Pages:
    """Replaces worker and loop of the port: calls are made at once, or deferred."""

    def __init__(self, worker: PageWorker) -> None:
        self.worker = worker
        self._cache: dict[Any, Page] = {}
        self._later: list[Callable[[], None]] = []
        self.is_slow = False

    def call_soon_threadsafe(self, give: Callable[..., None], *what: Any) -> None:
        if self.is_slow:
            self._later.append(lambda: give(*what))
        else:
            give(*what)

    def time(self) -> float:
        return 0.0

    def run_deferred(self) -> None:
        for each in self._later:
            each()
        self._later.clear()

    def ask(self, request: PageRequest) -> None:
        # Equal requests get the same page, because pages change with time.
        key = request.key
        if key not in self._cache:
            if len(self._cache) > 64:
                self._cache.clear()
            pages: queue.SimpleQueue[Page] = queue.SimpleQueue()
            self.worker.ask(request._replace(since=time.monotonic(), take=pages.put))
            self._cache[key] = pages.get(timeout=60)
        request.take(self._cache[key])

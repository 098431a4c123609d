"""The operations server: it has a thread and an event loop of its own.

So readers of pages never delay scheduling. Probes are answered on the loop, pages are rendered in
one other thread, and listeners of events keep their connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from functools import partial

import msgspec
import uvloop

from extender.hooks.http_connection import HttpConnection
from extender.hooks.http_server import HttpServer
from extender.hooks.limits import Limits, Refusal
from extender.ports import Reviewer
from extender.web.app import OperationsApp
from extender.web.page_worker import Page, PageRequest, PageWorker, note
from extender.web.token_review import GOOD_S, TokenReviews

log = logging.getLogger(__name__)
#: Event streams at a time. The oldest ends first: its client reconnects, or polls the page.
MAX_STREAMS = 32
#: The maximum life of an event stream; browsers reconnect by themselves.
STREAM_LIFE_S = 50.0
_CHECK_S = 1.0
#: The interval of events while nothing changes.
_KEEPALIVE_S = 5.0
#: Tells a browser when to reconnect.
RETRY = b"retry: 1000\n\n"


class EventStreams:
    """The event streams of one port; everything happens on its loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        heartbeat: Callable[[], bytes],
        *,
        life_s: float = STREAM_LIFE_S,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self._loop = loop
        self._heartbeat = heartbeat
        self.life_s = life_s
        self._max_streams = max_streams
        #: When each stream ends, the first to end first.
        self._open: dict[HttpConnection, float] = {}
        self._last = b""
        self._sent_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, listener: HttpConnection) -> None:
        """Send *listener* the current state, and every change from now on."""
        self._open[listener] = self._loop.time() + self.life_s
        listener.send(RETRY + self._event())
        while len(self._open) > self._max_streams:
            self._end(next(iter(self._open)))
        if self._timer is None:
            self._timer = self._loop.call_later(_CHECK_S, self._check)

    def discard(self, listener: HttpConnection) -> None:
        """Remove a listener that has disconnected."""
        self._open.pop(listener, None)

    def close(self) -> None:
        """End all streams."""
        for each in tuple(self._open):
            self._end(each)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, listener: HttpConnection) -> None:
        del self._open[listener]
        listener.close()

    def _event(self) -> bytes:
        try:
            return self._heartbeat()
        except Exception:
            # A client without events polls the page, which shows what is wrong.
            log.exception("heartbeat failed")
            return b": \n\n"

    def _check(self) -> None:
        now = self._loop.time()
        for each, until in tuple(self._open.items()):
            if until <= now:
                self._end(each)
        event = self._event() if self._open else self._last
        if event != self._last or now - self._sent_at >= _KEEPALIVE_S:
            self._last, self._sent_at = event, now
            for each in tuple(self._open):
                each.send(event)
        self._timer = self._loop.call_later(_CHECK_S, self._check) if self._open else None


class UnreadResponses:
    """The pages that are being read, and by which connections; everything happens on one loop."""

    def __init__(self, max_bytes: int) -> None:
        """Bound the bytes of all pages together; the newest page may be larger alone."""
        self._max_bytes = max_bytes
        self._size = 0
        #: The oldest first.
        self._pages: dict[HttpConnection, Page] = {}
        self._readers: dict[int, int] = {}

    def begin(self, reader: HttpConnection, page: Page) -> None:
        """Record that *reader* reads *page*; abort the oldest readers of others over the bound."""
        self.end(reader)
        self._pages[reader] = page
        before = self._readers.get(id(page), 0)
        self._readers[id(page)] = before + 1
        if not before:
            self._size += page.size
        while self._size > self._max_bytes:
            others = (each for each, read in self._pages.items() if read is not page)
            oldest = next(others, None)
            if oldest is None:
                return
            # Before `abort`, which may call `end` itself before it returns.
            self.end(oldest)
            oldest.abort("unread")

    def end(self, reader: HttpConnection) -> None:
        """Called when the client has read the page or disconnected."""
        page = self._pages.pop(reader, None)
        if page is None:
            return
        others = self._readers.pop(id(page)) - 1
        if others:
            self._readers[id(page)] = others
        else:
            self._size -= page.size


#: A page is larger than an answer to kube-scheduler, and its reader may have a slow network.
LIMITS = Limits(connections=128, answer_s=60.0, response_pause_s=0.01)
#: Bytes of all pages that are being read; each page counts once.
_MAX_BYTES = 64 * 1024 * 1024
_START_S = 30.0
_PIECE = 64 * 1024
_EVENTS = b"/events"
#: The stream ends with the connection, so it needs no content-length.
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n"
    b"x-accel-buffering: no\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
)


class OperationsServer(HttpServer):
    """Serves people and their tools, from `start` to `stop`."""

    def __init__(
        self,
        pages: OperationsApp,
        tls: ssl.SSLContext | None = None,
        *,
        limits: Limits = LIMITS,
        reviewer: Reviewer | None = None,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        super().__init__("operations", uvloop.new_event_loop(), pages.metrics, limits, tls)
        self.answers_half_closed = self.is_plain
        self._pages = pages
        #: None if pages need no token.
        self.token_reviews = TokenReviews(reviewer, self.loop) if reviewer is not None else None
        # With tokens a stream ends when its token review expires, and the client is reviewed again.
        life_s = STREAM_LIFE_S if reviewer is None else GOOD_S
        self.streams = EventStreams(self.loop, pages.heartbeat, life_s=life_s)
        self.page_worker = PageWorker(pages.wsgi_app, state=pages.state)
        self.unread = UnreadResponses(max_bytes)
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="operations", daemon=True
        )

    def start(self, listening: socket.socket) -> None:
        """Start to answer, in threads of its own."""
        self.page_worker.start()
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.listen(listening), self.loop).result(_START_S)

    def stop(self, grace_s: float = 1.0) -> None:
        """Stop; called from any other thread."""
        closing = asyncio.run_coroutine_threadsafe(self.close(grace_s), self.loop)
        closing.result(grace_s + _START_S)
        if self.token_reviews is not None:
            self.loop.call_soon_threadsafe(self.token_reviews.stop)
        self.page_worker.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def close(self, grace_s: float) -> None:
        """Stop; event streams are not waited for."""
        self.streams.close()
        await super().close(grace_s)

    def closed(self, call: HttpConnection) -> None:
        """Release the stream and the page."""
        self.streams.discard(call)
        self.unread.end(call)

    def handle(self, call: HttpConnection) -> None:
        """Answer a probe, or ask for a page or events after the token review."""
        path, query = call.path, call.url.partition(b"?")[2]
        method, text_path = call.method, path.decode("latin-1")
        is_read = method in (b"GET", b"HEAD")
        if is_read and text_path in self._pages.probes.PATHS:
            status, text = self._pages.probes.ask(text_path)
            self.send_sentence(call, status, text.removesuffix("\n"))
            return
        call.await_answer()
        proceed = partial(self._listen, call)
        if path != _EVENTS or method != b"GET":
            query = self._pages.used_query(path, query)
            proceed = partial(self.ask, call, b"GET" if is_read else method, path, query=query)
        if self.token_reviews is None:
            proceed()
            return
        self.token_reviews.ask(
            call.headers,
            self._pages.rbac_path(path),
            call.caller,
            lambda: not call.is_over,
            partial(self._reviewed, call, proceed),
        )
        call.headers.clear()  # they contain the token

    def _reviewed(
        self, call: HttpConnection, proceed: Callable[[], None], refusal: Refusal | None
    ) -> None:
        if call.is_over:
            return
        if refusal is None:
            self.trust(call)
            proceed()
        else:
            self.refusals.record(refusal.reason, call.caller)
            self._send_page(call, _refused(refusal))

    def ask(
        self,
        call: HttpConnection,
        method: bytes,
        path: bytes,
        query: bytes = b"",
        form: bytes = b"",
    ) -> None:
        """Ask the page worker for a page, which it renders in its thread."""
        self.page_worker.ask(
            PageRequest(
                method=method,
                path=path,
                since=time.monotonic(),
                is_wanted=lambda: not call.is_over,
                take=lambda page: self.loop.call_soon_threadsafe(self._send_page, call, page),
                query=query,
                form=form,
            )
        )

    def _listen(self, call: HttpConnection) -> None:
        """Keep the connection open for events."""
        call.begin_stream(_STREAM, self.streams.life_s)
        self.streams.add(call)

    def send_sentence(self, call: HttpConnection, status: int, sentence: str) -> None:
        """Answer with a line of text."""
        self._send_page(call, note(status, sentence))

    def _send_page(self, call: HttpConnection, page: Page) -> None:
        if call.is_over:
            return
        # `doctor` compares clocks by it.
        headers = page.headers + f"date: {formatdate(usegmt=True)}\r\n".encode()
        pieces = iter(()) if call.method == b"HEAD" else self._unread_pieces(call, page)
        call.answer_in_pieces(page.status, headers, page.size, pieces)

    def _unread_pieces(self, call: HttpConnection, page: Page) -> Iterator[memoryview]:
        """Yield the pieces of *page*, which counts as unread until all are written."""
        self.unread.begin(call, page)
        yield from _cut(page.pieces)
        self.unread.end(call)


def _refused(refusal: Refusal) -> Page:
    """Return a refusal as a page, in the API's format of errors."""
    extra = b"www-authenticate: Bearer\r\n" if refusal.status == 401 else b""
    if refusal.status in (429, 503):
        extra = b"retry-after: 2\r\n"
    body = msgspec.json.encode({"error": refusal.why}) + b"\n"
    return Page(refusal.status, b"content-type: application/json\r\n" + extra, (body,))


def _cut(pieces: Iterable[bytes]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), _PIECE):
            yield view[at : at + _PIECE]

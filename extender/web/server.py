"""The operations port: a thread and an event loop of its own, so that nobody who looks delays
anybody who schedules. Probes are answered on the loop, pages written by one other thread, and those
who listen for news stay.
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
from typing import Protocol

import msgspec
import uvloop

from extender.hooks.http_connection import HttpConnection
from extender.hooks.http_server import HttpServer, Limits
from extender.hooks.limits import Refusal
from extender.ports import Reviewer
from extender.web.app import OperationsApp
from extender.web.page_worker import Page, PageRequest, PageWorker, note
from extender.web.token_review import GOOD_S, TokenReviews

log = logging.getLogger(__name__)
#: The newest are kept: the others come again, or ask for the page from time to time.
MOST = 32
#: A connection ends after this, whoever it is; browsers come back by themselves.
LIFE_S = 50.0
_LOOK_S = 1.0
#: While nothing is new they hear this often that we live.
_BEAT_S = 5.0
#: How a browser is told when to come back.
RETRY = b"retry: 1000\n\n"


class EventListener(Protocol):
    """A connection that stays."""

    def send(self, event: bytes) -> None:
        """Send an event, unless it still has some to read."""

    def close(self) -> None:
        """End after what was written."""


class EventStreams:
    """Those of one port; everything happens on its loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pulse: Callable[[], bytes],
        *,
        life_s: float = LIFE_S,
        most: int = MOST,
    ) -> None:
        self._loop = loop
        self._pulse = pulse
        self.life_s = life_s
        self._most = most
        #: With the moment at which each ends, the first to end first.
        self._open: dict[EventListener, float] = {}
        self._last = b""
        self._told_at = float("-inf")
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, listener: EventListener) -> None:
        """Tell *listener* where we are, and from now on what is new."""
        self._open[listener] = self._loop.time() + self.life_s
        listener.send(RETRY + self._event())
        while len(self._open) > self._most:
            self._end(next(iter(self._open)))
        if self._looking is None:
            self._looking = self._loop.call_later(_LOOK_S, self._look)

    def discard(self, listener: EventListener) -> None:
        """Forget one that has left."""
        self._open.pop(listener, None)

    def close(self) -> None:
        """End them all."""
        for each in tuple(self._open):
            self._end(each)
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _end(self, listener: EventListener) -> None:
        del self._open[listener]
        listener.close()

    def _event(self) -> bytes:
        try:
            return self._pulse()
        except Exception:
            # Who hears nothing new asks for the page, and that says what is wrong.
            log.exception("pulse failed")
            return b": \n\n"

    def _look(self) -> None:
        now = self._loop.time()
        for each, until in tuple(self._open.items()):
            if until <= now:
                self._end(each)
        event = self._event() if self._open else self._last
        if event != self._last or now - self._told_at >= _BEAT_S:
            self._last, self._told_at = event, now
            for each in tuple(self._open):
                each.send(event)
        self._looking = self._loop.call_later(_LOOK_S, self._look) if self._open else None


class Reader(Protocol):
    """Somebody who reads a page."""

    def abort(self, reason: str) -> None:
        """End at once; he may be told as having left before this returns."""


class UnreadResponses:
    """Who reads which page; everything happens on one loop."""

    def __init__(self, most: int) -> None:
        """Bound the bytes of all pages together; the newest is read however large it is."""
        self._most = most
        self._size = 0
        #: Longest first.
        self._pages: dict[Reader, Page] = {}
        self._readers: dict[int, int] = {}

    def begin(self, reader: Reader, page: Page) -> None:
        """Let somebody read *page*; who has read something else for the longest ends for it."""
        self.end(reader)
        self._pages[reader] = page
        before = self._readers.get(id(page), 0)
        self._readers[id(page)] = before + 1
        if not before:
            self._size += page.size
        while self._size > self._most:
            others = (each for each, read in self._pages.items() if read is not page)
            longest = next(others, None)
            if longest is None:
                return
            self.end(longest)
            longest.abort("unread")

    def end(self, reader: Reader) -> None:
        """Hear that somebody has read his page, or left."""
        page = self._pages.pop(reader, None)
        if page is None:
            return
        left = self._readers.pop(id(page)) - 1
        if left:
            self._readers[id(page)] = left
        else:
            self._size -= page.size


#: A page is larger than an answer to kube-scheduler, and its reader may be far away.
LIMITS = Limits(connections=128, answer_s=60.0, response_pause_s=0.01)
#: Bytes of all pages that are being read, of which each counts once.
_MOST_READ = 64 * 1024 * 1024
_STARTS_S = 30.0
_PIECE = 64 * 1024
_NEWS = b"/events"
#: Its end is the end of the connection, so nobody has to know its length.
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n"
    b"x-accel-buffering: no\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
)


class OperationsServer(HttpServer):
    """Where people and their tools look; lives from `start` to `stop`."""

    def __init__(
        self,
        pages: OperationsApp,
        tls: ssl.SSLContext | None = None,
        *,
        limits: Limits = LIMITS,
        reviewer: Reviewer | None = None,
        most_read: int = _MOST_READ,
    ) -> None:
        super().__init__("operations", uvloop.new_event_loop(), pages.metrics, limits, tls)
        self.probes = pages.probes
        self.named = pages.rbac_path
        self.heeded = pages.used_query
        #: None where whoever comes may read.
        self.readers = TokenReviews(reviewer, self.loop) if reviewer is not None else None
        # Who has to say who they are says so again as soon as the answer is good no longer.
        life_s = LIFE_S if reviewer is None else GOOD_S
        self.streams = EventStreams(self.loop, pages.pulse, life_s=life_s)
        self.desk = PageWorker(pages.wsgi_app, stands=pages.stands)
        self.unread = UnreadResponses(most_read)
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="operations", daemon=True
        )

    def start(self, listening: socket.socket) -> None:
        """Begin to answer, in threads of our own."""
        self.desk.start()
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.listen(listening), self.loop).result(_STARTS_S)

    def stop(self, grace_s: float = 1.0) -> None:
        """End; called from any other thread."""
        closing = asyncio.run_coroutine_threadsafe(self.close(grace_s), self.loop)
        closing.result(grace_s + _STARTS_S)
        if self.readers is not None:
            self.loop.call_soon_threadsafe(self.readers.stop)
        self.desk.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def close(self, grace_s: float) -> None:
        """End; nobody waits for those who only listen."""
        self.streams.close()
        await super().close(grace_s)

    def connection(self) -> asyncio.Protocol:
        """Make the protocol of a new connection."""
        return OperationsConnection(self)


class OperationsConnection(HttpConnection):
    """One connection of somebody who looks."""

    _port: OperationsServer

    def __init__(self, port: OperationsServer) -> None:
        super().__init__(port)
        self._pieces: Iterator[memoryview] = iter(())
        self._is_listening = False

    def send(self, event: bytes) -> None:
        """Send an event to one who listens and has read those before."""
        if not self._is_over and not self._is_unread:
            self._transport.write(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._port.streams.discard(self)
        self._port.unread.end(self)
        self._pieces = iter(())
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        """Answer those too who have said all they will say, where the transport allows it."""
        if self._is_waiting and self._port.is_plain and not self._is_listening:
            self._is_last = True
            return True
        return super().eof_received()

    def resume_writing(self) -> None:
        """Go on with the page."""
        if self._is_waiting:
            self._is_unread = False
            if not self._is_listening:
                self._write_on()
        else:
            super().resume_writing()

    def _called(self) -> None:
        path, _, query = self._url.partition(b"?")
        method = self._parser.get_method()
        asked, is_read = path.decode("latin-1"), method in (b"GET", b"HEAD")
        if is_read and asked in self._port.probes.PATHS:
            status, text = self._port.probes.ask(asked)
            self._say(status, text.removesuffix("\n"))
            return
        self._wait()
        go_on = self._listen
        if path != _NEWS or method != b"GET":
            inquiry = PageRequest(
                method=b"GET" if is_read else method,
                path=path,
                since=time.monotonic(),
                is_wanted=lambda: not self._is_over,
                take=self._take,
                query=self._port.heeded(path, query),
            )
            go_on = partial(self._ask, inquiry)
        if self._port.readers is None:
            go_on()
            return
        self._port.readers.ask(
            self._headers,
            self._port.named(path),
            self.caller,
            lambda: not self._is_over,
            partial(self._judged, go_on),
        )
        self._headers.clear()  # there is a token among them

    def _judged(self, go_on: Callable[[], None], refusal: Refusal | None) -> None:
        if self._is_over:
            return
        if refusal is None:
            self._port.trust(self)
            go_on()
        else:
            self._port.refusals.record(refusal.reason, self.caller)
            self._give(_refused(refusal))

    def _ask(self, inquiry: PageRequest) -> None:
        self._port.desk.ask(inquiry._replace(since=time.monotonic()))

    def _listen(self) -> None:
        """Stay, and be told what is new."""
        self._is_listening = self._is_last = True
        self._allow(self._port.streams.life_s + self._limits.answer_s, "unread")
        self._transport.write(_STREAM)
        self._port.streams.add(self)

    def _take(self, page: Page) -> None:
        """Take a page from the desk, in its thread."""
        self._port.loop.call_soon_threadsafe(self._give, page)

    def _say(self, status: int, sentence: str) -> None:
        self._give(note(status, sentence))

    def _give(self, page: Page) -> None:
        if self._is_over:
            return
        # Doctors compare clocks by it.
        date = f"date: {formatdate(usegmt=True)}\r\n".encode()
        self._begin_answer(page.status, page.headers + date, page.size)
        is_bare = self._parser.get_method() == b"HEAD"
        if not is_bare:
            self._pieces = _cut(page.pieces)
            self._port.unread.begin(self, page)
        # All of it has its time from now, however much of it is read meanwhile.
        self._allow(self._limits.answer_s, "unread")
        self._write_on()

    def _write_on(self) -> None:
        for piece in self._pieces:
            self._transport.write(piece)
            if self._is_unread:
                return
        if not self._is_unread:
            self._port.unread.end(self)
            self._end_answer()


def _refused(refusal: Refusal) -> Page:
    """Write why somebody is not let in, as the API says what went wrong."""
    besides = b"www-authenticate: Bearer\r\n" if refusal.status == 401 else b""
    if refusal.status in (429, 503):
        besides = b"retry-after: 2\r\n"
    body = msgspec.json.encode({"error": refusal.why}) + b"\n"
    return Page(refusal.status, b"content-type: application/json\r\n" + besides, (body,))


def _cut(pieces: Iterable[bytes]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), _PIECE):
            yield view[at : at + _PIECE]

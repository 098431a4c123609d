"""The operations port: a thread and an event loop of its own, so that nobody who looks delays
anybody who schedules. Probes are answered on the loop, pages written by one other thread, and those
who listen for news stay.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from functools import partial

import msgspec
import uvloop

from extender.ports import Reviewer
from extender.web.app import Pages
from extender.web.http.connection import BoundedConnection
from extender.web.http.desk import Desk, Inquiry, Written, note
from extender.web.http.port import BoundedPort, CallerLimits
from extender.web.http.readers import GOOD_S, Readers
from extender.web.http.refusals import Refusal
from extender.web.http.streams import LIFE_S, Streams
from extender.web.http.unread import Unread

#: A page is larger than an answer to kube-scheduler, and its reader may be far away.
LIMITS = CallerLimits(connections=128, answer_s=60.0, pace_s=0.01)

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


class PagePort(BoundedPort):
    """Where people and their tools look; lives from `start` to `stop`."""

    def __init__(
        self,
        pages: Pages,
        tls: ssl.SSLContext | None = None,
        *,
        limits: CallerLimits = LIMITS,
        reviewer: Reviewer | None = None,
        most_read: int = _MOST_READ,
    ) -> None:
        super().__init__("operations", uvloop.new_event_loop(), pages.metrics, limits, tls)
        self.probes = pages.probes
        self.named = pages.named
        self.heeded = pages.heeded
        #: None where whoever comes may read.
        self.readers = Readers(reviewer, self.loop) if reviewer is not None else None
        # Who has to say who they are says so again as soon as the answer is good no longer.
        life_s = LIFE_S if reviewer is None else GOOD_S
        self.streams = Streams(self.loop, pages.pulse, life_s=life_s)
        self.desk = Desk(pages.wsgi_app, stands=pages.stands)
        self.unread = Unread(most_read)
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
        return PageConnection(self)


class PageConnection(BoundedConnection):
    """One connection of somebody who looks."""

    _port: PagePort

    def __init__(self, port: PagePort) -> None:
        super().__init__(port)
        self._pieces: Iterator[memoryview] = iter(())
        self._is_listening = False

    def tell(self, event: bytes) -> None:
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
            inquiry = Inquiry(
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
            self._port.had_good_answer(self)
            go_on()
        else:
            self._port.refusals.tell(refusal.reason, self.caller)
            self._give(_refused(refusal))

    def _ask(self, inquiry: Inquiry) -> None:
        self._port.desk.ask(inquiry._replace(since=time.monotonic()))

    def _listen(self) -> None:
        """Stay, and be told what is new."""
        self._is_listening = self._is_last = True
        self._allow(self._port.streams.life_s + self._limits.answer_s, "unread")
        self._transport.write(_STREAM)
        self._port.streams.add(self)

    def _take(self, page: Written) -> None:
        """Take a page from the desk, in its thread."""
        self._port.loop.call_soon_threadsafe(self._give, page)

    def _say(self, status: int, sentence: str) -> None:
        self._give(note(status, sentence))

    def _give(self, page: Written) -> None:
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


def _refused(refusal: Refusal) -> Written:
    """Write why somebody is not let in, as the API says what went wrong."""
    besides = b"www-authenticate: Bearer\r\n" if refusal.status == 401 else b""
    if refusal.status in (429, 503):
        besides = b"retry-after: 2\r\n"
    body = msgspec.json.encode({"error": refusal.why}) + b"\n"
    return Written(refusal.status, b"content-type: application/json\r\n" + besides, (body,))


def _cut(pieces: Iterable[bytes]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), _PIECE):
            yield view[at : at + _PIECE]

"""One persistent HTTP/1.1 connection with pipelining: responses arrive in the order of requests.

When the connection breaks, a request without a response may or may not have taken effect. A request
that still waited for the connection has not. The `Reply` distinguishes the two.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import httptools

from extender.kube.client import LONGEST

log = logging.getLogger(__name__)
#: The shortest interval between two checks of a silence.
_LEAST_S = 0.01
#: The bound of a response head, with the informational responses before it.
LONGEST_HEAD = 1 << 20
_RETRY_AFTER = b"retry-after"
#: A plausible number of seconds.
_SECONDS = re.compile(rb"[0-9]{1,6}")


class Reply(NamedTuple):
    """A response; status 0 means that none came: unless *sent*, the request had no effect."""

    status: int
    body: bytes = b""
    sent: bool = True
    #: The seconds of the `Retry-After` header; 0 without one.
    retry_after_s: float = 0.0

    @property
    def may_retry(self) -> bool:
        """Return whether a retry may succeed.

        Besides 5xx: no response, an expired token, a connection about to be closed, overload.
        """
        return self.status >= 500 or self.status in (0, 401, 408, 429)

    @property
    def answer(self) -> str:
        """Return the beginning of the body, for a log."""
        return self.body[:300].decode(errors="replace")


NOT_SENT = Reply(0, sent=False)
NO_RESPONSE = Reply(0)


@dataclass(frozen=True, slots=True)
class PipelinedRequest:
    """The bytes of a request, and the callback for its reply."""

    data: bytes
    done: Callable[[Reply], None]
    #: Called immediately before the write, after the wait for a connection; False cancels it.
    is_wanted: Callable[[], bool] = lambda: True


#: Opens a connection for the given protocol.
Connector: TypeAlias = Callable[[asyncio.Protocol], Coroutine[Any, Any, object]]


class Connection(asyncio.Protocol):
    """Connects when there is a request to send, and again after every loss."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Connector,
        *,
        silence_s: float,
        longest_head: int = LONGEST_HEAD,
        longest: int = LONGEST,
        health: ConnectionHealth | None = None,
        forbidden: Callable[[bytes], object] = lambda body: None,
        request_done: Callable[[bytes, int, float], object] = lambda data, status, took_s: None,
    ) -> None:
        """*forbidden* is called with the body of each 403; *request_done* once for each request.

        With a *silence_s* without any response, the connection is aborted.
        """
        self._loop = loop
        self._connect = connect
        self._silence_s = silence_s
        self._longest_head = longest_head
        self._longest = longest
        self._health = health
        self._is_checked = False
        self._is_aborted = False
        self._forbidden = forbidden
        self._request_done = request_done
        self._transport: asyncio.WriteTransport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._unsent: deque[PipelinedRequest] = deque()
        self._unanswered: deque[PipelinedRequest] = deque()
        #: When each of the unanswered requests was written.
        self._written_at: deque[float] = deque()
        self._parser: Any = None
        self._body: list[bytes] = []
        #: The bytes received of a response that is not complete.
        self._received = 0
        self._max_received = longest_head
        self._retry_after_s = 0.0
        #: When the last response arrived, or when the wait for one began.
        self.progress_at = 0.0
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def load(self) -> int:
        """Twice the number of pending requests, plus one if the connection is not open."""
        busy = len(self._unanswered) + len(self._unsent)
        return 2 * busy if self._transport else 2 * busy + 1

    def send(self, requests: Iterable[PipelinedRequest]) -> None:
        """Write the requests in one call; only in the thread of the loop."""
        if not self._unanswered and not self._unsent:
            self._note_progress()
        self._unsent.extend(requests)
        self._schedule_check()
        if self._transport is None:
            self._connect_if_needed()
        elif not self._transport.is_closing():
            self._flush(self._transport)

    async def aclose(self) -> None:
        """Close the connection; every pending request gets a reply without a response."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
            self._connecting = None
        if self._transport is not None:
            self._transport.abort()
        self._complete(self._unsent, NOT_SENT)

    def _connect_if_needed(self) -> None:
        if self._unsent and self._connecting is None:
            self._schedule_check()
            self._connecting = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._silence_s):
                await self._connect(self)
        except OSError:
            self._connect_failed()
        except asyncio.CancelledError:
            if not self._is_aborted:
                raise
            self._connect_failed()
        else:
            if self._transport is None and self._unsent:
                # The connection was lost before this line, and callbacks have sent new requests.
                self._connect_failed()
            else:
                self._connecting = None

    def _connect_failed(self) -> None:
        # Cleared first: a callback may send again, and that must start a new attempt.
        self._connecting, self._is_aborted = None, False
        for request in self._unsent:
            self._request_done(request.data, 0, 0.0)
        self._complete(self._unsent, NOT_SENT)

    def _flush(self, transport: asyncio.WriteTransport) -> None:
        queued = tuple(self._unsent)
        self._unsent.clear()
        wanted = [request for request in queued if request.is_wanted()]
        if wanted:
            self._write(transport, wanted)
        if len(wanted) < len(queued):
            sent = set(map(id, wanted))
            self._complete(deque(each for each in queued if id(each) not in sent), NOT_SENT)

    def _write(self, transport: asyncio.WriteTransport, wanted: list[PipelinedRequest]) -> None:
        if not self._unanswered:
            self._note_progress()
        transport.write(b"".join([request.data for request in wanted]))
        self._unanswered.extend(wanted)
        self._written_at.extend([self._loop.time()] * len(wanted))

    def _note_progress(self) -> None:
        self.progress_at = self._loop.time()
        self._is_checked = False

    def _schedule_check(self) -> None:
        """Schedule the next check of the silence."""
        if self._check_timer is None and (self._unanswered or self._unsent):
            check_after_s = self._silence_s
            if self._health is not None and not self._is_checked:
                check_after_s = min(check_after_s, self._health.check_after_s)
            left_s = self.progress_at + check_after_s - self._loop.time()
            self._check_timer = self._loop.call_later(max(_LEAST_S, left_s), self._check_silence)

    def _check_silence(self) -> None:
        self._check_timer = None
        silent_s = self._loop.time() - self.progress_at
        if not self._unanswered and not self._unsent:
            return
        if silent_s >= self._silence_s and self._transport is not None:
            self._transport.abort()  # an attempt to connect has a timeout of its own
            return
        if (
            self._health is not None
            and not self._is_checked
            and silent_s >= self._health.check_after_s
        ):
            self._is_checked = True
            self._health.check(self)
        self._schedule_check()

    def abort(self) -> None:
        """Abort the connection, or the attempt to connect; its requests can use another one."""
        if self._transport is not None:
            self._transport.abort()
        elif self._connecting is not None:
            self._is_aborted = True
            self._connecting.cancel()

    def _complete(self, requests: deque[PipelinedRequest], reply: Reply) -> None:
        # A callback may send again at once, into the queue that is being emptied.
        returned = tuple(requests)
        requests.clear()
        for request in returned:
            _deliver(request, reply)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the requests that waited for the connection."""
        # uvloop's TLS transport writes, but is no subclass of asyncio's: no isinstance here.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._flush(self._transport)

    def data_received(self, data: bytes) -> None:
        """Parse responses; the parser calls `on_body` and `on_message_complete`."""
        self._received += len(data)
        if self._received > self._max_received:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete the unanswered requests with `NO_RESPONSE`."""
        self._transport = None
        self._reset_message()
        self._received = 0
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
        self._written_at.clear()
        for request in self._unanswered:
            self._request_done(request.data, 0, 0.0)
        self._complete(self._unanswered, NO_RESPONSE)
        self._connect_if_needed()

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the seconds of `Retry-After`; API servers do not send its date form."""
        if len(name) == len(_RETRY_AFTER) and name.lower() == _RETRY_AFTER:
            self._retry_after_s = float(value) if _SECONDS.fullmatch(value) else 0.0

    def on_headers_complete(self) -> None:
        """Raise the size bound to that of a body."""
        self._max_received = self._longest

    def on_body(self, body: bytes) -> None:
        """Keep a chunk of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Pass the response to the oldest unanswered request."""
        parser = self._parser
        status = parser.get_status_code()
        if 100 <= status < 200:
            # Informational: the final response follows. It is no progress, as these may be endless.
            self._reset_message()
            return
        body, retry_after_s = b"".join(self._body), self._retry_after_s
        self._reset_message()
        self._received = 0
        self._note_progress()
        if not self._unanswered:
            # Go's server sends "408 Request Timeout" before it closes an idle connection. Without
            # the abort, such a response could be read as the response to the next request.
            self.abort()
            return
        request = self._unanswered.popleft()
        took_s = self.progress_at - self._written_at.popleft()
        if not parser.should_keep_alive():
            self.abort()
        self._request_done(request.data, status, took_s)
        if status == 403:
            self._forbidden(body)
        _deliver(request, Reply(status, body, retry_after_s=retry_after_s))

    def _reset_message(self) -> None:
        self._max_received = self._longest_head
        self._body.clear()
        self._retry_after_s = 0.0


def _deliver(request: PipelinedRequest, reply: Reply) -> None:
    """Call the callback; an exception of one must not prevent the replies of the others."""
    try:
        request.done(reply)
    except Exception:
        log.exception("reply not taken", extra={"facts": {"status": reply.status}})


#: The silence after which a connection is checked by a request on another connection.
CHECK_AFTER_S = 2.0
#: The bound to which aborts raise it: a gang should be bound completely within five seconds.
MAX_CHECK_AFTER_S = 4.0
#: How long after an abort the raised value applies.
RAISED_FOR_S = 60.0


class ConnectionHealth:
    """Tells a silent connection from a silent API server by a request on its own connection.

    If only the silent connection has no responses, it is aborted. Each abort doubles the silence
    that the next check waits for, so that a slow API server does not cost connections.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Connector,
        frame: Callable[[], bytes],
        *,
        silence_s: float,
        check_after_s: float = CHECK_AFTER_S,
    ) -> None:
        self._loop = loop
        self._frame = frame
        self._check_after_s = check_after_s
        self._raised_s = check_after_s
        self._aborted_at = float("-inf")
        self._connection = Connection(loop, connect, silence_s=silence_s)

    @property
    def check_after_s(self) -> float:
        """The silence after which a connection is checked, at present."""
        if self._loop.time() - self._aborted_at > RAISED_FOR_S:
            self._raised_s = self._check_after_s
        return self._raised_s

    def check(self, silent: Connection) -> None:
        """Send a request on our own connection, and abort *silent* if that one is answered."""
        since = silent.progress_at
        answered = partial(self._answered, silent, since)
        self._connection.send((PipelinedRequest(self._frame(), answered),))

    def _answered(self, silent: Connection, since: float, reply: Reply) -> None:
        if not reply.status or silent.progress_at != since:
            return
        now = self._loop.time()
        # Connections that are aborted together count as one.
        if now - self._aborted_at > self._check_after_s / 2:
            self._raised_s = min(
                2 * self.check_after_s, max(self._check_after_s, MAX_CHECK_AFTER_S)
            )
            self._aborted_at = now
        silent.abort()

    async def aclose(self) -> None:
        """Close our own connection."""
        await self._connection.aclose()

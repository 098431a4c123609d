"""One persistent HTTP/1.1 connection: requests go out back to back, answers come in order.

What was written and not answered when the connection breaks may or may not have taken effect;
what was still waiting for the connection certainly has not. The `Reply` tells which.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import httptools

from extender.kube.client import LONGEST

log = logging.getLogger(__name__)
#: How soon a silence is looked at again at the earliest.
_LEAST_S = 0.01
#: No head is longer, with all that comes before it.
LONGEST_HEAD = 1 << 20
_RETRY_AFTER = b"retry-after"
#: A number of seconds that somebody could mean.
_SECONDS = re.compile(rb"[0-9]{1,6}")


class Reply(NamedTuple):
    """An answer; status 0 when none came: unless *sent*, the request had no effect."""

    status: int
    body: bytes = b""
    sent: bool = True
    #: How long the server asks to be left alone (`Retry-After`), in seconds; 0 if it does not.
    retry_after_s: float = 0.0

    @property
    def may_pass(self) -> bool:
        """Ask whether trying again may help.

        Besides 5xx: no answer, a token that ran out, a connection about to be closed, load.
        """
        return self.status >= 500 or self.status in (0, 401, 408, 429)

    @property
    def answer(self) -> str:
        """Give the beginning of what was said, for a log."""
        return self.body[:300].decode(errors="replace")

    def facts(self) -> dict[str, object]:
        """Give what a log should say of a refusal."""
        return {"status": self.status, "answer": self.answer}


NOT_SENT = Reply(0, sent=False)
NO_RESPONSE = Reply(0)


@dataclass(frozen=True, slots=True)
class PipelinedRequest:
    """A request as it goes over the wire, and who wants the reply."""

    request: bytes
    done: Callable[[Reply], None]
    #: Asked when it is about to be written, however long a connection had to be waited for.
    is_wanted: Callable[[], bool] = lambda: True


#: Opens a connection for the given protocol.
Connector: TypeAlias = Callable[[asyncio.Protocol], Coroutine[Any, Any, object]]


class ChecksHealth(Protocol):
    """Looks after connections that are silent."""

    @property
    def patience_s(self) -> float:
        """How long one may be."""

    def check(self, silent: Connection) -> None:
        """Hear that one has been, and perhaps break it off."""


class _Trusting:
    """Suspects nobody."""

    patience_s = float("inf")

    def check(self, silent: Connection) -> None:
        """Never called."""


class Connection(asyncio.Protocol):
    """Connects when there is something to send, and again after every loss."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Connector,
        *,
        silence_s: float,
        watchman: ChecksHealth | None = None,
        forbidden: Callable[[bytes], object] = lambda body: None,
        asked: Callable[[bytes, int, float], object] = lambda request, status, took_s: None,
    ) -> None:
        """*forbidden* is told of every 403, whoever asked; *asked* of every request, in the end."""
        self._loop = loop
        self._connect = connect
        self._silence_s = silence_s
        self._watchman = watchman or _Trusting()
        self._is_suspected = False
        self._is_broken_off = False
        self._forbidden = forbidden
        self._asked = asked
        self._transport: asyncio.WriteTransport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._unsent: deque[PipelinedRequest] = deque()
        self._unanswered: deque[PipelinedRequest] = deque()
        #: When each of those was written.
        self._written_at: deque[float] = deque()
        self._parser: Any = None
        self._body: list[bytes] = []
        #: How many bytes have come of an answer that is not complete.
        self._heard = 0
        self._may_hear = LONGEST_HEAD
        self._retry_after_s = 0.0
        #: When something last came back, or began to be waited for.
        self.progress_at = 0.0
        self._watch: asyncio.TimerHandle | None = None

    @property
    def load(self) -> int:
        """Count the requests under way; one that must connect first counts one more."""
        busy = len(self._unanswered) + len(self._unsent)
        return 2 * busy if self._transport else 2 * busy + 1

    def send(self, exchanges: Iterable[PipelinedRequest]) -> None:
        """Write the requests in one go; only from the thread of the loop."""
        if not self._unanswered and not self._unsent:
            self._goes_on()
        self._unsent.extend(exchanges)
        self._watch_over()
        if self._transport is None:
            self._connect_if_needed()
        elif not self._transport.is_closing():
            self._flush(self._transport)

    async def aclose(self) -> None:
        """Break the connection; whatever is under way is told so."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
            self._connecting = None
        if self._transport is not None:
            self._transport.abort()
        self._give_back(self._unsent, NOT_SENT)

    def _connect_if_needed(self) -> None:
        if self._unsent and self._connecting is None:
            self._watch_over()
            self._connecting = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._silence_s):
                await self._connect(self)
        except OSError:
            self._not_opened()
        except asyncio.CancelledError:
            if not self._is_broken_off:
                raise
            self._not_opened()
        else:
            if self._transport is None and self._unsent:
                # It was lost before we heard that it is there, and those told of that sent again.
                self._not_opened()
            else:
                self._connecting = None

    def _not_opened(self) -> None:
        # Cleared first: whoever is told may send again, and that must start a new attempt.
        self._connecting, self._is_broken_off = None, False
        for exchange in self._unsent:
            self._asked(exchange.request, 0, 0.0)
        self._give_back(self._unsent, NOT_SENT)

    def _flush(self, transport: asyncio.WriteTransport) -> None:
        waited = tuple(self._unsent)
        self._unsent.clear()
        wanted = [exchange for exchange in waited if exchange.is_wanted()]
        if wanted:
            self._write(transport, wanted)
        if len(wanted) < len(waited):
            sent = set(map(id, wanted))
            self._give_back(deque(each for each in waited if id(each) not in sent), NOT_SENT)

    def _write(self, transport: asyncio.WriteTransport, wanted: list[PipelinedRequest]) -> None:
        if not self._unanswered:
            self._goes_on()
        transport.write(b"".join([exchange.request for exchange in wanted]))
        self._unanswered.extend(wanted)
        self._written_at.extend([self._loop.time()] * len(wanted))

    def _goes_on(self) -> None:
        self.progress_at = self._loop.time()
        self._is_suspected = False

    def _watch_over(self) -> None:
        """Look again when the silence would have lasted too long."""
        if self._watch is None and (self._unanswered or self._unsent):
            patience_s = self._silence_s
            if not self._is_suspected:
                patience_s = min(patience_s, self._watchman.patience_s)
            left_s = self.progress_at + patience_s - self._loop.time()
            self._watch = self._loop.call_later(max(_LEAST_S, left_s), self._check_silence)

    def _check_silence(self) -> None:
        self._watch = None
        silent_s = self._loop.time() - self.progress_at
        if not self._unanswered and not self._unsent:
            return
        if silent_s >= self._silence_s and self._transport is not None:
            self._transport.abort()  # one that never came about has a limit of its own
            return
        if silent_s >= self._watchman.patience_s and not self._is_suspected:
            self._is_suspected = True
            self._watchman.check(self)
        self._watch_over()

    def abort(self) -> None:
        """End this connection, or the attempt at one: what waits for it may go another way."""
        if self._transport is not None:
            self._transport.abort()
        elif self._connecting is not None:
            self._is_broken_off = True
            self._connecting.cancel()

    def _give_back(self, exchanges: deque[PipelinedRequest], reply: Reply) -> None:
        # Whoever is told may send again at once, into the very queue that is being emptied.
        returned = tuple(exchanges)
        exchanges.clear()
        for exchange in returned:
            _tell(exchange, reply)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what has waited for the connection."""
        # uvloop's TLS transport writes, but is no subclass of asyncio's: no isinstance here.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._flush(self._transport)

    def data_received(self, data: bytes) -> None:
        """Read answers; the parser calls `on_body` and `on_message_complete`."""
        self._heard += len(data)
        if self._heard > self._may_hear:
            self._hang_up()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._hang_up()

    def _hang_up(self) -> None:
        """Let nothing more come over this connection; whoever sends waits for the next one."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits that no answer will come."""
        self._transport = None
        self._forget_message()
        self._heard = 0
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._written_at.clear()
        for exchange in self._unanswered:
            self._asked(exchange.request, 0, 0.0)
        self._give_back(self._unanswered, NO_RESPONSE)
        self._connect_if_needed()

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep how long we are asked to wait; a date is not what an API server says."""
        if len(name) == len(_RETRY_AFTER) and name.lower() == _RETRY_AFTER:
            self._retry_after_s = float(value) if _SECONDS.fullmatch(value) else 0.0

    def on_headers_complete(self) -> None:
        """Let a body follow."""
        self._may_hear = LONGEST

    def on_body(self, body: bytes) -> None:
        """Keep a piece of an answer."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Hand an answer to whoever asked first."""
        parser = self._parser
        status = parser.get_status_code()
        if 100 <= status < 200:
            # The answer is still to come; without end they are no progress either.
            self._forget_message()
            return
        body, retry_after_s = b"".join(self._body), self._retry_after_s
        self._forget_message()
        self._heard = 0
        self._goes_on()
        if not self._unanswered:
            # Go's server says "408 Request Timeout" before it closes an idle one. Whatever it is,
            # what comes next would be taken for the answer to somebody else.
            self._hang_up()
            return
        exchange = self._unanswered.popleft()
        took_s = self.progress_at - self._written_at.popleft()
        if not parser.should_keep_alive():
            self._hang_up()
        self._asked(exchange.request, status, took_s)
        if status == 403:
            self._forbidden(body)
        _tell(exchange, Reply(status, body, retry_after_s=retry_after_s))

    def _forget_message(self) -> None:
        self._may_hear = LONGEST_HEAD
        self._body.clear()
        self._retry_after_s = 0.0


def _tell(exchange: PipelinedRequest, reply: Reply) -> None:
    """Hand over a reply; one bad taker must not cost the others theirs."""
    try:
        exchange.done(reply)
    except Exception:
        log.exception("reply not taken", extra={"facts": {"status": reply.status}})


#: How long a connection may be silent before a question goes another way.
SILENCE_S = 2.0
#: And at most, however often it was in vain: a gang should be whole within five.
LONGEST_S = 4.0
#: How long a suspicion makes us more patient.
REMEMBERED_S = 60.0


class ConnectionHealth:
    """Has a way of its own to the API server, opened when there is something to ask."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Connector,
        question: Callable[[], bytes],
        *,
        silence_s: float,
        hush_s: float = SILENCE_S,
    ) -> None:
        self._loop = loop
        self._question = question
        self._hush_s = hush_s
        self._patience_s = hush_s
        self._broke_off_at = float("-inf")
        self._way = Connection(loop, connect, silence_s=silence_s)

    @property
    def patience_s(self) -> float:
        """How long a connection may be silent just now before it is suspected."""
        if self._loop.time() - self._broke_off_at > REMEMBERED_S:
            self._patience_s = self._hush_s
        return self._patience_s

    def check(self, silent: Connection) -> None:
        """Ask another way, and break *silent* off if only it is."""
        since = silent.progress_at
        answered = partial(self._answered, silent, since)
        self._way.send((PipelinedRequest(self._question(), answered),))

    def _answered(self, silent: Connection, since: float, reply: Reply) -> None:
        if not reply.status or silent.progress_at != since:
            return
        now = self._loop.time()
        # Those that fell silent together are one suspicion.
        if now - self._broke_off_at > self._hush_s / 2:
            self._patience_s = min(2 * self.patience_s, max(self._hush_s, LONGEST_S))
            self._broke_off_at = now
        silent.abort()

    async def aclose(self) -> None:
        """Break our own way."""
        await self._way.aclose()

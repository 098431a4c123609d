"""One connection, with bounds: HTTP/1.1 read in C, one call at a time.

Time is allowed by what happens, never by bytes that come: a call has its time from its first byte,
an answer from the moment it waits to be read, and an idle connection from its last answer. Who
overstays is cut off; what was not sent yet is dropped, for flushing it is what they would like.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import httptools

from extender.hooks.http_server import HttpServer
from extender.hooks.limits import Refusal

log = logging.getLogger(__name__)
# What is read in one go is dealt with before anybody else has a turn; so it must not be many small
# things. Who is kube-scheduler sends five headers, no chunks, and one call at a time.
_MOST_HEADERS = 128
_EACH_TRAILER = 128
_MOST_CHUNKS = 1024
_MOST_CALLS = 8
#: What a call may be coded as, by its version. The parser takes more, but readers differ on where a
#: call ends that says more: Go sees no chunks in HTTP/1.0, and refuses other versions and codings.
_CODINGS: dict[str, tuple[list[bytes], ...]] = {"1.1": ([], [b"chunked"]), "1.0": ([],)}
_CLOSE = b"connection: close\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PHRASES = {each.value: each.phrase.encode() for each in HTTPStatus}


class _Over(Exception):
    """Stops the parser: the rest of what was read concerns nobody."""


class HttpConnection(asyncio.Protocol, ABC):
    """Reads calls; a subclass answers them."""

    def __init__(self, port: HttpServer) -> None:
        self._port = port
        self._limits = port.limits
        self._transport: Any = None
        self._parser: Any = httptools.HttpRequestParser(self)
        #: Set once somebody had a good answer here.
        self.is_trusted = False
        #: When the port ends this connection, and why if that is a refusal.
        self.deadline = math.inf
        self._lateness = ""
        #: Bytes of the body that are kept; the port counts them.
        self.kept = 0
        self._is_over = False
        #: Refused, and not told yet.
        self._is_put_off = False
        self._is_reading = False
        self._is_in_head = False
        #: The caller waits for a word from us before it sends its body.
        self._expects = False
        self._is_last = False
        self._is_unread = False
        #: Nothing is read until the port says so.
        self._awaits_turn = False
        #: A call has come in whole and its answer has not left.
        self._is_waiting = False
        #: Bytes of the call in what was read before, those being read, and of headers behind it.
        self._came = self._now = self._trailed = 0
        #: Chunks of the body, and calls begun in what is being read.
        self._chunks = self._begun = 0
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        #: What the body is coded as, from the first coding to the last.
        self._codings: list[bytes] = []
        self._body: bytes | bytearray = b""
        self._size = 0
        self._refusal: Refusal | None = None

    @property
    def is_asked(self) -> bool:
        """Ask whether a call is being read or waits for its answer."""
        return self._is_reading or self._is_waiting

    @property
    def caller(self) -> str:
        """Say where the connection comes from."""
        peer = self._transport and self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def deadline_passed(self) -> None:
        """End; the deadline has passed."""
        self.abort(self._lateness)

    def abort(self, reason: str) -> None:
        """End at once, whatever was not sent yet; without a *reason* it is nobody's fault."""
        self._is_over = True
        self._body = b""
        if self._transport is not None:
            if reason:
                self._port.refusals.record(reason, self.caller)
            self._transport.abort()

    def close(self) -> None:
        """End after what was written, if it is read."""
        self._is_over = True
        if self._transport is not None:
            self._allow(self._limits.answer_s, "unread")
            self._transport.close()

    def resume_reading(self) -> None:
        """Read on; the turn of a stranger who sends a long call has come."""
        self._awaits_turn = False
        # One that has answers to read is read on when it has read them.
        is_ending = self._is_over or self._is_put_off
        if not is_ending and (self._is_waiting or not self._is_unread):
            self._transport.resume_reading()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._allow(self._limits.idle_s)
        self._port.entered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End, and leave nothing behind: parser and connection hold each other."""
        self._is_over = True
        self._transport = self._parser = None
        self._body = b""
        self._port.left(self)

    def data_received(self, data: bytes) -> None:
        """Read; the parser calls the methods below."""
        if self._is_deaf:
            return
        self._now, self._begun = len(data), 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as if it had not been asked for, and the last on this connection
        except httptools.HttpParserCallbackError as error:
            if not self._is_deaf:
                self._fail(error.__context__)
            return
        except httptools.HttpParserError:
            if not self._is_deaf:
                self._turn_away(Refusal(400, "not_http", "not an HTTP request"))
            return
        if self._is_reading and not self._is_deaf:
            self._came += self._now
            if self._came > self._limits.head:
                self._judge_length()

    def _judge_length(self) -> None:
        """Decide how to go on with a call of which so much has come, and not all."""
        if self._is_in_head:
            self._refuse_head()
        elif self._came > self._limits.message:
            self._send_off("body")
        elif not self.is_trusted and not self._awaits_turn:
            # Strangers could keep the loop busy with nothing but reading what they send.
            self._awaits_turn = True
            self._transport.pause_reading()
            self._port.queue_read(self)

    def pause_writing(self) -> None:
        """Read nothing more before the answers are read: each would make one more."""
        self._is_unread = True
        if not self._is_waiting:
            self._allow(self._limits.answer_s, "unread")
            if not self._is_over:
                self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_unread = False
        if self._is_over or self._is_put_off:
            return
        if not self._awaits_turn:
            self._transport.resume_reading()
        if self._is_reading:
            self._allow(self._limits.call_s, "slow")
        else:
            self._rest()

    def eof_received(self) -> bool:
        """Take a caller that says nothing more for one that has left."""
        self.close()
        return False

    # httptools

    def on_message_begin(self) -> None:
        """A call begins; nobody asks again before the answer."""
        self._begun += 1
        if not self._is_deaf and (self._is_waiting or self._begun > _MOST_CALLS):
            self._send_off("impatient")
        if self._is_deaf:
            raise _Over
        self._is_reading = self._is_in_head = True
        self._expects = False
        if not self._is_unread:
            self._allow(self._limits.call_s, "slow")
        self._port.stirred(self)
        self._came = self._trailed = self._size = self._chunks = 0
        self._url = self._body = b""
        self._refusal = None
        self._headers.clear()
        self._codings.clear()

    def on_url(self, url: bytes) -> None:
        """Keep a piece of the path."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those behind a body are only counted."""
        if self._is_in_head:
            self._headers.append((name, value))
            if len(self._headers) > _MOST_HEADERS:
                self._refuse_head()
                raise _Over
            size = len(name)
            if size == 6 and name.lower() == b"expect":
                self._expects = True
            elif size == 17 and name.lower() == b"transfer-encoding":
                self._codings.append(value.strip().lower())
            return
        self._trailed += len(name) + len(value) + _EACH_TRAILER
        if self._trailed > self._limits.head:
            self._refuse_head()
            raise _Over

    def on_headers_complete(self) -> None:
        """Judge who asks before the body comes, and let a careful client send it."""
        self._is_in_head = False
        # Nearly always the whole call is shorter than its head might be.
        if self._came + self._now > self._limits.head and self._is_head_long():
            self._refuse_head()
            raise _Over
        if self._codings not in _CODINGS.get(self._parser.get_http_version(), ()):
            self._turn_away(
                Refusal(400, "not_http", "HTTP/1.1 is spoken here, and no coding but chunked")
            )
            raise _Over
        if self._parser.should_upgrade() and self._has_body():
            # The parser takes the body for the other protocol; who wants none has no body.
            self._turn_away(Refusal(400, "not_http", "no other protocol is spoken here"))
            raise _Over
        self._refusal = self._judge()
        if self._expects:
            if self._refusal is not None:
                self._turn_away(self._refusal)
                raise _Over
            self._transport.write(_CONTINUE)

    def on_chunk_header(self) -> None:
        """Count a chunk: whoever sends bytes one by one wants our time."""
        self._chunks += 1
        if self._chunks > _MOST_CHUNKS:
            self._send_off("body")
            raise _Over

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body.

        Of a call that is refused the rest is read, not kept: an answer sent into a body that is
        still being written is lost with the connection.
        """
        if self._is_deaf:
            raise _Over
        self._size += len(body)
        if self._refusal is not None or self._size > self._limits.body:
            self._body = b""
            self._port.release_buffer(self)
            return
        self._port.buffer(self, len(body))
        if not self._body:
            self._body = body  # nearly always it comes in one piece
        elif isinstance(self._body, bytearray):
            self._body += body
        else:
            self._body = bytearray(self._body) + body

    def on_message_complete(self) -> None:
        """Answer, now or later."""
        if self._is_deaf:
            raise _Over
        self._is_reading = False
        self._is_last = self._parser.should_upgrade() or not self._parser.should_keep_alive()
        self._port.release_buffer(self)
        self._called()

    # for subclasses

    @abstractmethod
    def _called(self) -> None:
        """Answer a call that has come in whole."""

    @abstractmethod
    def _say(self, status: int, sentence: str) -> None:
        """Answer with a sentence."""

    def _judge(self) -> Refusal | None:
        """Say by its headers why a call is refused, if it is."""
        return None

    def _turn_away(self, refusal: Refusal) -> None:
        """Refuse, as the last thing on this connection."""
        self._port.refusals.record(refusal.reason, self.caller)
        self._is_reading = False
        self._is_last = True
        self._after_a_breath(partial(self._say, refusal.status, refusal.why))

    def _send_off(self, reason: str) -> None:
        """End without a word."""
        self._port.refusals.record(reason, self.caller)
        self._after_a_breath(partial(self.abort, ""))

    def _after_a_breath(self, end: Callable[[], None]) -> None:
        """End with a stranger, but not at once: he comes again as soon as he is told."""
        if self.is_trusted or not self._limits.refusal_delay_s:
            end()
            return
        self._is_put_off = True
        self._body = b""
        self._port.release_buffer(self)
        self._transport.pause_reading()
        self._allow(self._limits.answer_s)
        self._port.loop.call_later(self._limits.refusal_delay_s, self._end_with, end)

    def _end_with(self, end: Callable[[], None]) -> None:
        if not self._is_over:
            end()

    def _fail(self, error: BaseException | None) -> None:
        """Say that something went wrong that should not have, as the last thing."""
        log.error("a call failed", exc_info=error)
        self._is_reading = False
        self._is_last = True
        self._say(500, "the extender failed to answer; its log has the details")

    def _wait(self) -> None:
        """Let the caller wait for its answer."""
        self._is_waiting = True
        self.deadline = math.inf

    def _begin_answer(self, status: int, headers: bytes, size: int, body: bytes = b"") -> None:
        """Write head and *body*, of which more may follow."""
        self._transport.write(
            b"HTTP/1.1 %d %b\r\n%b%bcontent-length: %d\r\n\r\n%b"
            % (status, _PHRASES[status], headers, _CLOSE if self._is_last else b"", size, body)
        )

    def _end_answer(self) -> None:
        """Note that all of an answer was written."""
        self._is_waiting = False
        if self._is_last:
            self.close()
        else:
            self._rest()

    def _rest(self) -> None:
        if self._is_unread:
            self._allow(self._limits.answer_s, "unread")
        else:
            self._allow(self._limits.idle_s)
        self._port.stirred(self)
        if self._limits.response_pause_s and not self._awaits_turn and not self._is_over:
            self._awaits_turn = True
            self._transport.pause_reading()
            self._port.loop.call_later(self._limits.response_pause_s, self.resume_reading)

    def _allow(self, seconds: float, lateness: str = "") -> None:
        self.deadline = self._port.loop.time() + seconds
        self._lateness = lateness

    @property
    def _is_deaf(self) -> bool:
        """Ask whether what comes concerns nobody.

        Behind the last call of a connection it is not even HTTP, and an answer to it would be
        taken for that of the call, if that still waits.
        """
        return self._is_over or self._is_put_off or (self._is_waiting and self._is_last)

    def _has_body(self) -> bool:
        return any(
            name.lower() in (b"transfer-encoding", b"content-length") and value != b"0"
            for name, value in self._headers
        )

    def _is_head_long(self) -> bool:
        size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        return size > self._limits.head

    def _refuse_head(self) -> None:
        most = self._limits.head
        self._turn_away(Refusal(431, "head", f"path and headers are over {most} bytes"))

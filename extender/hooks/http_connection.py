"""One HTTP/1.1 connection with bounds: bytes are parsed in C, one call at a time.

A call that begins and an answer that is sent extend the deadline, arriving bytes never do. A call
has its time from its first byte, an answer from the moment it waits to be read, and an idle
connection from its last answer. A connection past its deadline is aborted: unsent data is dropped,
because flushing it is what an attacker wants.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools

from extender.hooks.limits import Refusal

if TYPE_CHECKING:
    from extender.hooks.http_server import HttpServer

log = logging.getLogger(__name__)
# One read is processed before any other connection is served, so it must not be many small things.
# kube-scheduler sends five headers, no chunks, and one call at a time.
_MOST_HEADERS = 128
_TRAILER_COST = 128
_MOST_CHUNKS = 1024
_MOST_CALLS = 8
#: The transfer codings of a call, by version. The parser accepts more, but readers differ on where
#: such a call ends: Go ignores chunks in HTTP/1.0 and refuses other versions and codings.
_CODINGS: dict[str, tuple[list[bytes], ...]] = {"1.1": ([], [b"chunked"]), "1.0": ([],)}
_CLOSE = b"connection: close\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PHRASES = {each.value: each.phrase.encode() for each in HTTPStatus}


class _Over(Exception):
    """Stops the parser: the rest of what was read is ignored."""


class HttpConnection(asyncio.Protocol):
    """Reads calls one by one; the server checks and answers them."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._transport: Any = None
        self._parser: Any = httptools.HttpRequestParser(self)
        #: The address that the client has reached.
        self.reached = ""
        #: Set once a call on this connection was accepted.
        self.is_trusted = False
        #: When the server aborts this connection, and the reason if that counts as a refusal.
        self.deadline = math.inf
        self._deadline_reason = ""
        #: Buffered bytes of the body; the server counts them.
        self.buffered = 0
        #: Nothing more is read or answered.
        self.is_over = False
        #: A call was refused, and the refusal is delayed.
        self._is_refusal_delayed = False
        self._is_reading = False
        self._is_in_head = False
        #: The client waits for 100 Continue before it sends the body.
        self._expects = False
        #: The connection is closed after the next answer.
        self.is_last = False
        self._is_unread = False
        #: The answer is a stream of events, which ends with the connection.
        self._is_stream = False
        #: The rest of an answer that is written piece by piece.
        self._pieces: Iterator[memoryview] | None = None
        #: Reading is paused until the server or a timer resumes it.
        self._is_paused = False
        #: A call has arrived whole and its answer was not sent yet.
        self.is_waiting = False
        #: Bytes of the call: in earlier reads, in this read, and of trailers.
        self._read_before = self._read_now = self._trailed = 0
        #: Chunks of the body, and calls that begin in this read.
        self._chunks = self._begun = 0
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        #: The transfer codings of the body, in order.
        self._codings: list[bytes] = []
        self._body: bytes | bytearray = b""
        #: Bytes of the whole body; it is dropped if the call is refused or the body is too long.
        self.size = 0
        #: Why the headers of the call are refused.
        self.refusal: Refusal | None = None

    @property
    def has_call(self) -> bool:
        """Return whether a call is being read or waits for its answer."""
        return self._is_reading or self.is_waiting

    @property
    def caller(self) -> str:
        """Return the address of the client."""
        return self._address("peername")

    @property
    def method(self) -> bytes:
        """Return the method of the call."""
        method: bytes = self._parser.get_method()
        return method

    @property
    def path(self) -> bytes:
        """Return the path of the call."""
        return self.url.partition(b"?")[0]

    def take_body(self) -> bytes:
        """Return the body of the call and release it."""
        body, self._body = bytes(self._body), b""
        return body

    def _address(self, side: str) -> str:
        address = self._transport and self._transport.get_extra_info(side)
        return str(address[0]) if address else ""

    def deadline_passed(self) -> None:
        """Abort, because the deadline has passed."""
        self.abort(self._deadline_reason)

    def abort(self, reason: str) -> None:
        """Close at once and drop unsent data; without a *reason* no refusal is counted."""
        self.is_over = True
        self._body = b""
        if self._transport is not None:
            if reason:
                self._server.refusals.record(reason, self.caller)
            self._transport.abort()

    def close(self) -> None:
        """Close after everything written is sent, if the client reads it in time."""
        self.is_over = True
        if self._transport is not None:
            self._set_deadline(self._limits.answer_s, "unread")
            self._transport.close()

    def resume_reading(self) -> None:
        """Continue to read a long call on an untrusted connection, or after a pause."""
        self._is_paused = False
        # With unread answers, `resume_writing` continues to read.
        is_ending = self.is_over or self._is_refusal_delayed
        if not is_ending and (self.is_waiting or not self._is_unread):
            self._transport.resume_reading()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the server."""
        self._transport = transport
        self.reached = self._address("sockname")
        self._set_deadline(self._limits.idle_s)
        self._server.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything: the parser and the connection reference each other."""
        self.is_over = True
        self._transport = self._parser = self._pieces = None
        self._body = b""
        self._server.remove(self)
        self._server.closed(self)

    def data_received(self, data: bytes) -> None:
        """Parse; the parser calls the methods below."""
        if self._ignores_input:
            return
        self._read_now, self._begun = len(data), 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as if the upgrade was not requested, and the last call here
        except httptools.HttpParserCallbackError as error:
            if not self._ignores_input:
                self._fail(error.__context__)
            return
        except httptools.HttpParserError:
            if not self._ignores_input:
                self.refuse(Refusal(400, "not_http", "not an HTTP request"))
            return
        if self._is_reading and not self._ignores_input:
            self._read_before += self._read_now
            if self._read_before > self._limits.head:
                self._check_length()

    def _check_length(self) -> None:
        """Refuse or pause a long call that has not arrived whole."""
        if self._is_in_head:
            self._refuse_head()
        elif self._read_before > self._limits.message:
            self._drop("body")
        elif not self.is_trusted and not self._is_paused:
            # Untrusted clients could otherwise keep the loop busy with reads alone.
            self._is_paused = True
            self._transport.pause_reading()
            self._server.queue_read(self)

    def pause_writing(self) -> None:
        """Stop reading until the answers are read: each further call would add one."""
        self._is_unread = True
        if not self.is_waiting:
            self._set_deadline(self._limits.answer_s, "unread")
            if not self.is_over:
                self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue to write the answer, or to read after the client has read the answers."""
        self._is_unread = False
        if self._pieces is not None and self.is_waiting:
            self._write_more()
            return
        if self._is_stream or self.is_over or self._is_refusal_delayed:
            return
        if not self._is_paused:
            self._transport.resume_reading()
        if self._is_reading:
            self._set_deadline(self._limits.call_s, "slow")
        else:
            self._begin_idle()

    def eof_received(self) -> bool:
        """Close, unless the call waits on a server that answers half-closed connections."""
        if self.is_waiting and self._server.answers_half_closed and not self._is_stream:
            self.is_last = True
            return True
        self.close()
        return False

    # httptools

    def on_message_begin(self) -> None:
        """Begin a call; end the connection if the last answer is still pending."""
        if self._ignores_input:
            raise _Over
        self._begun += 1
        if self.is_waiting or self._begun > _MOST_CALLS:
            self._drop("impatient")
            raise _Over
        self._is_reading = self._is_in_head = True
        self._expects = False
        if not self._is_unread:
            self._set_deadline(self._limits.call_s, "slow")
        self._server.begun(self)
        self._read_before = self._trailed = self.size = self._chunks = 0
        self.url = self._body = b""
        self.refusal = self._pieces = None
        self.headers.clear()
        self._codings.clear()

    def on_url(self, url: bytes) -> None:
        """Append a piece of the path."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers are only counted."""
        if self._is_in_head:
            self.headers.append((name, value))
            if len(self.headers) > _MOST_HEADERS:
                self._refuse_head()
                raise _Over
            size = len(name)
            if size == 6 and name.lower() == b"expect":
                self._expects = True
            elif size == 17 and name.lower() == b"transfer-encoding":
                self._codings.append(value.strip().lower())
            return
        self._trailed += len(name) + len(value) + _TRAILER_COST
        if self._trailed > self._limits.head:
            self._refuse_head()
            raise _Over

    def on_headers_complete(self) -> None:
        """Check the headers before the body is sent, and answer Expect: 100-continue."""
        self._is_in_head = False
        # The sum is computed only for a call longer than the bound; nearly all are shorter.
        if self._read_before + self._read_now > self._limits.head and self._is_head_long():
            self._refuse_head()
            raise _Over
        if self._codings not in _CODINGS.get(self._parser.get_http_version(), ()):
            self.refuse(
                Refusal(400, "not_http", "only HTTP/1.1 and the coding chunked are supported")
            )
            raise _Over
        if self._parser.should_upgrade() and self._has_body():
            # The parser takes the body for data of the other protocol.
            self.refuse(Refusal(400, "not_http", "upgrades are not supported"))
            raise _Over
        self.refusal = self._server.check(self)
        if self._expects:
            if self.refusal is not None:
                self.refuse(self.refusal)
                raise _Over
            self._transport.write(_CONTINUE)

    def on_chunk_header(self) -> None:
        """Count a chunk: very many small chunks cost too much CPU."""
        self._chunks += 1
        if self._chunks > _MOST_CHUNKS:
            self._drop("body")
            raise _Over

    def on_body(self, body: bytes) -> None:
        """Append a piece of the body.

        The body of a refused call is read and dropped: an answer sent while the client still
        writes the body is lost with the connection.
        """
        self.size += len(body)
        if self.refusal is not None or self.size > self._limits.body:
            self._body = b""
            self._server.release_buffer(self)
            return
        self._server.buffer(self, len(body))
        if self.is_over:
            raise _Over  # this was the oldest of too many bodies
        if not self._body:
            self._body = body  # nearly always the body is one piece
        elif isinstance(self._body, bytearray):
            self._body += body
        else:
            self._body = bytearray(self._body) + body

    def on_message_complete(self) -> None:
        """Pass the call on to be answered now or later."""
        self._is_reading = False
        self.is_last = self._parser.should_upgrade() or not self._parser.should_keep_alive()
        self._server.release_buffer(self)
        self._server.handle(self)

    # refusals

    def refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal and close the connection."""
        self._server.refusals.record(refusal.reason, self.caller)
        self._is_reading = False
        self.is_last = True
        self._after_delay(partial(self._server.send_sentence, self, refusal.status, refusal.why))

    def _drop(self, reason: str) -> None:
        """Count a refusal and close the connection without an answer."""
        self._server.refusals.record(reason, self.caller)
        self._after_delay(partial(self.abort, ""))

    def _after_delay(self, end: Callable[[], None]) -> None:
        """Call *end*, delayed on an untrusted connection: its client usually retries at once."""
        if self.is_trusted or not self._limits.refusal_delay_s:
            end()
            return
        self._is_refusal_delayed = True
        self._body = b""
        self._server.release_buffer(self)
        self._transport.pause_reading()
        self._set_deadline(self._limits.answer_s)
        self._server.loop.call_later(self._limits.refusal_delay_s, self._end_unless_over, end)

    def _end_unless_over(self, end: Callable[[], None]) -> None:
        if not self.is_over:
            end()

    def _fail(self, error: BaseException | None) -> None:
        """Log an unexpected error, answer 500 and close the connection."""
        log.error("a call failed", exc_info=error)
        self._is_reading = False
        self.is_last = True
        self._server.send_sentence(
            self, 500, "the extender failed to answer; its log has the details"
        )

    # answers

    def await_answer(self) -> None:
        """Mark the call as waiting for its answer; it has no deadline then."""
        self.is_waiting = True
        self.deadline = math.inf

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """Answer in one write."""
        self._begin_answer(status, headers, len(body), body)
        self._end_answer()

    def answer_in_pieces(
        self, status: int, headers: bytes, size: int, pieces: Iterator[memoryview]
    ) -> None:
        """Answer piece by piece, the next when the client has read enough of those before."""
        self._begin_answer(status, headers, size)
        self._pieces = pieces
        # One deadline for the whole answer, however much of it is read in between.
        self._set_deadline(self._limits.answer_s, "unread")
        self._write_more()

    def begin_stream(self, head: bytes, life_s: float) -> None:
        """Answer with a stream of events."""
        self._is_stream = self.is_last = True
        self._set_deadline(life_s + self._limits.answer_s, "unread")
        self._transport.write(head)

    def send(self, event: bytes) -> None:
        """Send an event, unless earlier ones are unread."""
        if not self.is_over and not self._is_unread:
            self._transport.write(event)

    def _write_more(self) -> None:
        for piece in self._pieces or ():
            self._transport.write(piece)
            if self._is_unread:
                return
        if not self._is_unread:
            self._pieces = None
            self._end_answer()

    def _begin_answer(self, status: int, headers: bytes, size: int, body: bytes = b"") -> None:
        """Write the head and *body*, of which more may follow."""
        self._transport.write(
            b"HTTP/1.1 %d %b\r\n%b%bcontent-length: %d\r\n\r\n%b"
            % (status, _PHRASES[status], headers, _CLOSE if self.is_last else b"", size, body)
        )

    def _end_answer(self) -> None:
        """Close or reuse the connection after a whole answer was written."""
        self.is_waiting = False
        if self.is_last:
            self.close()
        else:
            self._begin_idle()

    def _begin_idle(self) -> None:
        if self._is_unread:
            self._set_deadline(self._limits.answer_s, "unread")
        else:
            self._set_deadline(self._limits.idle_s)
        self._server.touch(self)
        if self._limits.response_pause_s and not self._is_paused and not self.is_over:
            self._is_paused = True
            self._transport.pause_reading()
            self._server.loop.call_later(self._limits.response_pause_s, self.resume_reading)

    def _set_deadline(self, seconds: float, reason: str = "") -> None:
        self.deadline = self._server.loop.time() + seconds
        self._deadline_reason = reason

    @property
    def _ignores_input(self) -> bool:
        """Return whether received bytes are ignored.

        After the last call of a connection they may not even be HTTP. An answer to them would be
        taken for the answer to that call, if it still waits.
        """
        return self.is_over or self._is_refusal_delayed or (self.is_waiting and self.is_last)

    def _has_body(self) -> bool:
        return any(
            name.lower() in (b"transfer-encoding", b"content-length") and value != b"0"
            for name, value in self.headers
        )

    def _is_head_long(self) -> bool:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        return size > self._limits.head

    def _refuse_head(self) -> None:
        most = self._limits.head
        self.refuse(Refusal(431, "head", f"path and headers are over {most} bytes"))

"""One HTTP/1.1 connection with bounds: bytes are parsed in C, one call at a time.

Events extend a deadline, arriving bytes never do. A call has its time from its first byte, an
answer from the moment it waits to be read, and an idle connection from its last answer. A
connection past its deadline is aborted: unsent data is dropped, because flushing it is what an
attacker wants.
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


class HttpConnection(asyncio.Protocol, ABC):
    """Reads calls; a subclass answers them."""

    def __init__(self, port: HttpServer) -> None:
        self._port = port
        self._limits = port.limits
        self._transport: Any = None
        self._parser: Any = httptools.HttpRequestParser(self)
        #: Set once a call on this connection was accepted.
        self.is_trusted = False
        #: When the server aborts this connection, and the reason if that counts as a refusal.
        self.deadline = math.inf
        self._deadline_reason = ""
        #: Buffered bytes of the body; the server counts them.
        self.buffered = 0
        self._is_over = False
        #: A call was refused, and the refusal is delayed.
        self._is_refusal_delayed = False
        self._is_reading = False
        self._is_in_head = False
        #: The client waits for 100 Continue before it sends the body.
        self._expects = False
        self._is_last = False
        self._is_unread = False
        #: Reading is paused until the server or a timer resumes it.
        self._is_paused = False
        #: A call has arrived whole and its answer was not sent yet.
        self._is_waiting = False
        #: Bytes of the call: in earlier reads, in this read, and of trailers.
        self._read_before = self._read_now = self._trailed = 0
        #: Chunks of the body, and calls that begin in this read.
        self._chunks = self._begun = 0
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        #: The transfer codings of the body, in order.
        self._codings: list[bytes] = []
        self._body: bytes | bytearray = b""
        self._size = 0
        self._refusal: Refusal | None = None

    @property
    def has_call(self) -> bool:
        """Return whether a call is being read or waits for its answer."""
        return self._is_reading or self._is_waiting

    @property
    def caller(self) -> str:
        """Return the address of the client."""
        peer = self._transport and self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def deadline_passed(self) -> None:
        """Abort, because the deadline has passed."""
        self.abort(self._deadline_reason)

    def abort(self, reason: str) -> None:
        """Close at once and drop unsent data; without a *reason* no refusal is counted."""
        self._is_over = True
        self._body = b""
        if self._transport is not None:
            if reason:
                self._port.refusals.record(reason, self.caller)
            self._transport.abort()

    def close(self) -> None:
        """Close after everything written is sent, if the client reads it in time."""
        self._is_over = True
        if self._transport is not None:
            self._set_deadline(self._limits.answer_s, "unread")
            self._transport.close()

    def resume_reading(self) -> None:
        """Continue to read a long call on an untrusted connection, or after a pause."""
        self._is_paused = False
        # With unread answers, `resume_writing` continues to read.
        is_ending = self._is_over or self._is_refusal_delayed
        if not is_ending and (self._is_waiting or not self._is_unread):
            self._transport.resume_reading()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the server."""
        self._transport = transport
        self._set_deadline(self._limits.idle_s)
        self._port.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything: the parser and the connection reference each other."""
        self._is_over = True
        self._transport = self._parser = None
        self._body = b""
        self._port.remove(self)

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
                self._refuse(Refusal(400, "not_http", "not an HTTP request"))
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
            self._port.queue_read(self)

    def pause_writing(self) -> None:
        """Stop reading until the answers are read: each further call would add one."""
        self._is_unread = True
        if not self._is_waiting:
            self._set_deadline(self._limits.answer_s, "unread")
            if not self._is_over:
                self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue to read after the client has read the answers."""
        self._is_unread = False
        if self._is_over or self._is_refusal_delayed:
            return
        if not self._is_paused:
            self._transport.resume_reading()
        if self._is_reading:
            self._set_deadline(self._limits.call_s, "slow")
        else:
            self._begin_idle()

    def eof_received(self) -> bool:
        """Treat a half-closed connection as closed."""
        self.close()
        return False

    # httptools

    def on_message_begin(self) -> None:
        """Begin a call; end the connection if the last answer is still pending."""
        self._begun += 1
        if not self._ignores_input and (self._is_waiting or self._begun > _MOST_CALLS):
            self._drop("impatient")
        if self._ignores_input:
            raise _Over
        self._is_reading = self._is_in_head = True
        self._expects = False
        if not self._is_unread:
            self._set_deadline(self._limits.call_s, "slow")
        self._port.touch(self)
        self._read_before = self._trailed = self._size = self._chunks = 0
        self._url = self._body = b""
        self._refusal = None
        self._headers.clear()
        self._codings.clear()

    def on_url(self, url: bytes) -> None:
        """Append a piece of the path."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers are only counted."""
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
            self._refuse(
                Refusal(400, "not_http", "only HTTP/1.1 and the coding chunked are supported")
            )
            raise _Over
        if self._parser.should_upgrade() and self._has_body():
            # The parser takes the body for data of the other protocol.
            self._refuse(Refusal(400, "not_http", "upgrades are not supported"))
            raise _Over
        self._refusal = self._check_headers()
        if self._expects:
            if self._refusal is not None:
                self._refuse(self._refusal)
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
        if self._ignores_input:
            raise _Over
        self._size += len(body)
        if self._refusal is not None or self._size > self._limits.body:
            self._body = b""
            self._port.release_buffer(self)
            return
        self._port.buffer(self, len(body))
        if not self._body:
            self._body = body  # nearly always the body is one piece
        elif isinstance(self._body, bytearray):
            self._body += body
        else:
            self._body = bytearray(self._body) + body

    def on_message_complete(self) -> None:
        """Pass the call on to be answered now or later."""
        if self._ignores_input:
            raise _Over
        self._is_reading = False
        self._is_last = self._parser.should_upgrade() or not self._parser.should_keep_alive()
        self._port.release_buffer(self)
        self._handle_call()

    # for subclasses

    @abstractmethod
    def _handle_call(self) -> None:
        """Answer a call that has arrived whole."""

    @abstractmethod
    def _send_sentence(self, status: int, sentence: str) -> None:
        """Answer with *status* and a sentence."""

    def _check_headers(self) -> Refusal | None:
        """Return why the headers of a call are refused, None if they are not."""
        return None

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal and close the connection."""
        self._port.refusals.record(refusal.reason, self.caller)
        self._is_reading = False
        self._is_last = True
        self._after_delay(partial(self._send_sentence, refusal.status, refusal.why))

    def _drop(self, reason: str) -> None:
        """Count a refusal and close the connection without an answer."""
        self._port.refusals.record(reason, self.caller)
        self._after_delay(partial(self.abort, ""))

    def _after_delay(self, end: Callable[[], None]) -> None:
        """Call *end*, delayed on an untrusted connection: its client usually retries at once."""
        if self.is_trusted or not self._limits.refusal_delay_s:
            end()
            return
        self._is_refusal_delayed = True
        self._body = b""
        self._port.release_buffer(self)
        self._transport.pause_reading()
        self._set_deadline(self._limits.answer_s)
        self._port.loop.call_later(self._limits.refusal_delay_s, self._end_unless_over, end)

    def _end_unless_over(self, end: Callable[[], None]) -> None:
        if not self._is_over:
            end()

    def _fail(self, error: BaseException | None) -> None:
        """Log an unexpected error, answer 500 and close the connection."""
        log.error("a call failed", exc_info=error)
        self._is_reading = False
        self._is_last = True
        self._send_sentence(500, "the extender failed to answer; its log has the details")

    def _await_answer(self) -> None:
        """Mark the call as waiting for its answer; it has no deadline then."""
        self._is_waiting = True
        self.deadline = math.inf

    def _begin_answer(self, status: int, headers: bytes, size: int, body: bytes = b"") -> None:
        """Write the head and *body*, of which more may follow."""
        self._transport.write(
            b"HTTP/1.1 %d %b\r\n%b%bcontent-length: %d\r\n\r\n%b"
            % (status, _PHRASES[status], headers, _CLOSE if self._is_last else b"", size, body)
        )

    def _end_answer(self) -> None:
        """Close or reuse the connection after a whole answer was written."""
        self._is_waiting = False
        if self._is_last:
            self.close()
        else:
            self._begin_idle()

    def _begin_idle(self) -> None:
        if self._is_unread:
            self._set_deadline(self._limits.answer_s, "unread")
        else:
            self._set_deadline(self._limits.idle_s)
        self._port.touch(self)
        if self._limits.response_pause_s and not self._is_paused and not self._is_over:
            self._is_paused = True
            self._transport.pause_reading()
            self._port.loop.call_later(self._limits.response_pause_s, self.resume_reading)

    def _set_deadline(self, seconds: float, reason: str = "") -> None:
        self.deadline = self._port.loop.time() + seconds
        self._deadline_reason = reason

    @property
    def _ignores_input(self) -> bool:
        """Return whether received bytes are ignored.

        After the last call of a connection they may not even be HTTP. An answer to them would be
        taken for the answer to that call, if it still waits.
        """
        return self._is_over or self._is_refusal_delayed or (self._is_waiting and self._is_last)

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
        self._refuse(Refusal(431, "head", f"path and headers are over {most} bytes"))

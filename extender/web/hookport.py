"""The hook port: HTTP/1.1 read in C, answered in one write, nothing in between.

kube-scheduler asks in its serial loop, twice for every pod of the cluster, so what a request
costs besides the answer is what we cost everybody. A server that knows nothing of us takes three
times the CPU for a filter and four times for a held bind (0018).

A connection carries one call at a time, as Go's client does it. Everything runs on the loop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from http import HTTPStatus
from typing import Any

import httptools

from extender.web import wire
from extender.web.hooks import BODY_LIMIT, NO_CALL, VERBS, Hooks
from extender.web.pacing import AnswerPacing

#: kube-scheduler keeps idle connections for 90 s and does not resend a POST on one we closed.
KEEP_ALIVE_S = 120.0
#: A call that has begun must have come in whole by then.
PATIENCE_S = 30.0
#: So must a handshake; kube-scheduler's filter entry gives up a call after two seconds.
HANDSHAKE_S = 10.0
_SWEEP_S = 10.0
#: A body this much over the limit is not even read to its end.
_DRAIN_LIMIT = 16 * BODY_LIMIT

_CLOSE = b"connection: close\r\n"
_VERB_OF = {f"{prefix}/{verb}".encode(): verb for prefix in ("", "/v1") for verb in VERBS}
_REASONS = {code: HTTPStatus(code).phrase.encode() for code in (200, 400, 404, 405, 413)}


class HookPort:
    """Listens on one socket and owns its connections."""

    def __init__(
        self,
        hooks: Hooks,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.hooks = hooks
        self.loop = loop
        self._tls = tls
        self.thread = threading.get_ident()
        self.connections: set[HookConnection] = set()
        self.pacing = AnswerPacing(loop)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen(self, listening: socket.socket) -> None:
        """Begin to answer; called on the loop, which may not be left afterwards."""
        self.thread = threading.get_ident()
        self._server = await self.loop.create_server(
            lambda: HookConnection(self),
            sock=listening,
            ssl=self._tls,
            ssl_handshake_timeout=HANDSHAKE_S if self._tls is not None else None,
        )
        self._sweep()

    async def close(self, grace_s: float) -> None:
        """Take no more connections, and end those there are when their call is answered."""
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.pacing.close()
        end = self.loop.time() + grace_s
        while any(each.is_asked for each in self.connections) and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for each in tuple(self.connections):
            each.hang_up()

    def _sweep(self) -> None:
        now = self.loop.time()
        for each in tuple(self.connections):
            if each.is_overdue(now):
                each.hang_up()
        self._sweeper = self.loop.call_later(_SWEEP_S, self._sweep)


class HookConnection(asyncio.Protocol):
    """One connection of kube-scheduler."""

    def __init__(self, port: HookPort) -> None:
        self._port = port
        self._hooks = port.hooks
        self._pacing = port.pacing
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        self._size = 0
        self._is_reading = False
        self._is_last = False
        #: A bind waits for its answer; its call is known once the barrier has taken it.
        self._is_waiting = False
        self._call = NO_CALL
        self._active_at = port.loop.time()

    @property
    def is_asked(self) -> bool:
        """Ask whether a call is being read or waits for its answer."""
        return self._is_reading or self._is_waiting

    def is_overdue(self, now: float) -> bool:
        """Ask whether nothing has come for too long; a held bind may take its time."""
        patience_s = PATIENCE_S if self._is_reading else KEEP_ALIVE_S
        return not self._is_waiting and now - self._active_at > patience_s

    def hang_up(self) -> None:
        """Close after what was written."""
        if self._transport is not None:
            self._transport.close()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._port.connections.add(self)
        self._pacing.idle.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the barrier if somebody was still waiting."""
        self._port.connections.discard(self)
        self._transport = None
        self._pacing.idle.discard(self)
        if self._is_waiting:
            self._is_waiting = False
            self._hooks.peer_gone(self._call)

    def data_received(self, data: bytes) -> None:
        """Read; the parser calls the methods below."""
        self._active_at = self._port.loop.time()
        if self._is_waiting:
            self.hang_up()  # nobody asks a second time before the answer
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._is_last = True
                self._answer(400, wire.write_error("not an HTTP request"))

    # httptools

    def on_message_begin(self) -> None:
        """A call begins."""
        self._is_reading = True
        self._pacing.idle.discard(self)
        self._url = b""
        self._body.clear()
        self._size = 0

    def on_url(self, url: bytes) -> None:
        """Keep a piece of the path."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Let a careful client go on: it asks before it sends a large body."""
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body.

        Past the limit the rest is drained, not kept: an answer sent into a body that is still
        being written is lost with the connection.
        """
        self._size += len(body)
        if self._size <= BODY_LIMIT:
            self._body.append(body)
        elif self._size > _DRAIN_LIMIT:
            self.hang_up()

    def on_message_complete(self) -> None:
        """Answer, or wait at the barrier."""
        self._is_reading = False
        self._is_last = not self._parser.should_keep_alive()
        path = self._url.partition(b"?")[0]
        verb = _VERB_OF.get(path)
        if verb is None:
            self._answer(404, wire.write_error(f"no such hook: {path.decode('latin-1')}"))
        elif self._parser.get_method() != b"POST":
            self._answer(405, wire.write_error(f"{verb} is a POST"))
        elif self._size > BODY_LIMIT:
            self._answer(413, wire.write_error(f"the body is over {BODY_LIMIT} bytes"))
        else:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            if verb != "bind":
                self._answer(200, self._hooks.answer(verb, body))
                return
            self._is_waiting = True
            self._pacing.bind_came()
            self._call = self._hooks.bind(body, self._settled)

    # answers

    def _settled(self, error: str) -> None:
        """Hear from the barrier, nearly always on the loop itself."""
        if threading.get_ident() == self._port.thread:
            self._answer_bind(error)
        else:
            self._port.loop.call_soon_threadsafe(self._answer_bind, error)

    def _answer_bind(self, error: str) -> None:
        if not self._is_waiting:
            return  # the caller has left
        if error:
            self._end_bind(error)
        else:
            self._pacing.settled(self)

    def answer_now(self) -> None:
        """Answer a bind that succeeded, unless the caller has left."""
        if self._is_waiting:
            self._end_bind("")

    def _end_bind(self, error: str) -> None:
        self._is_waiting = False
        self._answer(200, self._hooks.bound(error))

    def _answer(self, status: int, body: bytes) -> None:
        if self._transport is None:
            return
        self._pacing.idle.add(self)
        # Whoever asks a standby was led here before: a new connection finds who leads now.
        is_last = self._is_last or bool(self._hooks.standby())
        self._transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
            % (status, _REASONS[status], _CLOSE if is_last else b"", len(body), body)
        )
        if is_last:
            self.hang_up()

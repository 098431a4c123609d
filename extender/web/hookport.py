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

from extender.metrics import Metrics
from extender.web import wire
from extender.web.hooks import BODY_LIMIT, NO_CALL, VERBS, Hooks
from extender.web.http.callers import Callers
from extender.web.http.connection import BoundedConnection
from extender.web.http.port import BoundedPort, CallerLimits
from extender.web.http.refusals import Refusal
from extender.web.pacing import AnswerPacing

#: Connections that wait for a gang come on top; --max-holds bounds those.
LIMITS = CallerLimits(connections=256, body=BODY_LIMIT, message=2 * BODY_LIMIT)

#: How soon somebody is asked for again who came before we were ready.
_EARLY_S = 0.05

_JSON = b"content-type: application/json\r\n"
_VERB_OF = {f"{prefix}/{verb}".encode(): verb for prefix in ("", "/v1") for verb in VERBS}


class HookPort(BoundedPort):
    """Where kube-scheduler asks; with a *secret*, whoever does not bear it gets nothing."""

    def __init__(
        self,
        hooks: Hooks,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None = None,
        *,
        secret: bytes = b"",
        limits: CallerLimits = LIMITS,
    ) -> None:
        super().__init__("hooks", loop, metrics, limits, tls)
        self.hooks = hooks
        self.callers = Callers(is_plain=self.is_plain, secret=secret)
        self.thread = threading.get_ident()
        self.pacing = AnswerPacing(loop)

    def connection(self) -> asyncio.Protocol:
        """Make the protocol of a new connection."""
        return HookConnection(self)

    async def listen(self, listening: socket.socket) -> None:
        """Begin to answer; called on the loop, which may not be left afterwards."""
        self.thread = threading.get_ident()
        await super().listen(listening)

    async def drain(self, grace_s: float) -> None:
        """Wait for those who asked; who is in hears with his next answer that it was the last."""
        self.pacing.close()
        await super().drain(grace_s)


class HookConnection(BoundedConnection):
    """One connection of kube-scheduler."""

    _port: HookPort

    def __init__(self, port: HookPort) -> None:
        super().__init__(port)
        self._hooks = port.hooks
        self._pacing = port.pacing
        #: Of a bind that waits, once the barrier has taken it.
        self._call = NO_CALL
        self._reached = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        here = transport.get_extra_info("sockname")
        self._reached = str(here[0]) if here else ""
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the barrier if somebody was still waiting."""
        super().connection_lost(exc)
        self._pacing.idle.discard(self)
        if self._is_waiting:
            self._is_waiting = False
            self._hooks.peer_gone(self._call)

    def on_message_begin(self) -> None:
        """A call begins."""
        super().on_message_begin()
        self._pacing.idle.discard(self)

    def _judge(self) -> Refusal | None:
        return self._port.callers.judge(self._headers, self._reached)

    def _called(self) -> None:
        """Answer, or wait at the barrier."""
        path = self._url.partition(b"?")[0]
        verb = _VERB_OF.get(path)
        if verb is None:
            self._turn_away(Refusal(404, "no_hook", f"no such hook: {path.decode('latin-1')}"))
        elif self._parser.get_method() != b"POST":
            self._turn_away(Refusal(405, "no_hook", f"{verb} is a POST"))
        elif self._refusal is not None:
            self._turn_away(self._refusal)
        elif self._size > BODY_LIMIT:
            self._turn_away(Refusal(200, "body", f"the body is over {BODY_LIMIT} bytes"))
        else:
            body, self._body = bytes(self._body), b""
            self._port.had_good_answer(self)
            if verb != "bind":
                self._ask(verb, body)
                return
            self._wait()
            self._port.spare(self)
            self._pacing.bind_came()
            self._call = self._hooks.bind(body, self._settled)

    def _ask(self, verb: str, body: bytes) -> None:
        """Answer now or in a moment."""
        if self._is_over:
            return
        said = self._hooks.answer(verb, body)
        if said.is_early and not self._port.is_draining:
            self._wait()
            self._port.loop.call_later(_EARLY_S, self._ask, verb, body)
        elif said.after_s:
            self._wait()
            self._port.loop.call_later(said.after_s, self._answer, 200, said.body)
        else:
            self._answer(200, said.body)

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

    def _say(self, status: int, sentence: str) -> None:
        self._answer(status, wire.write_error(sentence))

    def _answer(self, status: int, body: bytes) -> None:
        if self._is_over:
            return
        if self.is_known:
            self._pacing.idle.add(self)  # strangers' connections are none of kube-scheduler's two
        # Whoever asks a standby was led here before: a new connection finds who leads now.
        is_elsewhere = self._port.is_draining or bool(self._hooks.standby())
        self._is_last = self._is_last or is_elsewhere
        self._begin_answer(status, _JSON, len(body), body)
        self._end_answer()

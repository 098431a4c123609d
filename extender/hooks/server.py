"""The hook port: HTTP/1.1 read in C, answered in one write, nothing in between.

kube-scheduler asks in its serial loop, twice for every pod of the cluster, so what a request
costs besides the answer is what we cost everybody. A server that knows nothing of us takes three
times the CPU for a filter and four times for a held bind (0018).

A connection carries one call at a time, as Go's client does it. Everything runs on the loop.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import socket
import ssl
import threading
from base64 import b64decode
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

from extender.hooks import wire
from extender.hooks.handlers import BODY_LIMIT, NO_CALL, VERBS, Hooks
from extender.hooks.http_connection import HttpConnection
from extender.hooks.http_server import HttpServer, Limits
from extender.hooks.limits import Refusal
from extender.metrics import Metrics
from extender.settings import is_loopback

_BROWSER = Refusal(403, "browser", "the hooks are not for browsers")
_NO_HOST = Refusal(400, "host", "a request names one Host")
_MEDIA_TYPE = Refusal(415, "media_type", "a hook is called with application/json")
_HOST = Refusal(
    200,
    "host",
    "the extender is not known by the Host of this call; over plain HTTP write the address it"
    " listens on, or localhost, into kube-scheduler's urlPrefix",
)
_SECRET = Refusal(
    200,
    "secret",
    "the call does not bear the secret of the hooks; kube-scheduler gets it from its urlPrefix,"
    " http://hooks:SECRET@HOST:PORT",
)


class CallerCheck:
    """Knows what the calls of kube-scheduler look like on one port."""

    def __init__(self, *, is_plain: bool, secret: bytes = b"") -> None:
        #: With TLS the handshake has said who calls, and the certificate by which name.
        self._is_plain = is_plain
        self._secret = secret
        # All that kube-scheduler says of its calls is the same each time, but for their length.
        self._remember = lru_cache(maxsize=64)(self._judge)

    def check(self, headers: Iterable[tuple[bytes, bytes]], reached: str) -> Refusal | None:
        """Say what is wrong with a call to the address *reached*."""
        return self._remember(tuple([e for e in headers if e[0] != b"Content-Length"]), reached)

    def _judge(self, headers: tuple[tuple[bytes, bytes], ...], reached: str) -> Refusal | None:
        hosts, types, keys = [], [], []
        for spelt, value in headers:
            name = spelt.lower()
            if name == b"host":
                hosts.append(value)
            elif name == b"content-type":
                types.append(value)
            elif name == b"authorization":
                keys.append(value)
            elif name == b"origin" or name.startswith(b"sec-fetch-"):
                return _BROWSER
        if len(hosts) != 1:
            return _NO_HOST
        if len(types) != 1 or not _is_json(types[0]):
            return _MEDIA_TYPE
        if self._is_plain and not _is_here(hosts[0], reached):
            return _HOST
        if self._secret and not (len(keys) == 1 and self._is_secret(keys[0])):
            return _SECRET
        return None

    def _is_secret(self, key: bytes) -> bool:
        scheme, _, words = key.partition(b" ")
        try:
            password = b64decode(words.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return False
        return scheme.lower() == b"basic" and hmac.compare_digest(password, self._secret)


def _is_json(media_type: bytes) -> bool:
    return media_type.partition(b";")[0].strip().lower() == b"application/json"


def _is_here(host: bytes, reached: str) -> bool:
    """Ask whether *host*, with or without a port, is where the call has come to."""
    text = host.decode("latin-1").strip()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    return bool(name) and (name == reached or is_loopback(name.lower()))


#: What Go's client keeps for one host.
_IDLE = 2
#: Longer than the members of a small gang are apart, shorter than anybody notices.
_LONGEST_S = 0.25


class Answerer(Protocol):
    """A connection with an answer to give."""

    def answer_now(self) -> None:
        """Give it."""


class BindResponses:
    """Says when each answer leaves; everything happens on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: With the moment at which each goes in any case.
        self._waiting: deque[tuple[float, Answerer]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        #: Open connections on which nothing is asked.
        self.idle: set[Answerer] = set()

    def settled(self, answerer: Answerer) -> None:
        """Let *answerer* answer now or soon."""
        if len(self.idle) < _IDLE:
            answerer.answer_now()
            return
        self._waiting.append((self._loop.time() + _LONGEST_S, answerer))
        if self._timer is None:
            self._timer = self._loop.call_later(_LONGEST_S, self._overdue)

    def bind_came(self) -> None:
        """Hear that a bind has come in: one answer may leave for it."""
        if self._waiting and len(self.idle) < _IDLE:
            self._waiting.popleft()[1].answer_now()

    def close(self) -> None:
        """Let every answer leave."""
        while self._waiting:
            self._waiting.popleft()[1].answer_now()

    def _overdue(self) -> None:
        self._timer = None
        while self._waiting and self._waiting[0][0] <= self._loop.time():
            self._waiting.popleft()[1].answer_now()
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._overdue)


#: Connections that wait for a gang come on top; --max-holds bounds those.
LIMITS = Limits(connections=256, body=BODY_LIMIT, message=2 * BODY_LIMIT)
#: How soon somebody is asked for again who came before we were ready.
_EARLY_S = 0.05
_JSON = b"content-type: application/json\r\n"
_VERB_OF = {f"{prefix}/{verb}".encode(): verb for prefix in ("", "/v1") for verb in VERBS}


class HookServer(HttpServer):
    """Where kube-scheduler asks; with a *secret*, whoever does not bear it gets nothing."""

    def __init__(
        self,
        hooks: Hooks,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None = None,
        *,
        secret: bytes = b"",
        limits: Limits = LIMITS,
    ) -> None:
        super().__init__("hooks", loop, metrics, limits, tls)
        self.hooks = hooks
        self.callers = CallerCheck(is_plain=self.is_plain, secret=secret)
        self.thread = threading.get_ident()
        self.pacing = BindResponses(loop)

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


class HookConnection(HttpConnection):
    """One connection of kube-scheduler."""

    _port: HookServer

    def __init__(self, port: HookServer) -> None:
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
        return self._port.callers.check(self._headers, self._reached)

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
            self._port.trust(self)
            if verb != "bind":
                self._ask(verb, body)
                return
            self._wait()
            self._port.never_evict(self)
            self._pacing.bind_came()
            self._call = self._hooks.bind(body, self._settled)

    def _ask(self, verb: str, body: bytes) -> None:
        """Answer now or in a moment."""
        if self._is_over:
            return
        said = self._hooks.answer(verb, body)
        if said.ask_again and not self._port.is_draining:
            self._wait()
            self._port.loop.call_later(_EARLY_S, self._ask, verb, body)
        elif said.delay_s:
            self._wait()
            self._port.loop.call_later(said.delay_s, self._answer, 200, said.body)
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
        if self.is_trusted:
            self._pacing.idle.add(self)  # strangers' connections are none of kube-scheduler's two
        # Whoever asks a standby was led here before: a new connection finds who leads now.
        is_elsewhere = self._port.is_draining or bool(self._hooks.standby())
        self._is_last = self._is_last or is_elsewhere
        self._begin_answer(status, _JSON, len(body), body)
        self._end_answer()

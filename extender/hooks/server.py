"""The hook server: HTTP/1.1 parsed in C, each answer in one write.

kube-scheduler calls in its serial loop, twice for every pod of the cluster, so the cost of a
request is paid by every pod. A general-purpose server takes three times the CPU for a filter and
four times for a waiting bind (0072).

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
    "the Host of this call is not an address of the extender; over plain HTTP set kube-scheduler's"
    " urlPrefix to the address the extender listens on, or to localhost",
)
_SECRET = Refusal(
    200,
    "secret",
    "the call does not carry the hook secret; kube-scheduler takes it from its urlPrefix,"
    " http://hooks:SECRET@HOST:PORT",
)


class CallerCheck:
    """Checks whether the headers of a call can come from kube-scheduler."""

    def __init__(self, *, is_plain: bool, secret: bytes = b"") -> None:
        #: With TLS the handshake has verified the client and the name of the server.
        self._is_plain = is_plain
        self._secret = secret
        # kube-scheduler's headers are the same each time, except for Content-Length.
        self._remember = lru_cache(maxsize=64)(self._check_headers)

    def check(self, headers: Iterable[tuple[bytes, bytes]], reached: str) -> Refusal | None:
        """Return why a call to the address *reached* is refused, None if it is accepted."""
        return self._remember(tuple([e for e in headers if e[0] != b"Content-Length"]), reached)

    def _check_headers(
        self, headers: tuple[tuple[bytes, bytes], ...], reached: str
    ) -> Refusal | None:
        hosts, types, credentials = [], [], []
        for key, value in headers:
            name = key.lower()
            if name == b"host":
                hosts.append(value)
            elif name == b"content-type":
                types.append(value)
            elif name == b"authorization":
                credentials.append(value)
            elif name == b"origin" or name.startswith(b"sec-fetch-"):
                return _BROWSER
        if len(hosts) != 1:
            return _NO_HOST
        if len(types) != 1 or not _is_json(types[0]):
            return _MEDIA_TYPE
        if self._is_plain and not _is_reached(hosts[0], reached):
            return _HOST
        if self._secret and not (len(credentials) == 1 and self._is_secret(credentials[0])):
            return _SECRET
        return None

    def _is_secret(self, key: bytes) -> bool:
        scheme, _, encoded = key.partition(b" ")
        try:
            password = b64decode(encoded.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return False
        return scheme.lower() == b"basic" and hmac.compare_digest(password, self._secret)


def _is_json(media_type: bytes) -> bool:
    return media_type.partition(b";")[0].strip().lower() == b"application/json"


def _is_reached(host: bytes, reached: str) -> bool:
    """Return whether *host*, with or without a port, is the address *reached* or loopback."""
    text = host.decode("latin-1").strip()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    return bool(name) and (name == reached or is_loopback(name.lower()))


#: The idle connections that Go's client keeps for one host.
_MAX_IDLE = 2
#: Longer than the gaps between the binds of a small gang, too short to matter.
_MAX_DELAY_S = 0.25


class BindResponses:
    """Decides when the answer to each bind is sent; everything happens on the loop.

    kube-scheduler closes connections beyond its idle limit and must open them anew, so an answer
    waits while two connections are idle.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: With the time at which each answer is sent in any case.
        self._waiting: deque[tuple[float, HookConnection]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        #: Open connections without a call.
        self.idle: set[HookConnection] = set()

    def bound(self, connection: HookConnection) -> None:
        """Send the answer now or soon."""
        if len(self.idle) < _MAX_IDLE:
            connection.answer_now()
            return
        self._waiting.append((self._loop.time() + _MAX_DELAY_S, connection))
        if self._timer is None:
            self._timer = self._loop.call_later(_MAX_DELAY_S, self._send_overdue)

    def bind_came(self) -> None:
        """Called when a bind arrives: one answer may be sent for it."""
        if self._waiting and len(self.idle) < _MAX_IDLE:
            self._waiting.popleft()[1].answer_now()

    def close(self) -> None:
        """Send every answer."""
        while self._waiting:
            self._waiting.popleft()[1].answer_now()

    def _send_overdue(self) -> None:
        self._timer = None
        while self._waiting and self._waiting[0][0] <= self._loop.time():
            self._waiting.popleft()[1].answer_now()
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._send_overdue)


#: Connections with a waiting bind come on top; --max-holds bounds those.
LIMITS = Limits(connections=256, body=BODY_LIMIT, message=2 * BODY_LIMIT)
#: How soon a call that came before we were ready is tried again.
_ASK_AGAIN_S = 0.05
_JSON = b"content-type: application/json\r\n"
_VERB_OF = {f"{prefix}/{verb}".encode(): verb for prefix in ("", "/v1") for verb in VERBS}


class HookServer(HttpServer):
    """The server that kube-scheduler calls; with a *secret*, calls without it are refused."""

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
        self.caller_check = CallerCheck(is_plain=self.is_plain, secret=secret)
        self.thread = threading.get_ident()
        self.bind_responses = BindResponses(loop)

    def connection(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return HookConnection(self)

    async def listen(self, listening: socket.socket) -> None:
        """Start to accept; called on the loop, and `end` must be called on the same loop."""
        self.thread = threading.get_ident()
        await super().listen(listening)

    async def drain(self, grace_s: float) -> None:
        """Wait for calls in progress; the next answer on each connection closes it."""
        self.bind_responses.close()
        await super().drain(grace_s)


class HookConnection(HttpConnection):
    """One connection of kube-scheduler."""

    _port: HookServer

    def __init__(self, port: HookServer) -> None:
        super().__init__(port)
        self._hooks = port.hooks
        self._bind_responses = port.bind_responses
        #: The waiting bind, once the permit runner has accepted it.
        self._call = NO_CALL
        self._reached = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the local address of the connection."""
        here = transport.get_extra_info("sockname")
        self._reached = str(here[0]) if here else ""
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the permit runner if a bind was still waiting."""
        super().connection_lost(exc)
        self._bind_responses.idle.discard(self)
        if self._is_waiting:
            self._is_waiting = False
            self._hooks.peer_gone(self._call)

    def on_message_begin(self) -> None:
        """Begin a call; the connection is not idle any more."""
        super().on_message_begin()
        self._bind_responses.idle.discard(self)

    def _check_headers(self) -> Refusal | None:
        return self._port.caller_check.check(self._headers, self._reached)

    def _handle_call(self) -> None:
        """Answer, or pass a bind to the permit runner."""
        path = self._url.partition(b"?")[0]
        verb = _VERB_OF.get(path)
        if verb is None:
            self._refuse(Refusal(404, "no_hook", f"no such hook: {path.decode('latin-1')}"))
        elif self._parser.get_method() != b"POST":
            self._refuse(Refusal(405, "no_hook", f"{verb} is a POST"))
        elif self._refusal is not None:
            self._refuse(self._refusal)
        elif self._size > BODY_LIMIT:
            self._refuse(Refusal(200, "body", f"the body is over {BODY_LIMIT} bytes"))
        else:
            body, self._body = bytes(self._body), b""
            self._port.trust(self)
            if verb != "bind":
                self._call_hook(verb, body)
                return
            self._await_answer()
            self._port.never_evict(self)
            self._bind_responses.bind_came()
            self._call = self._hooks.bind(body, self._take_bind_outcome)

    def _call_hook(self, verb: str, body: bytes) -> None:
        """Answer now or after a delay."""
        if self._is_over:
            return
        answer = self._hooks.answer(verb, body)
        if answer.ask_again and not self._port.is_draining:
            self._await_answer()
            self._port.loop.call_later(_ASK_AGAIN_S, self._call_hook, verb, body)
        elif answer.delay_s:
            self._await_answer()
            self._port.loop.call_later(answer.delay_s, self._answer, 200, answer.body)
        else:
            self._answer(200, answer.body)

    # answers

    def _take_bind_outcome(self, error: str) -> None:
        """Take the outcome of a bind, nearly always on the loop itself."""
        if threading.get_ident() == self._port.thread:
            self._answer_bind(error)
        else:
            self._port.loop.call_soon_threadsafe(self._answer_bind, error)

    def _answer_bind(self, error: str) -> None:
        if not self._is_waiting:
            return  # the client has disconnected
        if error:
            self._end_bind(error)
        else:
            self._bind_responses.bound(self)

    def answer_now(self) -> None:
        """Answer a successful bind, unless the client has disconnected."""
        if self._is_waiting:
            self._end_bind("")

    def _end_bind(self, error: str) -> None:
        self._is_waiting = False
        self._answer(200, self._hooks.bound(error))

    def _send_sentence(self, status: int, sentence: str) -> None:
        self._answer(status, wire.write_error(sentence))

    def _answer(self, status: int, body: bytes) -> None:
        if self._is_over:
            return
        if self.is_trusted:
            # Untrusted connections are not among kube-scheduler's idle ones.
            self._bind_responses.idle.add(self)
        # A client reached a standby by an old route: a new connection finds the leader.
        must_reconnect = self._port.is_draining or bool(self._hooks.standby())
        self._is_last = self._is_last or must_reconnect
        self._begin_answer(status, _JSON, len(body), body)
        self._end_answer()

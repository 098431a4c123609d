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
from collections.abc import Callable, Iterable
from functools import lru_cache, partial

from extender.hooks import wire
from extender.hooks.handlers import BODY_LIMIT, NO_CALL, VERBS, Hooks
from extender.hooks.http_connection import HttpConnection
from extender.hooks.http_server import HttpServer
from extender.hooks.limits import Limits, Refusal
from extender.metrics import Metrics
from extender.permit.messages import CallId
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

    def __init__(
        self, loop: asyncio.AbstractEventLoop, answer: Callable[[HttpConnection], None]
    ) -> None:
        self._loop = loop
        self._answer = answer
        #: With the time at which each answer is sent in any case.
        self._waiting: deque[tuple[float, HttpConnection]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        #: Open connections without a call.
        self.idle: set[HttpConnection] = set()

    def bound(self, call: HttpConnection) -> None:
        """Answer *call* now or soon."""
        if len(self.idle) < _MAX_IDLE:
            self._answer(call)
            return
        self._waiting.append((self._loop.time() + _MAX_DELAY_S, call))
        if self._timer is None:
            self._timer = self._loop.call_later(_MAX_DELAY_S, self._send_overdue)

    def bind_came(self) -> None:
        """Called when a bind arrives: one answer may be sent for it."""
        if self._waiting and len(self.idle) < _MAX_IDLE:
            self._answer(self._waiting.popleft()[1])

    def close(self) -> None:
        """Send every answer."""
        while self._waiting:
            self._answer(self._waiting.popleft()[1])

    def _send_overdue(self) -> None:
        self._timer = None
        while self._waiting and self._waiting[0][0] <= self._loop.time():
            self._answer(self._waiting.popleft()[1])
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
        self._hooks = hooks
        self._caller_check = CallerCheck(is_plain=self.is_plain, secret=secret)
        self._thread = threading.get_ident()
        self.bind_responses = BindResponses(loop, self._end_bind)
        #: The last bind of each connection that has one, once the permit runner has accepted it.
        self._binds: dict[HttpConnection, CallId] = {}

    async def listen(self, listening: socket.socket) -> None:
        """Start to accept; called on the loop, and `end` must be called on the same loop."""
        self._thread = threading.get_ident()
        await super().listen(listening)

    async def drain(self, grace_s: float) -> None:
        """Wait for calls in progress; the next answer on each connection closes it."""
        self.bind_responses.close()
        await super().drain(grace_s)

    def begun(self, call: HttpConnection) -> None:
        """Called when the first byte of a call arrives: the connection is not idle any more."""
        self.touch(call)
        self.bind_responses.idle.discard(call)

    def closed(self, call: HttpConnection) -> None:
        """Tell the permit runner if a bind was still waiting."""
        self.bind_responses.idle.discard(call)
        bind = self._binds.pop(call, NO_CALL)
        if call.is_waiting:
            call.is_waiting = False
            self._hooks.peer_gone(bind)

    def check(self, call: HttpConnection) -> Refusal | None:
        """Return why the headers of a call are refused, None if they are not."""
        return self._caller_check.check(call.headers, call.reached)

    def handle(self, call: HttpConnection) -> None:
        """Answer, or pass a bind to the permit runner."""
        verb = _VERB_OF.get(call.path)
        if verb is None:
            path = call.path.decode("latin-1")
            call.refuse(Refusal(404, "no_hook", f"no such hook: {path}"))
        elif call.method != b"POST":
            call.refuse(Refusal(405, "no_hook", f"{verb} is a POST"))
        elif call.refusal is not None:
            call.refuse(call.refusal)
        elif call.size > BODY_LIMIT:
            call.refuse(Refusal(200, "body", f"the body is over {BODY_LIMIT} bytes"))
        else:
            body = call.take_body()
            self.trust(call)
            if verb != "bind":
                self._call_hook(call, verb, body)
                return
            call.await_answer()
            self.never_evict(call)
            self.bind_responses.bind_came()
            self._binds[call] = self._hooks.bind(body, partial(self._take_bind_outcome, call))

    def _call_hook(self, call: HttpConnection, verb: str, body: bytes) -> None:
        """Answer now or after a delay."""
        if call.is_over:
            return
        answer = self._hooks.answer(verb, body)
        if answer.retry_here and not self.is_draining:
            call.await_answer()
            self.loop.call_later(_ASK_AGAIN_S, self._call_hook, call, verb, body)
        elif answer.delay_s:
            call.await_answer()
            self.loop.call_later(answer.delay_s, self._answer, call, 200, answer.body)
        else:
            self._answer(call, 200, answer.body)

    # answers

    def _take_bind_outcome(self, call: HttpConnection, error: str) -> None:
        """Take the outcome of a bind, nearly always on the loop itself."""
        if threading.get_ident() == self._thread:
            self._answer_bind(call, error)
        else:
            self.loop.call_soon_threadsafe(self._answer_bind, call, error)

    def _answer_bind(self, call: HttpConnection, error: str) -> None:
        if not call.is_waiting:
            return  # the client has disconnected
        if error:
            self._end_bind(call, error)
        else:
            self.bind_responses.bound(call)

    def _end_bind(self, call: HttpConnection, error: str = "") -> None:
        """Answer a bind, unless the client has disconnected."""
        if call.is_waiting:
            call.is_waiting = False
            self._answer(call, 200, self._hooks.bound(error))

    def send_sentence(self, call: HttpConnection, status: int, sentence: str) -> None:
        """Answer with an error of the wire."""
        self._answer(call, status, wire.write_error(sentence))

    def _answer(self, call: HttpConnection, status: int, body: bytes) -> None:
        if call.is_over:
            return
        if call.is_trusted:
            # Untrusted connections are not among kube-scheduler's idle ones.
            self.bind_responses.idle.add(call)
        # A client reached a standby by an old route: a new connection finds the leader.
        must_reconnect = self.is_draining or bool(self._hooks.standby())
        call.is_last = call.is_last or must_reconnect
        call.answer(status, _JSON, body)

"""An HTTP server with bounds on connections, on the time of each call, and on total memory.

A server at its limit accepts new connections and evicts the one that has been idle for the longest
time. Connections without an accepted call are untrusted and evicted first, so that a crowd of
untrusted clients costs kube-scheduler none of its connections.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial

from extender.clock import RateLimit
from extender.hooks.http_connection import HttpConnection
from extender.hooks.limits import Limits, Refusal, RefusalLog
from extender.metrics import Metrics

#: Connections accepted in one callback before the loop does something else.
_BATCH = 8
#: The same if the acceptor pauses after each batch.
_BATCH_WITH_PAUSE = 32
#: Connections taken from the kernel in one callback; most may have disconnected.
_MAX_TAKEN = 64
#: The same with a pause. Most may be refused, so a full backlog is seen in a few batches.
_MAX_TAKEN_WITH_PAUSE = 512
#: Client addresses with a rate limiter; the least recently used is dropped.
_MAX_ADDRESSES = 1024
#: The pause when no file descriptors are left: a retry at once would only use CPU.
_NO_FILES_PAUSE_S = 0.1
_HANDSHAKE_END_S = 1.0
#: A client that connected before the acceptor closes has sent its request by then.
_LAST_REQUESTS_S = 0.03
#: The backlog of the kernel. A client that does not fit retries only after a second; asyncio's 100
#: is less than a gang.
_BACKLOG = 4096
#: How long the loop runs on for requests sent before the acceptor closed.
_LAST_READS_S = 0.05
#: How long to wait for their answers: each is a refusal by then, after a delay at most.
_LAST_ANSWERS_S = 2.0
#: How long clients have to close their side when the port has ended.
_LAST_CLOSES_S = 1.0


class Acceptor:
    """Accepts connections from *listening* for *connection*; everything happens on the loop."""

    def __init__(
        self,
        listening: socket.socket,
        connection: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        limits: Limits,
        refusals: RefusalLog,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._connection = connection
        self._tls = tls
        self._limits = limits
        self._refusals = refusals
        # An IPv6 address counts as a whole, not as a /64: a node has the first address of the /64
        # of its pods, and a pod must not use up the limit of the kubelet.
        self._rate_limit = lru_cache(maxsize=_MAX_ADDRESSES)(
            lambda address: RateLimit(limits.address_rate_per_s, limits.address_burst)
        )
        #: Handshakes in progress, the oldest first.
        self._handshaking: dict[asyncio.Task[None], socket.socket] = {}
        self._pause_timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Accept connections."""
        self._listening.setblocking(False)
        if self._limits.defer_accept_s:
            self._defer_accept(after_s=self._limits.defer_accept_s)
        self._listening.listen(_BACKLOG)
        self._loop.add_reader(self._listening, self._accept)

    def accept_silent(self) -> None:
        """Accept connections that have sent nothing yet, too."""
        self._defer_accept(after_s=0)

    async def close(self) -> None:
        """Accept what the kernel has accepted and no more; abort unfinished handshakes.

        Without TLS such a client may have sent its request already. It would only see a broken
        connection, and kube-scheduler would not know what became of a bind. The kernel keeps a
        connection that has not sent its request yet, and drops it when the socket closes.
        """
        self.accept_silent()
        await asyncio.sleep(0 if self._tls else _LAST_REQUESTS_S)
        for _ in range(0 if self._tls else self._limits.handshakes):
            caller, _address = self._next()
            if caller is None:
                break
            self._start_handshake(caller)
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        if self._tls:
            for caller in self._handshaking.values():
                _shut_down(caller)
        if self._handshaking:
            await asyncio.wait(self._handshaking, timeout=_HANDSHAKE_END_S)

    def _defer_accept(self, *, after_s: int) -> None:
        """Make the kernel hold back connections that send nothing for this long."""
        if sys.platform == "linux":
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, after_s)

    def _accept(self) -> None:
        batch, max_taken, pause_s = _BATCH, _MAX_TAKEN, self._limits.response_pause_s
        if pause_s:
            batch, max_taken = _BATCH_WITH_PAUSE, _MAX_TAKEN_WITH_PAUSE
        counts, addresses = Counter[str](), dict[str, str]()
        while counts[""] < batch and counts.total() < max_taken:
            caller, address = self._next()
            if caller is None:
                break
            reason = self._refusal_reason(caller, address)
            counts[reason] += 1
            addresses[reason] = address
            if reason:
                caller.close()
            else:
                self._start_handshake(caller)
        if counts["left"]:
            self._refusals.disconnected(addresses["left"], counts["left"])
        if counts["crowd"]:
            self._refusals.record("crowd", addresses["crowd"], counts["crowd"])
        if pause_s and self._pause_timer is None and (counts[""] or counts["crowd"]):
            self._pause_for(pause_s)

    def _refusal_reason(self, caller: socket.socket, address: str) -> str:
        """Return one word for why a new connection is refused; empty if it is accepted."""
        if _has_disconnected(caller):
            return "left"
        if self._limits.response_pause_s and not self._rate_limit(address).try_acquire():
            return "crowd"
        return ""

    def _next(self) -> tuple[socket.socket | None, str]:
        """Return the next connection of the backlog and its address; None if there is none."""
        try:
            caller, address = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None, ""
        except OSError:
            self._pause_for(_NO_FILES_PAUSE_S)
            return None, ""
        return caller, str(address[0])

    def _pause_for(self, seconds: float) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._loop.remove_reader(self._listening)
        self._pause_timer = self._loop.call_later(seconds, self._resume)

    def _start_handshake(self, caller: socket.socket) -> None:
        while len(self._handshaking) >= self._limits.handshakes:
            oldest = self._handshaking.pop(next(iter(self._handshaking)))
            self._refusals.record("full", _address(oldest))
            _shut_down(oldest)
        handshake = self._loop.create_task(self._shake_hands(caller))
        self._handshaking[handshake] = caller
        handshake.add_done_callback(lambda done: self._handshaking.pop(done, None))

    def _resume(self) -> None:
        self._pause_timer = None
        self._loop.add_reader(self._listening, self._accept)

    async def _shake_hands(self, caller: socket.socket) -> None:
        caller.setblocking(False)
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The TLS layer counts failures; here the connection simply does not open.
        patience_s = self._limits.handshake_s if self._tls else None
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._connection, caller, ssl=self._tls, ssl_handshake_timeout=patience_s
            )


def _has_disconnected(caller: socket.socket) -> bool:
    """Return whether the client disconnected without sending; accepting it would waste a task."""
    try:
        return not caller.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _shut_down(caller: socket.socket) -> None:
    """End a handshake as if the client had: its transport owns the socket and closes it."""
    with suppress(OSError):
        caller.shutdown(socket.SHUT_RDWR)


def _address(caller: socket.socket) -> str:
    try:
        return str(caller.getpeername()[0])
    except OSError:
        return ""


class HttpServer(ABC):
    """Listens on one socket and owns its connections; everything happens on the loop.

    A subclass checks and answers the calls.
    """

    #: Answer a call after the client has closed its side, too.
    answers_half_closed = False

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.is_plain = tls is None
        self.refusals = RefusalLog(name, metrics)
        self.connections: set[HttpConnection] = set()
        self._beat_at = time.monotonic()
        self._tls = tls
        #: Connections that may be evicted, the longest idle first.
        self._untrusted: dict[HttpConnection, None] = {}
        self._trusted: dict[HttpConnection, None] = {}
        self._buffered = 0
        #: Connections with a long call that wait to be read, in order.
        self._reads: dict[HttpConnection, None] = {}
        self._read_timer: asyncio.TimerHandle | None = None
        self._acceptor: Acceptor | None = None
        self.is_draining = False
        self._sweeper: asyncio.TimerHandle | None = None
        metrics.connections.labels(name).set_function(lambda: len(self.connections))

    @property
    def stalled_s(self) -> float:
        """Return how long ago the loop last ran; called from any thread."""
        # Not the clock of the loop, which stands still while the loop does.
        return time.monotonic() - self._beat_at

    @abstractmethod
    def handle(self, call: HttpConnection) -> None:
        """Answer a call that has arrived whole, now or later."""

    @abstractmethod
    def send_sentence(self, call: HttpConnection, status: int, sentence: str) -> None:
        """Answer with *status* and a sentence."""

    def check(self, call: HttpConnection) -> Refusal | None:
        """Return why the headers of a call are refused, None if they are not."""
        return None

    @abstractmethod
    def closed(self, call: HttpConnection) -> None:
        """Called when the connection is closed; its call may still wait for an answer."""

    async def listen(self, listening: socket.socket) -> None:
        """Start to accept; called on the loop, and `end` must be called on the same loop."""
        self._acceptor = Acceptor(
            listening, partial(HttpConnection, self), self._tls, self.limits, self.refusals
        )
        self._acceptor.open()
        self._sweep()

    async def close(self, grace_s: float) -> None:
        """Answer open calls and those that still arrive in time, then end."""
        await self.drain(grace_s)
        await self.end()

    async def drain(self, grace_s: float) -> None:
        """Wait for calls in progress; the next answer on each connection closes it.

        The port stays open: a client that is still routed here gets an answer that sends it
        elsewhere, not a broken connection. Such clients are not waited for, because a standby
        waits for our lease.
        """
        self.is_draining = True
        if self._acceptor is not None:
            self._acceptor.accept_silent()
        await self._answer_all(grace_s)

    async def end(self) -> None:
        """Accept no more connections, and close each open one when its call is answered."""
        if self._acceptor is not None:
            acceptor, self._acceptor = self._acceptor, None
            await acceptor.close()
        await asyncio.sleep(_LAST_READS_S)
        # After a stall the loop runs timers before it reads what arrived in the meantime.
        for _ in range(2):
            await asyncio.sleep(0)
        await self._answer_all(_LAST_ANSWERS_S)
        for timer in (self._sweeper, self._read_timer):
            if timer is not None:
                timer.cancel()
        for each in tuple(self.connections):
            each.close()
        # With TLS a connection ends when the client closes, too, and some never do.
        end = self.loop.time() + _LAST_CLOSES_S
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for each in tuple(self.connections):
            each.abort("")

    async def _answer_all(self, grace_s: float) -> None:
        end = self.loop.time() + grace_s
        busy = {each for each in self.connections if each.has_call}
        # A closed connection waits for nothing.
        while any(each.has_call for each in busy & self.connections) and self.loop.time() < end:
            await asyncio.sleep(0.01)

    # called by connections

    def add(self, connection: HttpConnection) -> None:
        """Add a connection, and evict others while there are too many."""
        self.connections.add(connection)
        self._untrusted[connection] = None
        while len(self._untrusted) + len(self._trusted) > self.limits.connections:
            oldest = next(iter(self._untrusted or self._trusted))
            self.never_evict(oldest)
            oldest.abort("full")

    def remove(self, connection: HttpConnection) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        self._reads.pop(connection, None)
        self.never_evict(connection)
        self.release_buffer(connection)

    def begun(self, call: HttpConnection) -> None:
        """Called when the first byte of a call arrives."""
        self.touch(call)

    def touch(self, connection: HttpConnection) -> None:
        """Record activity on *connection*: all others have been idle for longer."""
        group = self._trusted if connection.is_trusted else self._untrusted
        group.pop(connection, None)
        group[connection] = None

    def trust(self, connection: HttpConnection) -> None:
        """Mark *connection* as trusted."""
        if not connection.is_trusted:
            connection.is_trusted = True
            self._untrusted.pop(connection, None)
            self._trusted[connection] = None

    def never_evict(self, connection: HttpConnection) -> None:
        """Exempt *connection* from eviction until its next activity."""
        self._untrusted.pop(connection, None)
        self._trusted.pop(connection, None)

    def buffer(self, connection: HttpConnection, size: int) -> None:
        """Count *size* more buffered bytes; abort the oldest calls while there are too many."""
        connection.buffered += size
        self._buffered += size
        while self._buffered > self.limits.bodies:
            others = (
                each
                for group in (self._untrusted, self._trusted)
                for each in group
                if each.buffered
            )
            oldest = next(others, connection)
            self.release_buffer(oldest)
            oldest.abort("memory")

    def release_buffer(self, connection: HttpConnection) -> None:
        """Record that the buffered bytes of *connection* were released."""
        self._buffered -= connection.buffered
        connection.buffered = 0

    def queue_read(self, connection: HttpConnection) -> None:
        """Continue to read from the paused *connection* after those before it."""
        self._reads[connection] = None
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.limits.read_interval_s, self._read_next)

    def _read_next(self) -> None:
        self._read_timer = None
        if self._reads:
            first = next(iter(self._reads))
            del self._reads[first]
            first.resume_reading()
        if self._reads:
            self._read_timer = self.loop.call_later(self.limits.read_interval_s, self._read_next)

    def _sweep(self) -> None:
        self._beat_at, now = time.monotonic(), self.loop.time()
        for each in tuple(self.connections):
            if now > each.deadline:
                each.deadline_passed()
        self._sweeper = self.loop.call_later(self.limits.sweep_s, self._sweep)

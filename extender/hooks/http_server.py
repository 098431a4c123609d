"""A port with bounds: how many connections, how long each may take, how much they hold together.

A port that is full lets newcomers in, and puts out whoever has done nothing for the longest time:
first of those who never had a good answer, so that a crowd of strangers costs kube-scheduler none
of the connections it keeps.
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
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from extender.clock import RateLimit
from extender.hooks.limits import RefusalLog
from extender.metrics import Metrics

#: kube-scheduler's filter entry gives up a call after two seconds; so slow is no handshake.
HANDSHAKE_S = 10.0
#: So many at a time: more than kube-scheduler has binds in flight when a large gang begins.
HANDSHAKES = 512
#: Of those who come in a crowd, so many are let in before the loop does something else.
_AT_ONCE = 8
#: And so many where the door rests between one handful and the next.
_AT_ONCE_WITH_REST = 32
#: And so many are looked at, of whom most may have left.
_LOOKED_AT = 64
#: And so many with a rest, of whom most may be sent away: a full house is seen in a few turns.
_LOOKED_AT_WITH_REST = 512
#: Newcomers of one address: a kubelet, a Prometheus and a browser come by the handful. A dozen
#: addresses at this pace are as many as come in where the door rests for 10 ms.
NEWCOMERS = 400
NEWCOMERS_PER_S = 200.0
#: Of so many addresses we know what they have used, of those who came last.
ADDRESSES = 1024
#: There are no files left: nobody can be let in, and asking again at once would only burn time.
_PAUSE_S = 0.1
_GOODBYE_S = 1.0
#: Who connected before the door is closed has asked by then.
_LAST_CALLERS_S = 0.03


class AddressRateLimit:
    """Of every address so many newcomers at once, and then so many each second.

    By the whole address also where it is one of IPv6: a node has the first of the /64 of its pods,
    and its kubelet is not to pay for one of them.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        at_once: int = NEWCOMERS,
        per_s: float = NEWCOMERS_PER_S,
    ) -> None:
        self._pace = lru_cache(maxsize=ADDRESSES)(
            lambda address: RateLimit(per_s, at_once, monotonic)
        )

    def acquire(self, address: str) -> bool:
        """Take one of the share of *address*, if there is one left."""
        return self._pace(address).try_acquire()


class Acceptor:
    """Takes connections from *listening* to *connection*; everything happens on the loop."""

    def __init__(
        self,
        listening: socket.socket,
        connection: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        turned_away: Callable[[str, str, int], None],
        left: Callable[[str, int], None] = lambda caller, count: None,
        shares: AddressRateLimit | None = None,
        *,
        handshakes: int = HANDSHAKES,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        """Tell why how many are *turned_away* and how many *left*, and where the last came from."""
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._connection = connection
        self._tls = tls
        self._turned_away = turned_away
        self._left = left
        self._shares = shares
        self._handshakes = handshakes
        self._handshake_s = handshake_s
        #: Handshakes that are under way, the longest first.
        self._shaking: dict[asyncio.Task[None], socket.socket] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._rest_s = 0.0

    def open(self, backlog: int, silent_s: int, rest_s: float = 0.0) -> None:
        """Let callers in from now on, who says nothing after *silent_s*; rest after a handful."""
        self._rest_s = rest_s
        self._listening.setblocking(False)
        if silent_s:
            self._show(after_s=silent_s)
        self._listening.listen(backlog)
        self._loop.add_reader(self._listening, self._let_in)

    def show_everybody(self) -> None:
        """Let in from now on who has connected and says nothing yet."""
        self._show(after_s=0)

    async def close(self) -> None:
        """Let in whom the kernel let in, and nobody after; send away who still shakes hands.

        Without TLS he may have asked already: all he would hear is that the connection broke, and
        kube-scheduler would not know what became of a bind. One who has connected and is about to
        ask is kept by the kernel, and would be sent away with the door.
        """
        self.show_everybody()
        await asyncio.sleep(0 if self._tls else _LAST_CALLERS_S)
        for _ in range(0 if self._tls else self._handshakes):
            caller, _address = self._next()
            if caller is None:
                break
            self._begin(caller)
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        if self._tls:
            for caller in self._shaking.values():
                _hang_up(caller)
        if self._shaking:
            await asyncio.wait(self._shaking, timeout=_GOODBYE_S)

    def _show(self, *, after_s: int) -> None:
        """Let the kernel keep whoever has connected and says nothing for so long."""
        if sys.platform == "linux":
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, after_s)

    def _let_in(self) -> None:
        at_once, looked_at = _AT_ONCE, _LOOKED_AT
        if self._rest_s:
            at_once, looked_at = _AT_ONCE_WITH_REST, _LOOKED_AT_WITH_REST
        seen, whence = Counter[str](), dict[str, str]()
        while seen[""] < at_once and seen.total() < looked_at:
            caller, address = self._next()
            if caller is None:
                break
            why_not = self._why_not(caller, address)
            seen[why_not] += 1
            whence[why_not] = address
            if why_not:
                caller.close()
            else:
                self._begin(caller)
        if seen["left"]:
            self._left(whence["left"], seen["left"])
        if seen["crowd"]:
            self._turned_away("crowd", whence["crowd"], seen["crowd"])
        if self._rest_s and self._pause is None and (seen[""] or seen["crowd"]):
            self._rest(self._rest_s)

    def _why_not(self, caller: socket.socket, address: str) -> str:
        """Say in a word why a newcomer does not come in; empty when he does."""
        if _has_left(caller):
            return "left"
        if self._shares is not None and not self._shares.acquire(address):
            return "crowd"
        return ""

    def _next(self) -> tuple[socket.socket | None, str]:
        """Give who stands first at the door, and where from; None if there is nobody."""
        try:
            caller, address = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None, ""
        except OSError:
            self._rest(_PAUSE_S)
            return None, ""
        return caller, str(address[0])

    def _rest(self, seconds: float) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _begin(self, caller: socket.socket) -> None:
        while len(self._shaking) >= self._handshakes:
            longest = self._shaking.pop(next(iter(self._shaking)))
            self._turned_away("full", _where_from(longest), 1)
            _hang_up(longest)
        shaking = self._loop.create_task(self._shake(caller))
        self._shaking[shaking] = caller
        shaking.add_done_callback(self._done)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._let_in)

    def _done(self, shaking: asyncio.Task[None]) -> None:
        self._shaking.pop(shaking, None)

    async def _shake(self, caller: socket.socket) -> None:
        caller.setblocking(False)
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Why it failed is counted where TLS is spoken; here it has simply not come in.
        patience_s = self._handshake_s if self._tls else None
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._connection, caller, ssl=self._tls, ssl_handshake_timeout=patience_s
            )


def _has_left(caller: socket.socket) -> bool:
    """Ask whether somebody has hung up without a word: to let him in costs a task for nothing."""
    try:
        return not caller.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _hang_up(caller: socket.socket) -> None:
    """End a handshake as if the caller had: its transport owns the socket and closes it."""
    with suppress(OSError):
        caller.shutdown(socket.SHUT_RDWR)


def _where_from(caller: socket.socket) -> str:
    try:
        return str(caller.getpeername()[0])
    except OSError:
        return ""


#: Who comes in a crowd waits here for the loop, or the kernel would let him try again after a
#: second; asyncio's hundred is less than a gang.
_BACKLOG = 4096
#: So long the loop comes round for what was sent before the door was closed.
_LAST_LOOK_S = 0.05
#: And so long it waits for their answers: by then each is refused, at most after a breath.
_LAST_ANSWERS_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a port gives to those who come."""

    #: Connections at a time, those that wait for a gang not counted.
    connections: int
    #: One that asks nothing ends after this; kube-scheduler keeps idle connections for 90 s and
    #: does not resend a POST on one we closed.
    idle_s: float = 120.0
    #: A call that has begun must have come in whole by then, however many bytes came last.
    call_s: float = 30.0
    #: An answer must have been read by then.
    answer_s: float = 10.0
    #: Who has connected and said nothing is let in after so many seconds; kube-scheduler asks at
    #: once, so that a silent crowd costs it nothing.
    defer_accept_s: int = 8
    #: So long a stranger waits until he hears that he is refused: those who come again at once
    #: come twenty times in a second then, not thousands of times.
    refusal_delay_s: float = 0.05
    #: So long nothing is read after an answer, and nobody let in after a handful: who asks again
    #: and again, or comes again, is answered so much less often, and nobody else notices. With a
    #: pace an address has a share of newcomers, too.
    response_pause_s: float = 0.0
    #: The share of an address: so many newcomers at once, and then so many each second.
    newcomers: int = NEWCOMERS
    newcomers_per_s: float = NEWCOMERS_PER_S
    #: Handshakes at a time, and how long each may take.
    handshakes: int = HANDSHAKES
    handshake_s: float = HANDSHAKE_S
    #: How long the next of those strangers waits whose calls are long: each turn is one read, at
    #: most 256 KiB, so that all of them together send 128 MiB in a second, and the loop is free
    #: between.
    turn_s: float = 0.002
    #: How often it is asked whose time is over.
    sweep_s: float = 1.0
    #: Path and headers of a call.
    head: int = 16 * 1024
    #: The body of one call that is answered; none where nobody reads it.
    body: int = 0
    #: A call with everything that frames it.
    message: int = 64 * 1024
    #: Bodies of all calls that are being read.
    bodies: int = 64 * 1024 * 1024


class Connection(Protocol):
    """A connection, as the port sees it."""

    is_trusted: bool
    deadline: float
    kept: int

    @property
    def is_asked(self) -> bool:
        """Ask whether a call is being read or waits for its answer."""

    def deadline_passed(self) -> None:
        """End; the deadline has passed."""

    def abort(self, reason: str) -> None:
        """End at once, whatever was not sent yet."""

    def close(self) -> None:
        """End after what was written."""

    def resume_reading(self) -> None:
        """Read on; its turn has come."""


class HttpServer(ABC):
    """Listens on one socket and owns its connections; everything happens on its loop."""

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
        self.connections: set[Connection] = set()
        self._beat_at = time.monotonic()
        self._tls = tls
        #: Who may be put out, longest first.
        self._strangers: dict[Connection, None] = {}
        self._known: dict[Connection, None] = {}
        self._kept = 0
        #: Who sends a long call and waits to be read on, first come first read.
        self._turns: dict[Connection, None] = {}
        self._turning: asyncio.TimerHandle | None = None
        self._door: Acceptor | None = None
        self.is_draining = False
        self._sweeper: asyncio.TimerHandle | None = None
        metrics.connections.labels(name).set_function(lambda: len(self.connections))

    @property
    def silent_s(self) -> float:
        """Say how long ago the loop last came round, to whoever asks from elsewhere."""
        # Not by the clock of the loop, which stands still while the loop does.
        return time.monotonic() - self._beat_at

    @abstractmethod
    def connection(self) -> asyncio.Protocol:
        """Make the protocol of a new connection."""

    async def listen(self, listening: socket.socket) -> None:
        """Begin to answer; called on the loop, which may not be left afterwards."""
        limits, refusals = self.limits, self.refusals
        self._door = Acceptor(
            listening,
            self.connection,
            self._tls,
            refusals.record,
            refusals.left,
            AddressRateLimit(at_once=limits.newcomers, per_s=limits.newcomers_per_s)
            if limits.response_pause_s
            else None,
            handshakes=limits.handshakes,
            handshake_s=limits.handshake_s,
        )
        self._door.open(_BACKLOG, limits.defer_accept_s, limits.response_pause_s)
        self._sweep()

    async def close(self, grace_s: float) -> None:
        """Answer who is in or comes in time, and end."""
        await self.drain(grace_s)
        await self.end()

    async def drain(self, grace_s: float) -> None:
        """Wait for those who asked; whoever is in hears with his next answer that it was the last.

        The door stays open: who is still led here is told to go elsewhere, and not cut off. He is
        not waited for: somebody waits for our lease.
        """
        self.is_draining = True
        if self._door is not None:
            self._door.show_everybody()
        await self._answer_all(grace_s)

    async def end(self) -> None:
        """Take no more connections, and end those there are when their call is answered."""
        if self._door is not None:
            door, self._door = self._door, None
            await door.close()
        await asyncio.sleep(_LAST_LOOK_S)
        # A loop that stood still wakes who sleeps before it reads what was sent meanwhile.
        for _ in range(2):
            await asyncio.sleep(0)
        await self._answer_all(_LAST_ANSWERS_S)
        for timer in (self._sweeper, self._turning):
            if timer is not None:
                timer.cancel()
        for each in tuple(self.connections):
            each.close()

    async def _answer_all(self, grace_s: float) -> None:
        end = self.loop.time() + grace_s
        asked = [each for each in self.connections if each.is_asked]
        while self._are_waited_for(asked) and self.loop.time() < end:
            await asyncio.sleep(0.01)

    def _are_waited_for(self, asked: list[Connection]) -> bool:
        """Ask whether somebody of them waits still; who has left waits for nothing."""
        return any(each.is_asked for each in asked if each in self.connections)

    # what connections tell

    def entered(self, guest: Connection) -> None:
        """Let somebody in, and somebody else go if there are too many."""
        self.connections.add(guest)
        self._strangers[guest] = None
        while len(self._strangers) + len(self._known) > self.limits.connections:
            longest = next(iter(self._strangers or self._known))
            self.never_evict(longest)
            longest.abort("full")

    def left(self, guest: Connection) -> None:
        """Forget somebody."""
        self.connections.discard(guest)
        self._turns.pop(guest, None)
        self.never_evict(guest)
        self.release_buffer(guest)

    def stirred(self, guest: Connection) -> None:
        """Note that *guest* began or ended something: others have done nothing for longer."""
        row = self._known if guest.is_trusted else self._strangers
        row.pop(guest, None)
        row[guest] = None

    def trust(self, guest: Connection) -> None:
        """Note that *guest* is no stranger any longer."""
        if not guest.is_trusted:
            guest.is_trusted = True
            self._strangers.pop(guest, None)
            self._known[guest] = None

    def never_evict(self, guest: Connection) -> None:
        """Never put *guest* out for others, until it stirs again."""
        self._strangers.pop(guest, None)
        self._known.pop(guest, None)

    def buffer(self, guest: Connection, size: int) -> None:
        """Note that *guest* sent so much more; who began longest ago makes room for it."""
        guest.kept += size
        self._kept += size
        while self._kept > self.limits.bodies:
            others = (each for row in (self._strangers, self._known) for each in row if each.kept)
            longest = next(others, guest)
            self.release_buffer(longest)
            longest.abort("memory")

    def release_buffer(self, guest: Connection) -> None:
        """Note that what *guest* sent is not kept any longer."""
        self._kept -= guest.kept
        guest.kept = 0

    def queue_read(self, guest: Connection) -> None:
        """Read on from *guest*, who pauses, when those before have been read on."""
        self._turns[guest] = None
        if self._turning is None:
            self._turning = self.loop.call_later(self.limits.turn_s, self._give_turn)

    def _give_turn(self) -> None:
        self._turning = None
        if self._turns:
            first = next(iter(self._turns))
            del self._turns[first]
            first.resume_reading()
        if self._turns:
            self._turning = self.loop.call_later(self.limits.turn_s, self._give_turn)

    def _sweep(self) -> None:
        self._beat_at, now = time.monotonic(), self.loop.time()
        for each in tuple(self.connections):
            if now > each.deadline:
                each.deadline_passed()
        self._sweeper = self.loop.call_later(self.limits.sweep_s, self._sweep)

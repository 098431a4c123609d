"""A port with bounds: how many connections, how long each may take, how much they hold together.

A port that is full lets newcomers in, and puts out whoever has done nothing for the longest time:
first of those who never had a good answer, so that a crowd of strangers costs kube-scheduler none
of the connections it keeps.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from extender.metrics import Metrics
from extender.web.http.door import (
    HANDSHAKE_S,
    HANDSHAKES,
    NEWCOMERS,
    NEWCOMERS_PER_S,
    Door,
    Shares,
)
from extender.web.http.refusals import Refusals

#: Who comes in a crowd waits here for the loop, or the kernel would let him try again after a
#: second; asyncio's hundred is less than a gang.
_BACKLOG = 4096
#: So long the loop comes round for what was sent before the door was closed.
_LAST_LOOK_S = 0.05
#: And so long it waits for their answers: by then each is refused, at most after a breath.
_LAST_ANSWERS_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
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
    silent_s: int = 8
    #: So long a stranger waits until he hears that he is refused: those who come again at once
    #: come twenty times in a second then, not thousands of times.
    breath_s: float = 0.05
    #: So long nothing is read after an answer, and nobody let in after a handful: who asks again
    #: and again, or comes again, is answered so much less often, and nobody else notices. With a
    #: pace an address has a share of newcomers, too.
    pace_s: float = 0.0
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


class Guest(Protocol):
    """A connection, as the port sees it."""

    is_known: bool
    deadline: float
    kept: int

    @property
    def is_asked(self) -> bool:
        """Ask whether a call is being read or waits for its answer."""

    def overdue(self) -> None:
        """End; the deadline has passed."""

    def put_out(self, reason: str) -> None:
        """End at once, whatever was not sent yet."""

    def hang_up(self) -> None:
        """End after what was written."""

    def go_on(self) -> None:
        """Read on; its turn has come."""


class BoundedPort(ABC):
    """Listens on one socket and owns its connections; everything happens on its loop."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        limits: CallerLimits,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.is_plain = tls is None
        self.refusals = Refusals(name, metrics)
        self.connections: set[Guest] = set()
        self._beat_at = time.monotonic()
        self._tls = tls
        #: Who may be put out, longest first.
        self._strangers: dict[Guest, None] = {}
        self._known: dict[Guest, None] = {}
        self._kept = 0
        #: Who sends a long call and waits to be read on, first come first read.
        self._turns: dict[Guest, None] = {}
        self._turning: asyncio.TimerHandle | None = None
        self._door: Door | None = None
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
        self._door = Door(
            listening,
            self.connection,
            self._tls,
            refusals.tell,
            refusals.left,
            Shares(at_once=limits.newcomers, per_s=limits.newcomers_per_s)
            if limits.pace_s
            else None,
            handshakes=limits.handshakes,
            handshake_s=limits.handshake_s,
        )
        self._door.open(_BACKLOG, limits.silent_s, limits.pace_s)
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
            each.hang_up()

    async def _answer_all(self, grace_s: float) -> None:
        end = self.loop.time() + grace_s
        asked = [each for each in self.connections if each.is_asked]
        while self._are_waited_for(asked) and self.loop.time() < end:
            await asyncio.sleep(0.01)

    def _are_waited_for(self, asked: list[Guest]) -> bool:
        """Ask whether somebody of them waits still; who has left waits for nothing."""
        return any(each.is_asked for each in asked if each in self.connections)

    # what connections tell

    def entered(self, guest: Guest) -> None:
        """Let somebody in, and somebody else go if there are too many."""
        self.connections.add(guest)
        self._strangers[guest] = None
        while len(self._strangers) + len(self._known) > self.limits.connections:
            longest = next(iter(self._strangers or self._known))
            self.spare(longest)
            longest.put_out("full")

    def left(self, guest: Guest) -> None:
        """Forget somebody."""
        self.connections.discard(guest)
        self._turns.pop(guest, None)
        self.spare(guest)
        self.give_back(guest)

    def stirred(self, guest: Guest) -> None:
        """Note that *guest* began or ended something: others have done nothing for longer."""
        row = self._known if guest.is_known else self._strangers
        row.pop(guest, None)
        row[guest] = None

    def had_good_answer(self, guest: Guest) -> None:
        """Note that *guest* is no stranger any longer."""
        if not guest.is_known:
            guest.is_known = True
            self._strangers.pop(guest, None)
            self._known[guest] = None

    def spare(self, guest: Guest) -> None:
        """Never put *guest* out for others, until it stirs again."""
        self._strangers.pop(guest, None)
        self._known.pop(guest, None)

    def keep(self, guest: Guest, size: int) -> None:
        """Note that *guest* sent so much more; who began longest ago makes room for it."""
        guest.kept += size
        self._kept += size
        while self._kept > self.limits.bodies:
            others = (each for row in (self._strangers, self._known) for each in row if each.kept)
            longest = next(others, guest)
            self.give_back(longest)
            longest.put_out("memory")

    def give_back(self, guest: Guest) -> None:
        """Note that what *guest* sent is not kept any longer."""
        self._kept -= guest.kept
        guest.kept = 0

    def await_turn(self, guest: Guest) -> None:
        """Read on from *guest*, who pauses, when those before have been read on."""
        self._turns[guest] = None
        if self._turning is None:
            self._turning = self.loop.call_later(self.limits.turn_s, self._give_turn)

    def _give_turn(self) -> None:
        self._turning = None
        if self._turns:
            first = next(iter(self._turns))
            del self._turns[first]
            first.go_on()
        if self._turns:
            self._turning = self.loop.call_later(self.limits.turn_s, self._give_turn)

    def _sweep(self) -> None:
        self._beat_at, now = time.monotonic(), self.loop.time()
        for each in tuple(self.connections):
            if now > each.deadline:
                each.overdue()
        self._sweeper = self.loop.call_later(self.limits.sweep_s, self._sweep)

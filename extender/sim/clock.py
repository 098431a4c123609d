"""Time that moves only when told: a monotonic clock, a wall clock that may jump, and a timer."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from extender.clock import LoopTimer

EPOCH = 1_000_000.0


class VirtualClock(LoopTimer):
    """The `Clock` and the `Timer` of everything in one story; there is no event loop behind it."""

    def __init__(self, epoch: float = EPOCH) -> None:
        self.seconds = 100.0
        #: How far the wall clock was set back (negative) or forth.
        self.wall_is_off_by = 0.0
        self._epoch = epoch
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def now(self) -> float:
        """Give the seconds of the wall clock."""
        return self._epoch + self.seconds + self.wall_is_off_by

    def monotonic(self) -> float:
        """Give the seconds that never jump."""
        return self.seconds

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Call back once, when time has come so far."""
        heappush(self._calls, (self.seconds + delay_s, next(self._order), callback))

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back once, before any time passes."""
        self.call_later(0.0, callback)

    @property
    def waiting(self) -> int:
        """Count the calls that are still to be made."""
        return len(self._calls)

    @property
    def next_at(self) -> float | None:
        """Say when somebody is to be called back next; None when nobody is."""
        return self._calls[0][0] if self._calls else None

    def step(self) -> None:
        """Let time pass until the next call, and make it."""
        at, _, callback = heappop(self._calls)
        self.seconds = max(self.seconds, at)
        callback()

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass, calling back whoever asked for it."""
        until = self.seconds + seconds
        while self._calls and self._calls[0][0] <= until:
            self.step()
        self.seconds = until

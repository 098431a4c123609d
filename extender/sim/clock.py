"""Virtual time: a monotonic clock, a wall clock that may jump, and a timer."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from extender.clock import LoopTimer

EPOCH = 1_000_000.0


class VirtualClock(LoopTimer):
    """Implement `Clock` and `Timer` for one simulation, without an event loop."""

    def __init__(self, epoch: float = EPOCH) -> None:
        self.seconds = 100.0
        #: How far the wall clock was set back (negative) or forward.
        self.wall_is_off_by = 0.0
        self._epoch = epoch
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def now(self) -> float:
        """Return the time of the wall clock."""
        return self._epoch + self.seconds + self.wall_is_off_by

    def monotonic(self) -> float:
        """Return the monotonic time, which never jumps."""
        return self.seconds

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Call *callback* once, after *delay_s*."""
        heappush(self._calls, (self.seconds + delay_s, next(self._order), callback))

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call *callback* once, before the time advances."""
        self.call_later(0.0, callback)

    @property
    def waiting(self) -> int:
        """Return the number of pending callbacks."""
        return len(self._calls)

    @property
    def next_at(self) -> float | None:
        """Return the time of the next callback, None when there is none."""
        return self._calls[0][0] if self._calls else None

    def step(self) -> None:
        """Advance to the next callback and run it."""
        at, _, callback = heappop(self._calls)
        self.seconds = max(self.seconds, at)
        callback()

    def advance(self, seconds: float = 0.0) -> None:
        """Advance by *seconds*, and run the callbacks that are due."""
        until = self.seconds + seconds
        while self._calls and self._calls[0][0] <= until:
            self.step()
        self.seconds = until

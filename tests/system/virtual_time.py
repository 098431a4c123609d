"""Time that moves only when told: a monotonic clock, a wall clock that may jump, and a timer."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

EPOCH = 1_000_000.0


class VirtualTime:
    """The `Clock` and the `Timer` of everything in one story."""

    def __init__(self) -> None:
        self.seconds = 100.0
        #: How far the wall clock was set back (negative) or forth.
        self.wall_is_off_by = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def now(self) -> float:
        return EPOCH + self.seconds + self.wall_is_off_by

    def monotonic(self) -> float:
        return self.seconds

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        heappush(self._calls, (self.seconds + delay_s, next(self._order), callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0.0, callback)

    def pass_by(self, seconds: float = 0.0) -> None:
        """Let time pass, calling back whoever asked for it."""
        until = self.seconds + seconds
        while self._calls and self._calls[0][0] <= until:
            at, _, callback = heappop(self._calls)
            self.seconds = max(self.seconds, at)
            callback()
        self.seconds = until

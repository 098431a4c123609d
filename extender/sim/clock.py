"""The clock of a simulated cluster: virtual, or paced by the time of the machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from extender.clock import LoopTimer

EPOCH = 1_000_000.0
#: A callback takes milliseconds, and at most as long as a call of a hook.
_ANSWER_S = 60.0
_Result = TypeVar("_Result")


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
        heappush(self._calls, (self.monotonic() + delay_s, next(self._order), callback))

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


class PacedClock(VirtualClock):
    """The same clock in real time: one thread runs the callbacks, any thread may add one."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._is_stopped = False

    def now(self) -> float:
        """Return the time of the machine."""
        return time.time()

    def monotonic(self) -> float:
        """Return the monotonic time of the machine."""
        return time.monotonic()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Call *callback* once in the thread of the clock, after *delay_s*."""
        with self._changed:
            super().call_later(delay_s, callback)
            self._changed.notify()

    def run(self, after_each: Callable[[], object]) -> None:
        """Run the callbacks, and *after_each* of them that function, until `stop`."""
        while (callback := self._wait_for_next()) is not None:
            callback()
            after_each()

    def result_of(self, question: Callable[[], _Result]) -> _Result:
        """Call *question* in the thread of the clock, and return its result."""
        answer: Future[_Result] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        self.call_soon(ask)
        return answer.result(_ANSWER_S)

    def stop(self) -> None:
        """End `run`; pending callbacks are not run."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    def _wait_for_next(self) -> Callable[[], object] | None:
        with self._changed:
            while not self._is_stopped:
                left_s = self._calls[0][0] - self.monotonic() if self._calls else None
                if left_s is not None and left_s <= 0:
                    return heappop(self._calls)[2]
                self._changed.wait(left_s)
        return None

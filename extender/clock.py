"""The real time, and a pace kept by it; where decisions are made, a clock is handed in."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial

from extender.errors import ShuttingDown


def passing() -> float:
    """Give seconds that never step, and that go on while the machine sleeps.

    The usual monotonic clock of Linux stands still meanwhile: on a virtual machine that was
    suspended for an hour, a term and all that was heard before would be as fresh as then.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class SystemClock:
    """The `Clock` of everything but tests."""

    now = staticmethod(time.time)
    monotonic = staticmethod(passing)


def timestamp(epoch: float) -> str:
    """Write a time as Kubernetes does."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp_ms(epoch: float) -> str:
    """Write a time as Kubernetes does, with milliseconds."""
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


class RateLimit:
    """Lets *burst* go at once and then *per_s* each second: tokens that workers take turns at."""

    def __init__(
        self, per_s: float, burst: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._monotonic = monotonic
        self._tokens = float(burst)
        self._at = monotonic()
        self._lock = threading.Lock()

    def acquire(self) -> float:
        """Take a turn and give the seconds to wait for it."""
        with self._lock:
            self._earn()
            self._tokens -= 1
            return max(0.0, -self._tokens / self._per_s)

    def try_acquire(self) -> bool:
        """Take a turn if there is one now."""
        with self._lock:
            self._earn()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def _earn(self) -> None:
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now


log = logging.getLogger(__name__)
#: How often somebody who waits for the loop looks whether it is still there.
_LOOK_S = 0.2
#: How soon a round that left something over is followed by the next.
_MORE_S = 0.005


class LoopTimer:
    """Calls back from the thread of *loop*; quietly does nothing once that is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back once after *delay_s*."""
        self.call_soon(partial(self._loop.call_later, delay_s, callback))

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back once, as soon as the loop has time."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


class LoopCalls:
    """Has something done by the loop and waits for the answer; not for the loop's own thread."""

    def __init__(self, timer: LoopTimer) -> None:
        self._timer = timer
        self._is_over = False

    def __call__(self, step: Callable[[], bool]) -> bool:
        """Give what *step* gives, or raise what it raises."""
        answer: Future[bool] = Future()
        self._timer.call_soon(lambda: _do(step, answer))
        while not self._is_over:
            try:
                return answer.result(_LOOK_S)
            except TimeoutError:
                continue
        raise ShuttingDown("the event loop takes no more errands")

    def end(self) -> None:
        """Let nobody wait any longer: the loop is about to stop."""
        self._is_over = True


class PeriodicTask:
    """Has something done again and again by the loop, sooner when there is more to do."""

    def __init__(self, timer: LoopTimer, step: Callable[[], bool], *, every_s: float) -> None:
        self._timer = timer
        #: True when it left something over.
        self._step = step
        self._every_s = every_s
        self._is_over = False

    def start(self) -> None:
        """Begin."""
        self._timer.call_later(self._every_s, self._go)

    def stop(self) -> None:
        """End."""
        self._is_over = True

    def _go(self) -> None:
        if self._is_over:
            return
        try:
            more = self._step()
        except Exception:
            # One bad round must not be the last.
            log.exception("a round failed")
            more = False
        self._timer.call_later(_MORE_S if more else self._every_s, self._go)


def _do(step: Callable[[], bool], answer: Future[bool]) -> None:
    try:
        answer.set_result(step())
    except Exception as error:
        answer.set_exception(error)

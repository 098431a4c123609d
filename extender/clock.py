"""System clock, rate limit and event loop timers; code that decides gets its clock passed in."""

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
    """Return monotonic seconds that include the time while the machine is suspended.

    The usual monotonic clock of Linux stops during a suspension. After an hour of it a virtual
    machine would still trust its lease and everything it watched before.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class SystemClock:
    """The `Clock` of production code."""

    now = staticmethod(time.time)
    monotonic = staticmethod(passing)


def timestamp(epoch: float) -> str:
    """Format a time as Kubernetes does."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp_ms(epoch: float) -> str:
    """Format a time as Kubernetes does, with milliseconds."""
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


class RateLimit:
    """Token bucket for threads: admit *burst* at once and then *per_s* each second."""

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
        """Take a token and return the seconds to wait before the call."""
        with self._lock:
            self._refill()
            self._tokens -= 1
            return max(0.0, -self._tokens / self._per_s)

    def try_acquire(self) -> bool:
        """Take a token if one is available now."""
        with self._lock:
            self._refill()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def _refill(self) -> None:
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now


log = logging.getLogger(__name__)
#: How often a thread that waits for the loop checks whether the loop has stopped.
_POLL_S = 0.2
#: The delay to the next step after one that left work over.
_MORE_S = 0.005


class LoopTimer:
    """Runs callbacks in the thread of *loop*; does nothing once the loop is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Run *callback* once after *delay_s*."""
        self.call_soon(partial(self._loop.call_later, delay_s, callback))

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run *callback* once, as soon as the loop is free."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


class LoopCalls:
    """Runs a function in the loop and waits for its result; not for the loop's own thread."""

    def __init__(self, timer: LoopTimer) -> None:
        self._timer = timer
        self._is_over = False

    def __call__(self, step: Callable[[], bool]) -> bool:
        """Return what *step* returns, or raise what it raises."""
        answer: Future[bool] = Future()
        self._timer.call_soon(lambda: _run_step(step, answer))
        while not self._is_over:
            try:
                return answer.result(_POLL_S)
            except TimeoutError:
                continue
        raise ShuttingDown("the event loop accepts no more calls")

    def end(self) -> None:
        """Stop every wait: the loop is about to stop."""
        self._is_over = True


class PeriodicTask:
    """Runs *step* in the loop every *every_s*, and sooner when it leaves work over."""

    def __init__(self, timer: LoopTimer, step: Callable[[], bool], *, every_s: float) -> None:
        self._timer = timer
        #: Returns True when it leaves work over.
        self._step = step
        self._every_s = every_s
        self._is_over = False

    def start(self) -> None:
        """Schedule the first step."""
        self._timer.call_later(self._every_s, self._run_once)

    def stop(self) -> None:
        """Stop after the current step."""
        self._is_over = True

    def _run_once(self) -> None:
        if self._is_over:
            return
        try:
            more = self._step()
        except Exception:
            # A failed step must not end the task.
            log.exception("a periodic task failed")
            more = False
        self._timer.call_later(_MORE_S if more else self._every_s, self._run_once)


def _run_step(step: Callable[[], bool], answer: Future[bool]) -> None:
    try:
        answer.set_result(step())
    except Exception as error:
        answer.set_exception(error)

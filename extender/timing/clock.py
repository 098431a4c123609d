"""The real time, and a pace kept by it; where decisions are made, a clock is handed in."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime


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


class Pace:
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

    def turn(self) -> float:
        """Take a turn and give the seconds to wait for it."""
        with self._lock:
            self._earn()
            self._tokens -= 1
            return max(0.0, -self._tokens / self._per_s)

    def may_go(self) -> bool:
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

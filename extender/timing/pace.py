"""No more than so many a second: a bucket of tokens that workers take turns at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """Lets *burst* go at once and then *per_s* each second."""

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

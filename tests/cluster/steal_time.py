"""Measures how much CPU time the host took (steal time), so that disturbed timings are discarded.

On a shared machine a measured time includes what the host took. A gang is therefore timed only if
the host took little around the moment the gang was created, whatever its result; more gangs are
created until enough were timed, for a limited time.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

#: Share of all processors: if the host takes more in a minute, the minute was disturbed.
DISTURBED = 0.1
#: If the host takes less for a few seconds, they were undisturbed.
CALM = 0.03
#: The window around a moment. It does not depend on how long the measured gang took.
BEFORE_S, AFTER_S = 1.5, 3.5
_EVERY_S = 0.5
#: Only Linux counts steal time.
_COUNTS = Path("/proc/stat")


def steal_time() -> tuple[int, int]:
    """Return the steal time of all processors since boot, and their total time."""
    if not _COUNTS.exists():
        return 0, 0
    fields = [int(each) for each in _COUNTS.read_text().split("\n", 1)[0].split()[1:9]]
    return fields[7], sum(fields)


class StealMonitor:
    """Records the steal time during a `with` block."""

    def __init__(
        self,
        taken: Callable[[], tuple[int, int]] = steal_time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = taken
        self._monotonic = monotonic
        self._at: list[float] = []
        self._samples: list[tuple[int, int]] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calm", daemon=True)

    def __enter__(self) -> Self:
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join()

    def sample(self) -> None:
        """Take a sample."""
        self._samples.append(self._read())
        self._at.append(self._monotonic())

    def was_calm(self, at: float) -> bool:
        """Return whether the host took little around *at*."""
        return self.stolen_share(at - BEFORE_S, at + AFTER_S) <= CALM

    def stolen_share(self, since: float, until: float) -> float:
        """Return the share of all processors that the host took in that time."""
        known = len(self._at)
        first = max(0, bisect_right(self._at, since, hi=known) - 1)
        last = min(known - 1, bisect_left(self._at, until, hi=known))
        (stolen, passed), (stolen_after, passed_after) = self._samples[first], self._samples[last]
        return (stolen_after - stolen) / max(1, passed_after - passed)

    def without_steal_s(self, since: float, until: float) -> float:
        """Return how long that time would have been without the host."""
        return (until - since) * (1 - self.stolen_share(since, until))

    def _run(self) -> None:
        while not self._ends.wait(_EVERY_S):
            self.sample()


class RetryTime:
    """A limit for the time that is spent on discarded measurements."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    def spend(self, seconds: float) -> bool:
        """Return whether time is left, and subtract *seconds*."""
        was_left = self.left_s > 0
        self.left_s -= seconds
        return was_left

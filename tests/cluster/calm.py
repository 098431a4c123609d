"""A machine that is not ours alone: which moments were calm, and patience until there are enough.

Who measures times measures the host too where that takes the processors away. The kernel keeps
count of it. So a gang is timed if the host took little around the moment it came, whatever became
of it then; and more of them come until enough were timed, for a while and not for ever.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

#: Of all processors: a host that takes more in a minute has disturbed it.
MUCH = 0.1
#: One that takes less for a few seconds leaves us alone.
LITTLE = 0.03
#: The seconds that count for a moment: how long somebody takes who came then changes nothing.
BEFORE_S, AFTER_S = 1.5, 3.5
_EVERY_S = 0.5
#: Only Linux counts what a host takes.
_COUNTS = Path("/proc/stat")


def taken_by_the_host() -> tuple[int, int]:
    """Give what was taken of all processors since the machine began, and all their time."""
    if not _COUNTS.exists():
        return 0, 0
    fields = [int(each) for each in _COUNTS.read_text().split("\n", 1)[0].split()[1:9]]
    return fields[7], sum(fields)


class Calm:
    """Writes down what the host takes as long as the block runs."""

    def __init__(
        self,
        taken: Callable[[], tuple[int, int]] = taken_by_the_host,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._taken = taken
        self._monotonic = monotonic
        self._at: list[float] = []
        self._seen: list[tuple[int, int]] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write, name="calm", daemon=True)

    def __enter__(self) -> Self:
        self.look()
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

    def look(self) -> None:
        """Write down what was taken until now."""
        self._seen.append(self._taken())
        self._at.append(self._monotonic())

    def was(self, at: float) -> bool:
        """Ask whether the host took little around *at*."""
        return self.taken(at - BEFORE_S, at + AFTER_S) <= LITTLE

    def taken(self, since: float, until: float) -> float:
        """Say what part of all processors the host took in that time."""
        known = len(self._at)
        first = max(0, bisect_right(self._at, since, hi=known) - 1)
        last = min(known - 1, bisect_left(self._at, until, hi=known))
        (stolen, passed), (stolen_after, passed_after) = self._seen[first], self._seen[last]
        return (stolen_after - stolen) / max(1, passed_after - passed)

    def ours_s(self, since: float, until: float) -> float:
        """Say how long that time would have been if the host had taken nothing."""
        return (until - since) * (1 - self.taken(since, until))

    def _write(self) -> None:
        while not self._ends.wait(_EVERY_S):
            self.look()


class Patience:
    """So many seconds that may be spent on what does not count."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    def forgives(self, seconds: float) -> bool:
        """Say whether so long a time may have been in vain, and spend it."""
        was_left = self.left_s > 0
        self.left_s -= seconds
        return was_left

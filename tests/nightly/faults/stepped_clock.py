"""`python -m tests.nightly.faults.stepped_clock FILE serve …`: the extender with a wrong clock.

FILE contains the offset in seconds, and may be written at any time. Only the wall clock changes;
the monotonic clock does not, as on a machine whose clock is set. The clock is replaced before the
extender is imported. The variable `TEST_PLANTED` also plants a fault (`planted.py`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Self

from .planted import PLANTS

PLANTED = "TEST_PLANTED"
#: How often the file is read.
_READ_S = 0.1


class SteppedClock:
    """The wall clock with the offset in a file."""

    def __init__(
        self,
        file: Path,
        real: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._real = real
        self._monotonic = monotonic
        self._read_at = float("-inf")
        self._offset_s = 0.0

    def time(self) -> float:
        now = self._monotonic()
        if now - self._read_at >= _READ_S:
            self._read_at = now
            self._offset_s = self._read()
        return self._real() + self._offset_s

    def _read(self) -> float:
        try:
            return float(self._file.read_text())
        except (OSError, ValueError):
            return self._offset_s  # missing or half written


def main() -> None:
    clock = SteppedClock(Path(sys.argv.pop(1)))
    time.time = clock.time

    class Stepped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(clock.time(), tz)

    from extender.cli.main import main as command
    from extender.kube.write import wake

    wake.datetime = Stepped  # type: ignore[attr-defined]
    if plant := os.environ.get(PLANTED):
        PLANTS[plant]()
    command()


if __name__ == "__main__":
    main()

"""`python -m tests.nightly.faults.stepped_clock FILE serve …`: a wall clock that steps.

FILE holds by how many seconds the clock is wrong, and may be written at any time. Only the wall
clock is another: what counts time that passes goes on as it does on a machine whose clock is set.
The product knows nothing of it; it is told before anything of it is imported. With the variable
`TEST_PLANTED` a check of ours is taken out as well (`planted.py`).
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
#: How often the file is looked at.
_LOOK_S = 0.1


class SteppedClock:
    """The wall clock, wrong by what stands in a file."""

    def __init__(
        self,
        file: Path,
        real: Callable[[], float] = time.time,
        passing: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._real = real
        self._passing = passing
        self._looked_at = float("-inf")
        self._offset_s = 0.0

    def time(self) -> float:
        now = self._passing()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            self._offset_s = self._read()
        return self._real() + self._offset_s

    def _read(self) -> float:
        try:
            return float(self._file.read_text())
        except (OSError, ValueError):
            return self._offset_s  # not there, or half written: as before


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

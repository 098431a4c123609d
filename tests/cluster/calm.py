"""A machine that is not ours alone: what its host takes, and patience until that is little.

Who measures times measures the host too where that takes the processors away. The kernel keeps
count of it; what is left to do is to wait, for a while and not for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

#: Of all processors: a host that takes more in a minute has disturbed it.
MUCH = 0.1
#: One that takes less for a few seconds leaves us alone.
_LITTLE = 0.03
_WINDOW_S = 5.0


def taken_by_the_host() -> tuple[int, int]:
    """Give what was taken of all processors since the machine began, and all their time."""
    fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[7], sum(fields)


class Patience:
    """So many seconds that may be spent on waiting, and on minutes that do not count."""

    def __init__(
        self,
        seconds: float,
        taken: Callable[[], tuple[int, int]] = taken_by_the_host,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.left_s = seconds
        self._taken = taken
        self._pause = pause

    def wait(self) -> None:
        """Wait until the host takes little, as long as there is patience."""
        while self.left_s > 0:
            stolen, passed = self._taken()
            self._pause(_WINDOW_S)
            stolen_after, passed_after = self._taken()
            if stolen_after - stolen <= _LITTLE * (passed_after - passed):
                return
            self.left_s -= _WINDOW_S

    def forgives(self, seconds: float) -> bool:
        """Say whether so long a time may have been in vain, and spend it."""
        was_left = self.left_s > 0
        self.left_s -= seconds
        return was_left

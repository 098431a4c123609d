"""How long to wait before asking again: longer each time, and never in step with others."""

from __future__ import annotations

from collections.abc import Callable

_FIRST_S = 0.1
_LONGEST_S = 15.0


class Pause:
    """Doubles with every failure in a row; *chance* gives numbers from 0 to 1."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0

    def reset(self) -> None:
        """Begin anew after a success."""
        self._failures = 0

    def next_s(self) -> float:
        """Give the seconds to wait now: half to one and a half of the step that is due."""
        step = min(_LONGEST_S, _FIRST_S * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return self.spread(step)

    def spread(self, seconds: float) -> float:
        """Vary *seconds* by half either way, so that many clients do not come at once."""
        return seconds * (0.5 + self._chance())

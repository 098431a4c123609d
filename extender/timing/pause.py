"""How long to wait before trying again: twice as long each time, and never in step with others."""

from __future__ import annotations

from dataclasses import dataclass

#: Doubling further changes nothing, and a float has an end.
_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Pause:
    """Begins with *first_s*, doubles with every failure in a row, and ends at *longest_s*."""

    first_s: float
    longest_s: float

    def after(self, failures: int, chance: float = 1.0) -> float:
        """Give the seconds to wait after so many failures, spread by *chance*; none after none."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        return spread(min(self.first_s * 2.0**doublings, self.longest_s), chance)


def spread(seconds: float, chance: float) -> float:
    """Take from half (*chance* 0) to all (1) of *seconds*, so that many do not come at once."""
    return seconds * (0.5 + 0.5 * chance)


def as_asked(own_s: float, asked_s: float, left_s: float, chance: float) -> float:
    """Wait as long as somebody asks, and up to a quarter longer, but not until all time is over.

    Never less than *own_s*, nor more than half of what is left: there must be another attempt.
    """
    wanted_s = asked_s * (1.0 + 0.25 * chance)
    return max(own_s, min(wanted_s, left_s / 2))

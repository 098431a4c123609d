"""Spans of time as people write them (`90s`, `1h30m`), and spans and moments as they are told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 64
#: Nobody plans beyond it.
MOST_S = 366 * 86400.0


def parse_duration(text: str) -> float | None:
    """Read a span as Go writes it, with `d` for days; None when it is none, or longer than a year.

    At least a second: what ends sooner ends at once for whoever looks ahead.
    """
    return _read(text) if len(text) <= _LONGEST else None


@lru_cache(4096)
def _read(text: str) -> float | None:
    if not _WHOLE.fullmatch(text):
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    return max(1.0, seconds) if 0 < seconds <= MOST_S else None


def format_duration(seconds: float) -> str:
    """Tell a span in at most two units."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def clock(at: float, now: float) -> str:
    """Tell a moment: the time of day, and the day where it is another one than that of *now*."""
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    form = "%H:%M UTC" if moment.date() == today.date() else "%Y-%m-%d %H:%M UTC"
    return moment.strftime(form)


#: Doubling further changes nothing, and a float has an end.
_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Begins with *first_s*, doubles with every failure in a row, and ends at *longest_s*."""

    first_s: float
    longest_s: float

    def delay_s(self, failures: int, chance: float = 1.0) -> float:
        """Give the seconds to wait after so many failures, spread by *chance*; none after none."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        return spread(min(self.first_s * 2.0**doublings, self.longest_s), chance)


def spread(seconds: float, chance: float) -> float:
    """Take from half (*chance* 0) to all (1) of *seconds*, so that many do not come at once."""
    return seconds * (0.5 + 0.5 * chance)


def with_retry_after(own_s: float, asked_s: float, left_s: float, chance: float) -> float:
    """Wait as long as somebody asks, and up to a quarter longer, but not until all time is over.

    Never less than *own_s*, nor more than half of what is left: there must be another attempt.
    """
    wanted_s = asked_s * (1.0 + 0.25 * chance)
    return max(own_s, min(wanted_s, left_s / 2))

"""Durations in the notation people write (`90s`, `1h30m`), formatted durations, and backoff."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

_COMPONENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_COMPONENT.pattern})+")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_CHARS = 64
#: The longest accepted duration: no forecast reaches further.
MAX_DURATION_S = 366 * 86400.0


def parse_duration(text: str) -> float | None:
    """Parse a duration in Go's notation, with `d` for days; None if invalid or above a year.

    The result is at least one second: the forecast treats anything shorter as ended already.
    """
    return _parse(text) if len(text) <= _MAX_CHARS else None


@lru_cache(4096)
def _parse(text: str) -> float | None:
    if not _DURATION.fullmatch(text):
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _COMPONENT.findall(text))
    return max(1.0, seconds) if 0 < seconds <= MAX_DURATION_S else None


def format_duration(seconds: float) -> str:
    """Format a duration in at most two units."""
    rounded = max(0, round(seconds))
    if rounded < 90:
        return f"{rounded} s"
    minutes = round(rounded / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def clock(at: float, now: float) -> str:
    """Format a time of day, with the date unless it is that of *now*."""
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    form = "%H:%M UTC" if moment.date() == today.date() else "%Y-%m-%d %H:%M UTC"
    return moment.strftime(form)


#: Enough to reach any limit; more would overflow a float.
_MAX_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: starts at *first_s*, doubles per failure, ends at *longest_s*."""

    first_s: float
    longest_s: float

    def delay_s(self, failures: int, chance: float = 1.0) -> float:
        """Return the delay after *failures* in a row, spread by *chance*; 0 after none."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        return spread(min(self.first_s * 2.0**doublings, self.longest_s), chance)


def spread(seconds: float, chance: float) -> float:
    """Scale *seconds* by half (*chance* 0) to one (1), so that retries do not coincide."""
    return seconds * (0.5 + 0.5 * chance)


def with_retry_after(own_s: float, requested_s: float, left_s: float, chance: float) -> float:
    """Return a delay of *requested_s*, plus up to a quarter, that leaves time for a retry.

    It is never less than *own_s*, and otherwise never more than half of *left_s*.
    """
    delayed_s = requested_s * (1.0 + 0.25 * chance)
    return max(own_s, min(delayed_s, left_s / 2))

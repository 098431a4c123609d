"""Spans of time as people write them (`90s`, `1h30m`), and spans and moments as they are told."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 64
#: Nobody plans beyond it.
MOST_S = 366 * 86400.0


def span_s(text: str) -> float | None:
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


def told(seconds: float) -> str:
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

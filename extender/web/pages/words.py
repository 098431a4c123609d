"""How pages put things: amounts, spans of time, names of strangers as text and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from extender.model.resources import PODS, Resources, write_amount
from extender.text.plain import clean

#: What one line of a table has room for.
LINE = 400
_NONE = "\N{EN DASH}"


def words(text: object, most: int = LINE) -> str:
    """Give *text* of a stranger: nothing in it steers the eye, and it has an end."""
    told = str(text)
    return clean(told if len(told) <= most else f"{told[:most]}…")


def span(seconds: float | None) -> str:
    """Write a span of time as people say it."""
    if seconds is None:
        return _NONE
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 1:
        return f"{whole} s"
    if hours < 1:
        return f"{minutes} min"
    if days < 1:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def brief(seconds: float | None) -> str:
    """Write a short time; nothing when it is longer than anybody measured."""
    if seconds is None:
        return "longer"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} \N{MICRO SIGN}s"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 60 else span(seconds)


def clock(epoch: float) -> str:
    """Write the time of day."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%H:%M:%S")


def moment(epoch: float) -> str:
    """Write date and time."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(epoch: float) -> str:
    """Write a time for machines."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def amount(value: float, resource: str) -> str:
    """Write one amount; large ones in the unit that leaves few digits."""
    whole = int(value)
    if resource == "cpu":
        return f"{whole / 1000:.0f}" if abs(whole) >= 10_000 else f"{whole / 1000:.3g}"
    if resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-"):
        return _bytes(whole)
    return f"{whole:,}"


def amounts(given: Resources | Mapping[str, str]) -> str:
    """Write a list of amounts in a line."""
    written = (
        {name: write_amount(name, each) for name, each in sorted(given.items())}
        if isinstance(given, Resources)
        else given
    )
    return ", ".join(f"{each} {name}" for name, each in written.items() if name != PODS) or _NONE


def many(count: int, noun: str) -> str:
    """Count something."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def segment(text: object) -> str:
    """Write *text* as one part of an address, whatever is in it."""
    return quote(str(text), safe="")


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.4g} PiB"


FILTERS: dict[str, Any] = {
    "words": words,
    "span": span,
    "brief": brief,
    "clock": clock,
    "moment": moment,
    "iso": iso,
    "amount": amount,
    "amounts": amounts,
    "many": many,
    "segment": segment,
}

"""Format amounts, durations and untrusted text for pages, and read query fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from extender.model.resources import PODS, Resources, write_amount
from extender.text import clean

#: The maximum length of text in a line of a table.
LINE = 400
_NONE = "\N{EN DASH}"


def shorten(text: object, most: int = LINE) -> str:
    """Return untrusted *text* without control characters and cut to *most*."""
    whole = str(text)
    return clean(whole if len(whole) <= most else f"{whole[:most]}…")


def span(seconds: float | None) -> str:
    """Format a duration for people."""
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
    """Format a short duration; None is longer than all buckets of the histogram."""
    if seconds is None:
        return "longer"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} \N{MICRO SIGN}s"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 60 else span(seconds)


def clock(epoch: float) -> str:
    """Format the time of day."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%H:%M:%S")


def moment(epoch: float) -> str:
    """Format date and time."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(epoch: float) -> str:
    """Format a time for machines."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def amount(value: float, resource: str) -> str:
    """Format one amount; large ones in the unit that leaves few digits."""
    whole = int(value)
    if resource == "cpu":
        return f"{whole / 1000:.0f}" if abs(whole) >= 10_000 else f"{whole / 1000:.3g}"
    if resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-"):
        return _bytes(whole)
    return f"{whole:,}"


def amounts(given: Resources | Mapping[str, str]) -> str:
    """Format amounts in one line."""
    written = (
        {name: write_amount(name, each) for name, each in sorted(given.items())}
        if isinstance(given, Resources)
        else given
    )
    return ", ".join(f"{each} {name}" for name, each in written.items() if name != PODS) or _NONE


def many(count: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def segment(text: object) -> str:
    """Encode *text* as one segment of a URL path."""
    return quote(str(text), safe="")


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.4g} PiB"


FILTERS: dict[str, Any] = {
    "shorten": shorten,
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


#: The maximum length of a field, such as the name of a queue.
_MAX_LENGTH = 253
_MAX_PAGES = 1_000_000
Item = TypeVar("Item")


class QueryFields:
    """The query fields that a page knows; others are ignored."""

    def __init__(self, given: Mapping[str, str], *fields: str) -> None:
        self._fields = {
            name: given[name].strip()[:_MAX_LENGTH]
            for name in fields
            if given.get(name, "").strip()
        }
        number = given.get("page", "")
        is_number = number.isascii() and number.isdigit() and len(number) <= 7
        self.page = min(_MAX_PAGES, max(1, int(number))) if is_number else 1

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, "")

    @property
    def is_narrowed(self) -> bool:
        """Return whether a filter is set."""
        return any(name != "sort" for name in self._fields)

    def address(self, **changes: object) -> str:
        """Return the query with *changes*, on the first page unless they name one."""
        fields = {**self._fields, **{name: str(value) for name, value in changes.items()}}
        return "?" + urlencode({name: value for name, value in fields.items() if value})

    def sorted_by(self, column: str) -> str:
        """Return the query that sorts by *column*, or reverses its order."""
        return self.address(sort=f"-{column}" if self["sort"] == column else column)


class Paged(NamedTuple, Generic[Item]):
    """One page of many things."""

    items: Sequence[Item]
    page: int
    pages: int
    first: int
    total: int


def paged(items: Sequence[Item], page: int, size: int) -> Paged[Item]:
    """Return one page of *items*; the last one if *page* is beyond it."""
    pages = max(1, -(-len(items) // size))
    page = min(page, pages)
    first = (page - 1) * size
    return Paged(items[first : first + size], page, pages, first, len(items))

"""Figures as lengths: bars and lines in per cent of their box, for SVG attributes.

The policy of our pages allows no style in an element, so whatever has a size is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from extender.planner.plan import QueueFigures
from extender.status.history import HOUR_S, Figures


class Part(NamedTuple):
    """A stretch of a bar; *kind* is its look."""

    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class QueueBar:
    """One resource of one queue."""

    resource: str
    deserved: float
    used: float
    borrowed: float
    requested: float
    parts: tuple[Part, ...]
    #: Where the due ends.
    mark: float


class Curves(NamedTuple):
    """The last hour of a resource: an area under what was used, lines for due and wanted."""

    used: str
    area: str
    deserved: str
    requested: str


def stack(whole: float, *amounts: tuple[str, float]) -> tuple[Part, ...]:
    """Lay *amounts* end to end in a bar that stands for *whole*; what is too much is cut."""
    parts, at = [], 0.0
    for kind, each in amounts:
        end = min(100.0, at + 100.0 * max(0.0, each) / whole) if whole > 0 else at
        if end > at:
            parts.append(Part(kind, round(at, 2), round(end - at, 2)))
        at = end
    return tuple(parts)


def scale(queues: Iterable[QueueFigures], resource: str, total: float) -> float:
    """Say how much a full bar is, so that bars of all queues can be compared."""
    longest = 0.0
    for each in queues:
        wanted = min(float(each.requested.amount(resource)), total)
        longest = max(
            longest, wanted, each.deserved.amount(resource), each.allocated.amount(resource)
        )
    return longest


def queue_bar(figures: QueueFigures, resource: str, whole: float) -> QueueBar:
    """Draw one resource of a queue: its own, what it borrows, what it still wants."""
    due, used = figures.deserved.amount(resource), figures.allocated.amount(resource)
    borrowed = min(used, figures.borrowed.amount(resource))
    wanted = max(0, figures.requested.amount(resource) - used)
    return QueueBar(
        resource,
        due,
        used,
        borrowed,
        wanted,
        stack(whole, ("used", used - borrowed), ("lent", borrowed), ("wanted", wanted)),
        round(min(100.0, 100.0 * due / whole), 2) if whole > 0 else 0.0,
    )


def curves(figures: Sequence[Figures], now: float, whole: float) -> Curves | None:
    """Draw the last hour, 100 wide and 28 high; None while there are less than two moments."""
    if len(figures) < 2:
        return None
    tall = max([whole, 1.0, *(max(each.deserved, each.used) for each in figures)])

    def points(values: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{_across(at, now)},{_up(value, tall)}" for at, value in values)

    used = points((each.at, each.used) for each in figures)
    first, last = _across(figures[0].at, now), _across(figures[-1].at, now)
    return Curves(
        used=used,
        area=f"{first},28 {used} {last},28",
        deserved=points((each.at, each.deserved) for each in figures),
        requested=points((each.at, min(each.requested, tall)) for each in figures),
    )


def _across(at: float, now: float) -> float:
    return round(100.0 * min(1.0, max(0.0, 1.0 - (now - at) / HOUR_S)), 2)


def _up(value: float, tall: float) -> float:
    return round(27.0 - 26.0 * min(1.0, value / tall), 2)

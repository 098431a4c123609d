"""Compute bars and lines in per cent of their box, for SVG attributes.

The Content-Security-Policy of the pages allows no inline style, so lengths are drawn as SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from extender.planner.plan import QueueFigures
from extender.status.history import HOUR_S, Figures


class Part(NamedTuple):
    """A section of a bar; *kind* is its CSS class."""

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
    #: The position of the deserved amount.
    mark: float


class Curves(NamedTuple):
    """The last hour of a resource: an area for used, lines for deserved and requested."""

    used: str
    area: str
    deserved: str
    requested: str


def stack(whole: float, *amounts: tuple[str, float]) -> tuple[Part, ...]:
    """Stack *amounts* in a bar of length *whole*; what exceeds it is cut."""
    parts, at = [], 0.0
    for kind, each in amounts:
        end = min(100.0, at + 100.0 * max(0.0, each) / whole) if whole > 0 else at
        if end > at:
            parts.append(Part(kind, round(at, 2), round(end - at, 2)))
        at = end
    return tuple(parts)


def scale(queues: Iterable[QueueFigures], resource: str, total: float) -> float:
    """Return the amount of a full bar, so that bars of all queues can be compared."""
    longest = 0.0
    for each in queues:
        requested = min(float(each.requested.amount(resource)), total)
        longest = max(
            longest, requested, each.deserved.amount(resource), each.allocated.amount(resource)
        )
    return longest


def queue_bar(figures: QueueFigures, resource: str, whole: float) -> QueueBar:
    """Return the bar of one resource of a queue: own, borrowed and still requested amounts."""
    deserved, used = figures.deserved.amount(resource), figures.allocated.amount(resource)
    borrowed = min(used, figures.borrowed.amount(resource))
    requested = max(0, figures.requested.amount(resource) - used)
    return QueueBar(
        resource,
        deserved,
        used,
        borrowed,
        requested,
        stack(whole, ("used", used - borrowed), ("lent", borrowed), ("wanted", requested)),
        round(min(100.0, 100.0 * deserved / whole), 2) if whole > 0 else 0.0,
    )


def curves(figures: Sequence[Figures], now: float, whole: float) -> Curves | None:
    """Return the curves of the last hour, 100 wide and 28 high; None with fewer than two points."""
    if len(figures) < 2:
        return None
    height = max([whole, 1.0, *(max(each.deserved, each.used) for each in figures)])

    def points(values: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{_x(at, now)},{_y(value, height)}" for at, value in values)

    used = points((each.at, each.used) for each in figures)
    first, last = _x(figures[0].at, now), _x(figures[-1].at, now)
    return Curves(
        used=used,
        area=f"{first},28 {used} {last},28",
        deserved=points((each.at, each.deserved) for each in figures),
        requested=points((each.at, min(each.requested, height)) for each in figures),
    )


def _x(at: float, now: float) -> float:
    return round(100.0 * min(1.0, max(0.0, 1.0 - (now - at) / HOUR_S)), 2)


def _y(value: float, height: float) -> float:
    return round(27.0 - 26.0 * min(1.0, value / height), 2)

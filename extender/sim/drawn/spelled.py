"""How figures of a run are written, on a terminal and on a page alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from extender.sim.outcome import Outcome

#: Figures that are parts of something.
_PARTS = ("fairness", "utilisation", "work wasted")
#: What each policy came to, by the name of a figure.
Rows: TypeAlias = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Simulated:
    """What came of one policy."""

    label: str
    outcome: Outcome
    #: Of the run, on its own clock.
    beginning: float
    figures: Mapping[str, float]


def parted(told: Sequence[Simulated]) -> tuple[Rows, Rows]:
    """Give the figures in which policies differ, and those in which they do not."""
    rows = {
        name: [value(name, each.figures[name]) for each in told]
        for name in (told[0].figures if told else ())
    }
    differs = {name: values for name, values in rows.items() if len(set(values)) > 1}
    return differs, {name: values for name, values in rows.items() if name not in differs}


def value(name: str, figure: float) -> str:
    """Write a figure as befits what it is called."""
    if name.startswith("wait"):
        return span(figure)
    return f"{figure:.1%}" if name.startswith(_PARTS) else f"{figure:.0f}"


def span(seconds: float) -> str:
    """Write a span of time."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"

"""Lines over time: what was used of each resource, and shares of queues against their dues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from extender.sim.drawn import axis
from extender.sim.drawn.markup import Markup, element, places, together
from extender.sim.drawn.spelled import span
from extender.sim.outcome import Outcome, OverTime

#: So many colours there are; then they come again.
COLOURS = 6
#: So many moments are in the table beside a drawing.
_ROWS = 12


def utilisation(outcome: Outcome) -> Markup:
    """Draw which part of each resource running pods asked for."""
    lines = {name: outcome.used[name].points() for name in outcome.resources}
    said = ", ".join(f"{name} {outcome.used[name].mean():.0%}" for name in lines)
    keys = together(
        *(
            element(
                "li",
                element("span", class_=f"key c{number % COLOURS}"),
                f"{name} ",
                element("span", f"{outcome.used[name].mean():.0%} on average", class_="quiet"),
            )
            for number, name in enumerate(lines)
        )
    )
    drawn = (
        _line(points, 1.0, f"line c{number % COLOURS}")
        for number, points in enumerate(lines.values())
    )
    return together(
        element("ul", keys, class_="keys"),
        _plot(drawn, outcome.span_s, 1.0, f"Utilisation over time; on average {said}", "plot tall"),
        _table("Utilisation over time", lines, outcome.span_s),
    )


def shares(outcome: Outcome) -> Markup:
    """Draw the share of each queue over time, with what is due to it."""
    lines = [*outcome.shares.values(), *outcome.dues.values()]
    highest = max((max(each.points()) for each in lines), default=0.0)
    top = min(1.0, max(0.25, ceil(highest * 4) / 4))
    keys = together(
        element("li", element("span", class_="key share"), "its share of the cluster"),
        element("li", element("span", class_="key due"), "what is due to it"),
    )
    figures = element(
        "div",
        *(
            _share(name, each, outcome.dues[name], outcome.span_s, top)
            for name, each in outcome.shares.items()
            if any(each.sums) or any(outcome.dues[name].sums)
        ),
        class_="multiples",
    )
    return together(element("ul", keys, class_="keys"), figures)


def _share(name: str, has: OverTime, due: OverTime, span_s: float, top: float) -> Markup:
    share, owed = has.points(), due.points()
    said = f"{has.mean():.0%} on average, due {due.mean():.0%}"
    drawn = (_area(share, top), _line(share, top, "line share"), _line(owed, top, "line due"))
    return element(
        "figure",
        element("figcaption", element("b", name), " ", element("span", said, class_="quiet")),
        _plot(drawn, span_s, top, f"Share of queue {name} over time: {said}", "plot"),
        _table(f"Queue {name}", {"share": share, "due": owed}, span_s),
    )


def _plot(drawn: Iterable[Markup], span_s: float, top: float, said: str, kind: str) -> Markup:
    """Draw lines over a grid; whatever is written is not stretched with them."""
    heights = [part / 4 for part in range(1, 5)]
    back = together(
        axis.grid(span_s),
        *(
            element("line", class_="grid", x1="0", x2="100%", y1=_up(each), y2=_up(each))
            for each in (0.0, *heights)
        ),
    )
    stretched = element(
        "svg",
        *drawn,
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
    )
    words = (
        element("text", f"{each * top:.0%}", x="4", y=_up(each), dy="12") for each in heights[1::2]
    )
    return together(
        element("svg", back, stretched, *words, class_=kind, role="img", aria_label=said),
        axis.scale(span_s),
    )


def _up(part: float) -> str:
    return axis.per_cent(1 - part)


def _steps(values: Sequence[float], top: float) -> list[tuple[float, float]]:
    """Give the places of a line that keeps each value for its whole stretch."""
    wide = 100 / len(values)
    return [
        (at, 100 - 100 * min(1.0, value / top))
        for number, value in enumerate(values)
        for at in (number * wide, (number + 1) * wide)
    ]


def _line(values: Sequence[float], top: float, kind: str) -> Markup:
    return element("polyline", class_=kind, points=places(_steps(values, top)))


def _area(values: Sequence[float], top: float) -> Markup:
    around = [(0.0, 100.0), *_steps(values, top), (100.0, 100.0)]
    return element("polygon", class_="area", points=places(around))


def _table(title: str, lines: Mapping[str, Sequence[float]], span_s: float) -> Markup:
    """Write the same in words, for those who read."""
    rows = []
    for row in range(_ROWS):
        cells = []
        for values in lines.values():
            part = values[row * len(values) // _ROWS : (row + 1) * len(values) // _ROWS]
            cells.append(element("td", f"{sum(part) / len(part):.0%}", class_="number"))
        start = element("th", span(span_s * row / _ROWS), scope="row")
        rows.append(element("tr", start, *cells))
    heads = (element("th", name, scope="col", class_="number") for name in lines)
    head = element("tr", element("th", "from", scope="col"), *heads)
    table = element(
        "table",
        element("caption", f"{title}, averages", class_="unseen"),
        element("thead", head),
        element("tbody", *rows),
        class_="rows",
    )
    return element("details", element("summary", "in numbers"), table)

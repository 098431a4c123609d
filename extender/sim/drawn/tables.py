"""Waits by queue and size with bars, figures at a glance, and policies side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.sim.drawn import axis
from extender.sim.drawn.markup import Markup, element, together
from extender.sim.drawn.spelled import Simulated, parted, span, value
from extender.sim.outcome import ALL, Waits

#: Of one policy, at a glance, with what stands below each.
_GLANCE = (
    ("gangs that ended", "gangs ended"),
    ("gangs that never started", "never started"),
    (f"wait p50, {ALL}", "wait, median"),
    (f"wait p95, {ALL}", "wait, 95th percentile"),
    ("fairness gap, mean", "fairness gap"),
    ("members evicted", "members evicted"),
    ("work wasted", "work wasted"),
)


def glance(told: Simulated) -> Markup:
    """Give the most important figures of one policy."""
    tiles = (
        element("li", element("b", value(name, told.figures[name])), " ", element("span", below))
        for name, below in _GLANCE
        if name in told.figures
    )
    return element("ul", *tiles, class_="tiles")


def figures(told: Simulated) -> Markup:
    """Give all figures of one policy but the waits, which have a table of their own."""
    rows = (
        element("tr", element("th", name, scope="row"), _number(value(name, figure)))
        for name, figure in told.figures.items()
        if not name.startswith("wait")
    )
    return element("div", _table("Figures", ("figure", "value"), rows), class_="few")


def waits(told: Simulated) -> Markup:
    """Give waits by queue and size."""
    found = told.outcome.waits(told.beginning)
    longest = max((each.longest for each in found.values()), default=1.0)
    heads = ("queue", "size", "gangs", "started", "p50", "p95", "max")
    rows = (_wait(queue, size, each, longest) for (queue, size), each in found.items())
    scale = element(
        "th", element("span", "drawn", class_="unseen"), axis.wait_scale(longest), scope="col"
    )
    note = (
        "Bars: the median, then the 95th percentile, then the longest; their scale is logarithmic."
    )
    return together(element("p", note, class_="quiet"), _table("Waits", heads, rows, scale))


def _wait(queue: str, size: str, each: Waits, longest: float) -> Markup:
    parts = (("rest", each.longest), ("late", each.p95), ("half", each.p50))
    bars = (
        element(
            "rect",
            class_=kind,
            x="0",
            y="2",
            height="10",
            width=axis.per_cent(axis.along(seconds, longest)),
        )
        for kind, seconds in parts
    )
    drawn = element("svg", axis.wait_grid(longest), *bars, class_="lane", aria_hidden="true")
    return element(
        "tr",
        element("th", queue, scope="row"),
        element("td", size, data_label="size"),
        _number(f"{each.gangs:,}", "gangs"),
        _number(f"{each.started:,}", "started"),
        _number(span(each.p50), "p50"),
        _number(span(each.p95), "p95"),
        _number(span(each.longest), "max"),
        element("td", drawn, class_="drawn"),
        class_="sum" if size == "all" else None,
    )


def compared(told: Sequence[Simulated]) -> Markup:
    """Put policies side by side, what differs first."""
    differs, same = parted(told)
    labels = [each.label for each in told]
    parts = []
    for title, rows in (("What differs", differs), ("The same in all", same)):
        lines = (
            element(
                "tr",
                element("th", name, scope="row"),
                *(_number(each, label) for each, label in zip(values, labels, strict=True)),
            )
            for name, values in rows.items()
        )
        if rows:
            table = _table(title, ("figure", *labels), lines)
            parts.append(element("section", element("h2", title), table, class_="card"))
    if not differs:
        parts.insert(0, element("p", "These policies came to the same figures.", class_="card"))
    return together(*parts)


def _number(told: object, label: str | None = None) -> Markup:
    return element("td", told, class_="number", data_label=label)


def _table(title: str, heads: Sequence[str], rows: Iterable[Markup], *more: Markup) -> Markup:
    names = (
        element("th", name, scope="col", class_="number" if place > 0 else None)
        for place, name in enumerate(heads)
    )
    return element(
        "table",
        element("caption", title, class_="unseen"),
        element("thead", element("tr", *names, *more)),
        element("tbody", *rows),
        class_="rows",
    )

"""The HTML report of a simulation: one file that loads nothing else and runs no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib import resources
from math import ceil, log10

from extender.sim.result import (
    ALL,
    Result,
    Simulated,
    TimeSeries,
    Waits,
    span,
    split_figures,
    value,
)
from extender.sim.workloads import JobRun
from extender.text import clean

#: Elements without an end tag.
_EMPTY = ("meta", "rect", "line", "polyline", "polygon")
#: The longest untrusted text that is shown.
_LONGEST = 400


class Markup(str):
    """Text that is markup; only this module creates it."""

    __slots__ = ()


def element(name: str, /, *inside: object, **given: object) -> Markup:
    """Return an element; attributes are named like `class_` and `aria_label`, None is left out."""
    attributes = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in given.items()
        if value is not None
    )
    if name in _EMPTY:
        return Markup(f"<{name}{attributes}>" if name == "meta" else f"<{name}{attributes}/>")
    return Markup(f"<{name}{attributes}>{join(*inside)}</{name}>")


def join(*parts: object) -> Markup:
    """Concatenate parts."""
    return Markup("".join(text(part) for part in parts))


def points(line: Iterable[tuple[float, float]]) -> Markup:
    """Return the points of a line."""
    return Markup(" ".join(f"{x:.5g},{y:.4g}" for x, y in line))


def text(part: object) -> Markup:
    """Escape *part* and strip control characters, unless it is markup."""
    if isinstance(part, Markup):
        return part
    shown = str(part)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    return Markup(escape(clean(shown)))


_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)
_STEPS_H = (1, 2, 3, 6, 12, 24, 48, 120, 240)
#: The largest number of marks that fits a narrow screen.
_MOST = 7
_WAITS = ((1, "1s"), (10, "10s"), (60, "1m"), (600, "10m"), (3600, "1h"), (36000, "10h"))


def marks(span_s: float) -> list[tuple[float, str]]:
    """Return the marks of a time axis: their position from 0 to 1, and their label."""
    steps = (*_STEPS_S, *(hours * 3600 for hours in _STEPS_H))
    step = next((each for each in steps if span_s / each <= _MOST), steps[-1])
    return [
        (number * step / span_s, _mark_label(number * step))
        for number in range(int(span_s / step) + 1)
    ]


def _mark_label(seconds: int) -> str:
    if not seconds:
        return "0"
    if seconds < 60:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if minutes:
        return f"{hours}h{minutes:02d}"
    return f"{hours // 24}d" if hours > 24 and hours % 24 == 0 else f"{hours}h"


def scale(span_s: float) -> Markup:
    """Draw the labels of a time axis."""
    return _scale(marks(span_s))


def grid(span_s: float) -> Markup:
    """Draw the grid lines of a time axis."""
    return _grid(marks(span_s))


def wait_scale(longest_s: float) -> Markup:
    """Draw the labels of a wait axis."""
    return _scale([(along(seconds, longest_s), label) for seconds, label in _waits(longest_s)])


def wait_grid(longest_s: float) -> Markup:
    """Draw the grid lines of a wait axis."""
    return _grid([(along(seconds, longest_s), label) for seconds, label in _waits(longest_s)])


def along(seconds: float, longest_s: float) -> float:
    """Return the position of a wait on a logarithmic axis, from 0 to 1."""
    return log10(1 + max(0.0, seconds)) / log10(1 + max(1.0, longest_s))


def per_cent(part: float) -> str:
    """Format a fraction as a CSS length."""
    return f"{round(100 * min(1.0, max(0.0, part)), 2):g}%"


def _waits(longest_s: float) -> list[tuple[float, str]]:
    return [(float(seconds), label) for seconds, label in _WAITS if seconds <= longest_s]


def _scale(marks: list[tuple[float, str]]) -> Markup:
    def anchor(part: float) -> str:
        return "start" if part < 0.02 else "end" if part > 0.97 else "middle"

    labels = (
        element("text", label, x=per_cent(part), y="12", text_anchor=anchor(part))
        for part, label in marks
    )
    return element("svg", *labels, class_="scale", aria_hidden="true")


def _grid(marks: list[tuple[float, str]]) -> Markup:
    lines = (
        element("line", class_="grid", x1=per_cent(part), x2=per_cent(part), y1="0", y2="100%")
        for part, _ in marks
    )
    return join(*lines)


#: The number of colours, which repeat.
COLOURS = 6
#: The rows of the table beside a chart.
_ROWS = 12


def utilisation(result: Result) -> Markup:
    """Draw the fraction of each resource that running pods request."""
    lines = {name: result.used[name].points() for name in result.resources}
    averages = ", ".join(f"{name} {result.used[name].mean():.0%}" for name in lines)
    keys = join(
        *(
            element(
                "li",
                element("span", class_=f"key c{number % COLOURS}"),
                f"{name} ",
                element("span", f"{result.used[name].mean():.0%} on average", class_="quiet"),
            )
            for number, name in enumerate(lines)
        )
    )
    drawn = (
        _line(points, 1.0, f"line c{number % COLOURS}")
        for number, points in enumerate(lines.values())
    )
    return join(
        element("ul", keys, class_="keys"),
        _plot(
            drawn, result.span_s, 1.0, f"Utilisation over time; on average {averages}", "plot tall"
        ),
        _curve_table("Utilisation over time", lines, result.span_s),
    )


def shares(result: Result) -> Markup:
    """Draw the share of each queue over time, with its deserved share."""
    lines = [*result.shares.values(), *result.deserved.values()]
    highest = max((max(each.points()) for each in lines), default=0.0)
    top = min(1.0, max(0.25, ceil(highest * 4) / 4))
    keys = join(
        element("li", element("span", class_="key share"), "share of the cluster"),
        element("li", element("span", class_="key due"), "deserved share"),
    )
    figures = element(
        "div",
        *(
            _share(name, each, result.deserved[name], result.span_s, top)
            for name, each in result.shares.items()
            if any(each.sums) or any(result.deserved[name].sums)
        ),
        class_="multiples",
    )
    return join(element("ul", keys, class_="keys"), figures)


def _share(name: str, used: TimeSeries, deserved: TimeSeries, span_s: float, top: float) -> Markup:
    share, due = used.points(), deserved.points()
    averages = f"{used.mean():.0%} on average, deserved {deserved.mean():.0%}"
    drawn = (_area(share, top), _line(share, top, "line share"), _line(due, top, "line due"))
    return element(
        "figure",
        element("figcaption", element("b", name), " ", element("span", averages, class_="quiet")),
        _plot(drawn, span_s, top, f"Share of queue {name} over time: {averages}", "plot"),
        _curve_table(f"Queue {name}", {"share": share, "deserved": due}, span_s),
    )


def _plot(drawn: Iterable[Markup], span_s: float, top: float, label: str, kind: str) -> Markup:
    """Draw lines over a grid; labels are not stretched with them."""
    heights = [part / 4 for part in range(1, 5)]
    back = join(
        grid(span_s),
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
    labels = (
        element("text", f"{each * top:.0%}", x="4", y=_up(each), dy="12") for each in heights[1::2]
    )
    return join(
        element("svg", back, stretched, *labels, class_=kind, role="img", aria_label=label),
        scale(span_s),
    )


def _up(part: float) -> str:
    return per_cent(1 - part)


def _steps(values: Sequence[float], top: float) -> list[tuple[float, float]]:
    """Return the points of a line that keeps each value for its whole interval."""
    wide = 100 / len(values)
    return [
        (at, 100 - 100 * min(1.0, value / top))
        for number, value in enumerate(values)
        for at in (number * wide, (number + 1) * wide)
    ]


def _line(values: Sequence[float], top: float, kind: str) -> Markup:
    return element("polyline", class_=kind, points=points(_steps(values, top)))


def _area(values: Sequence[float], top: float) -> Markup:
    around = [(0.0, 100.0), *_steps(values, top), (100.0, 100.0)]
    return element("polygon", class_="area", points=points(around))


def _curve_table(title: str, lines: Mapping[str, Sequence[float]], span_s: float) -> Markup:
    """Return the same values as a table."""
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


#: The largest number of drawn gangs, and how many of them are those with the longest waits.
MOST = 150
LONGEST = 30


def gantt(result: Result, beginning: float) -> Markup:
    """Draw the gangs, or a selection that states how it was made."""
    chosen, note = choose(result.runs, beginning + result.span_s)
    queues, used = list(result.shares), {run.job.queue for run in chosen}
    keys = join(
        *(
            element("li", element("span", class_=f"key c{number % COLOURS}"), name)
            for number, name in enumerate(queues)
            if name in used
        ),
        element("li", element("span", class_="key waits"), "waits"),
        element("li", element("span", class_="key lost"), "lost work"),
    )
    head = element(
        "tr",
        element("th", "gang", scope="col"),
        element("th", "pods", scope="col", class_="number"),
        element("th", "waited", scope="col", class_="number"),
        element("th", element("span", "over time", class_="unseen"), scale(result.span_s)),
    )
    rows = (_row(run, result.span_s, beginning, queues) for run in chosen)
    return join(
        element("p", note, class_="quiet"),
        element("ul", keys, class_="keys"),
        element(
            "table",
            element("caption", "Gangs over time", class_="unseen"),
            element("thead", head),
            element("tbody", *rows),
            class_="rows gantt",
        ),
    )


def choose(runs: Sequence[JobRun], end: float) -> tuple[list[JobRun], str]:
    """Return the gangs to draw, in order of arrival, and a note on the selection."""
    ordered = sorted(runs, key=lambda run: (run.created_at, run.job.key))
    if len(ordered) <= MOST:
        return ordered, f"All {len(ordered)}, in order of arrival."
    longest = sorted(ordered, key=lambda run: -_waited(run, end))[:LONGEST]
    picked = {run.job.key for run in longest}
    others = [run for run in ordered if run.job.key not in picked]
    step = -(-len(others) // (MOST - LONGEST))
    picked.update(run.job.key for run in others[::step])
    return (
        [run for run in ordered if run.job.key in picked],
        f"{len(picked)} of {len(ordered):,}, in order of arrival: the {LONGEST} with the longest"
        f" waits, and one in {step} of the others. The figures include all gangs.",
    )


def _waited(run: JobRun, end: float) -> float:
    started = end if run.first_started_at is None else run.first_started_at
    return max(0.0, started - run.created_at)


def _row(run: JobRun, span_s: float, beginning: float, queues: Sequence[str]) -> Markup:
    end, job = beginning + span_s, run.job
    colour = f"c{queues.index(job.queue) % COLOURS}" if job.queue in queues else "c0"
    stretches = [(since, until, "lost" if lost else colour) for since, until, lost in run.stretches]
    if run.working_since is not None:
        stretches.append((run.working_since, end, colour))
    bars, at = [], run.created_at
    for since, until, kind in stretches:
        bars += [(at, since, "waits"), (since, until, kind)]
        at = until
    if run.ended_at is None and run.working_since is None:
        bars.append((at, end, "waits"))
    waited = span(_waited(run, end)) + ("" if run.first_started_at is not None else " and on")
    return element(
        "tr",
        element("th", element("span", f"{job.queue}/", class_="quiet"), job.name, scope="row"),
        element("td", job.size, class_="number", data_label="pods"),
        element("td", waited, class_="number", data_label="waited"),
        element("td", _drawn(bars, span_s, beginning), class_="drawn"),
    )


def _drawn(bars: list[tuple[float, float, str]], span_s: float, beginning: float) -> Markup:
    def bar(since: float, until: float, kind: str) -> Markup:
        start, length = (since - beginning) / span_s, (until - since) / span_s
        low, high = ("5", "4") if kind == "waits" else ("1", "12")
        # A minimum width keeps short bars visible.
        min_width = 0.0 if kind == "waits" else 0.0025
        wide = per_cent(max(min_width, length))
        return element("rect", class_=kind, x=per_cent(start), y=low, width=wide, height=high)

    drawn = (bar(*each) for each in bars if each[1] > each[0])
    return element("svg", grid(span_s), *drawn, class_="lane", aria_hidden="true")


#: The key figures of a policy, each with its caption.
_KEY_FIGURES = (
    ("gangs that ended", "gangs ended"),
    ("gangs that never started", "never started"),
    (f"wait p50, {ALL}", "wait, median"),
    (f"wait p95, {ALL}", "wait, 95th percentile"),
    ("fairness gap, mean", "fairness gap"),
    ("members evicted", "members evicted"),
    ("work wasted", "work wasted"),
)


def key_figures(simulated: Simulated) -> Markup:
    """Return the key figures of one policy."""
    tiles = (
        element(
            "li", element("b", value(name, simulated.figures[name])), " ", element("span", below)
        )
        for name, below in _KEY_FIGURES
        if name in simulated.figures
    )
    return element("ul", *tiles, class_="tiles")


def figures(simulated: Simulated) -> Markup:
    """Return the figures of one policy without the waits, which have their own table."""
    rows = (
        element("tr", element("th", name, scope="row"), _number(value(name, figure)))
        for name, figure in simulated.figures.items()
        if not name.startswith("wait")
    )
    return element("div", _html_table("Figures", ("figure", "value"), rows), class_="few")


def waits(simulated: Simulated) -> Markup:
    """Return the waits by queue and size class."""
    found = simulated.result.waits(simulated.beginning)
    longest = max((each.longest for each in found.values()), default=1.0)
    heads = ("queue", "size", "gangs", "started", "p50", "p95", "max")
    rows = (_wait(queue, size, each, longest) for (queue, size), each in found.items())
    scale = element(
        "th", element("span", "drawn", class_="unseen"), wait_scale(longest), scope="col"
    )
    note = (
        "Bars: the median, then the 95th percentile, then the longest; their scale is logarithmic."
    )
    return join(element("p", note, class_="quiet"), _html_table("Waits", heads, rows, scale))


def _wait(queue: str, size: str, each: Waits, longest: float) -> Markup:
    parts = (("rest", each.longest), ("late", each.p95), ("half", each.p50))
    bars = (
        element(
            "rect",
            class_=kind,
            x="0",
            y="2",
            height="10",
            width=per_cent(along(seconds, longest)),
        )
        for kind, seconds in parts
    )
    drawn = element("svg", wait_grid(longest), *bars, class_="lane", aria_hidden="true")
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


def comparison(simulated: Sequence[Simulated]) -> Markup:
    """Return the policies side by side, the figures that differ first."""
    differs, same = split_figures(simulated)
    labels = [each.label for each in simulated]
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
            table = _html_table(title, ("figure", *labels), lines)
            parts.append(element("section", element("h2", title), table, class_="card"))
    if not differs:
        parts.insert(0, element("p", "All figures of these policies are equal.", class_="card"))
    return join(*parts)


def _number(content: object, label: str | None = None) -> Markup:
    return element("td", content, class_="number", data_label=label)


def _html_table(title: str, heads: Sequence[str], rows: Iterable[Markup], *more: Markup) -> Markup:
    names = (
        element("th", name, scope="col", class_="number" if column > 0 else None)
        for column, name in enumerate(heads)
    )
    return element(
        "table",
        element("caption", title, class_="unseen"),
        element("thead", element("tr", *names, *more)),
        element("tbody", *rows),
        class_="rows",
    )


def page(name: str, about: str, head: str, simulated: Sequence[Simulated]) -> str:
    """Return the report of a scenario under one policy or several."""
    title = f"{name}: a simulation"
    style = (resources.files(__package__) / "report.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    top = join(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Names in it are untrusted: the policy lets the page load nothing and run nothing.
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"default-src 'none'; style-src 'sha256-{digest}'",
        ),
        element("title", title),
        element("style", Markup(style)),
    )
    body = element(
        "main",
        element("header", element("h1", name), element("p", about), element("p", head)),
        comparison(simulated) if len(simulated) > 1 else "",
        *(_policy(each, is_alone=len(simulated) == 1) for each in simulated),
        element(
            "footer",
            "Made by gang-extender simulate in virtual time: a forecast, not a record.",
        ),
    )
    return f'<!doctype html>\n<html lang="en"><head>{top}</head><body>{body}</body></html>\n'


def _policy(simulated: Simulated, *, is_alone: bool) -> Markup:
    result = simulated.result
    cards = (
        ("Waits", waits(simulated)),
        ("Shares of queues and their deserved shares", shares(result)),
        ("Utilisation", utilisation(result)),
        ("Gangs", gantt(result, simulated.beginning)),
        ("Figures", figures(simulated)),
    )
    head = element("h2", simulated.label, class_="policy") if not is_alone else ""
    level = "h2" if is_alone else "h3"
    return join(
        head,
        key_figures(simulated),
        *(element("section", element(level, name), each, class_="card") for name, each in cards),
    )

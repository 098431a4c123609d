"""The HTML report of a simulation: its figures and scales; the markup is in `report.html`.

It is one file that loads nothing else and runs no script.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import resources
from math import ceil, log10
from typing import Any, TypeAlias

from jinja2 import Environment, StrictUndefined

from extender.sim.result import ALL, Simulated, span, split_figures, value
from extender.sim.workloads import JobRun
from extender.text import clean

#: A mark of an axis: its position from 0 to 1, and its label.
Mark: TypeAlias = tuple[float, str]
#: A part of a gang's line: its kind, then start and width from 0 to 1.
Bar: TypeAlias = tuple[str, float, float]

#: The longest untrusted text that is shown.
_LONGEST = 400
#: The number of colours, which repeat.
_COLOURS = 6
#: The rows of the table beside a chart.
_ROWS = 12
#: The largest number of drawn gangs, and how many of them are those with the longest waits.
MOST = 150
LONGEST = 30
#: The key figures of a policy, each with its caption.
_KEY_FIGURES = {
    "gangs that ended": "gangs ended",
    "gangs that never started": "never started",
    f"wait p50, {ALL}": "wait, median",
    f"wait p95, {ALL}": "wait, 95th percentile",
    "fairness gap, mean": "fairness gap",
    "members evicted": "members evicted",
    "work wasted": "work wasted",
}
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)
_STEPS_H = (1, 2, 3, 6, 12, 24, 48, 120, 240)
#: The largest number of marks that fits a narrow screen.
_MOST = 7
_WAITS = ((1, "1s"), (10, "10s"), (60, "1m"), (600, "10m"), (3600, "1h"), (36000, "10h"))


def page(name: str, about: str, head: str, simulated: Sequence[Simulated]) -> str:
    """Return the report of a scenario under one policy or several."""
    style = _file("report.css")
    differs, same = split_figures(simulated)
    return (
        environment()
        .from_string(_file("report.html"))
        .render(
            name=name,
            about=about,
            head=head,
            style=style,
            digest=b64encode(sha256(style.encode()).digest()).decode(),
            differs=differs,
            same=same,
            policies=[_policy(each) for each in simulated],
            colours=_COLOURS,
        )
    )


def environment() -> Environment:
    """Return the filters of the template; it cleans, cuts and escapes every value."""
    made = Environment(
        autoescape=True,
        finalize=_shorten,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "along": along,
        "averages": averages,
        "css": css,
        "marks": marks,
        "percent": "{:.0%}".format,
        "span": span,
        "steps": steps,
        "wait_marks": wait_marks,
    }
    return made


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _shorten(value: object) -> object:
    """Clean and cut untrusted text; markup of the template passes."""
    if hasattr(value, "__html__"):
        return value
    text = str(value)
    return clean(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _policy(simulated: Simulated) -> dict[str, Any]:
    """Return what the page shows of one policy."""
    result, figures = simulated.result, simulated.figures
    found = result.waits()
    chosen, note = choose(result.runs, result.end)
    colours = {name: f"c{number % _COLOURS}" for number, name in enumerate(result.shares)}
    used = {run.job.queue for run in chosen}
    shares = {name: (each, result.deserved[name]) for name, each in result.shares.items()}
    highest = max((max(each.points()) for pair in shares.values() for each in pair), default=0.0)
    return {
        "label": simulated.label,
        "span_s": result.span_s,
        "tiles": [
            (value(name, figures[name]), caption)
            for name, caption in _KEY_FIGURES.items()
            if name in figures
        ],
        "waits": found,
        "longest_wait": max((each.longest for each in found.values()), default=1.0),
        "top": min(1.0, max(0.25, ceil(highest * 4) / 4)),
        "shares": [
            (
                name,
                share.points(),
                due.points(),
                f"{share.mean():.0%} on average, deserved {due.mean():.0%}",
            )
            for name, (share, due) in shares.items()
            if any(share.sums) or any(due.sums)
        ],
        "means": {name: f"{result.used[name].mean():.0%}" for name in result.resources},
        "used": {name: result.used[name].points() for name in result.resources},
        "note": note,
        "queues": {name: colour for name, colour in colours.items() if name in used},
        "gangs": [
            (
                run.job,
                span(_waited(run, result.end))
                + (" and on" if run.first_started_at is None else ""),
                bars(run, result.beginning, result.span_s, colours.get(run.job.queue, "c0")),
            )
            for run in chosen
        ],
        # The waits have their own table.
        "figures": {
            name: [value(name, figure)]
            for name, figure in figures.items()
            if not name.startswith("wait")
        },
    }


def marks(span_s: float) -> list[Mark]:
    """Return the marks of a time axis."""
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


def wait_marks(longest_s: float) -> list[Mark]:
    """Return the marks of a wait axis."""
    return [(along(seconds, longest_s), label) for seconds, label in _WAITS if seconds <= longest_s]


def along(seconds: float, longest_s: float) -> float:
    """Return the position of a wait on a logarithmic axis, from 0 to 1."""
    return log10(1 + max(0.0, seconds)) / log10(1 + max(1.0, longest_s))


def css(part: float) -> str:
    """Format a fraction as a CSS length."""
    return f"{round(100 * min(1.0, max(0.0, part)), 2):g}%"


def steps(values: Sequence[float], top: float) -> str:
    """Return the points of a line that keeps each value for its whole interval."""
    wide = 100 / len(values)
    return " ".join(
        f"{at:.5g},{100 - 100 * min(1.0, value / top):.4g}"
        for number, value in enumerate(values)
        for at in (number * wide, (number + 1) * wide)
    )


def averages(lines: Mapping[str, Sequence[float]], span_s: float) -> list[tuple[str, list[float]]]:
    """Return rows with the averages of lines, each from a time on."""
    rows = []
    for row in range(_ROWS):
        parts = [
            values[row * len(values) // _ROWS : (row + 1) * len(values) // _ROWS]
            for values in lines.values()
        ]
        rows.append((span(span_s * row / _ROWS), [sum(part) / len(part) for part in parts]))
    return rows


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


def bars(run: JobRun, beginning: float, span_s: float, colour: str) -> list[Bar]:
    """Return the bars of a gang: its waits, its work in *colour* and its lost work."""
    end, at = beginning + span_s, run.created_at
    stretches = [(since, until, "lost" if lost else colour) for since, until, lost in run.stretches]
    if run.working_since is not None:
        stretches.append((run.working_since, end, colour))
    found = []
    for since, until, kind in stretches:
        found += [(at, since, "waits"), (since, until, kind)]
        at = until
    if run.ended_at is None and run.working_since is None:
        found.append((at, end, "waits"))
    return [
        # A minimum width keeps short bars visible.
        (
            kind,
            (since - beginning) / span_s,
            max(0.0 if kind == "waits" else 0.0025, (until - since) / span_s),
        )
        for since, until, kind in found
        if until > since
    ]

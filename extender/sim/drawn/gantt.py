"""Gangs as bars over time: how long each waited, worked, and worked in vain."""

from __future__ import annotations

from collections.abc import Sequence

from extender.sim.drawn import axis
from extender.sim.drawn.curves import COLOURS
from extender.sim.drawn.markup import Markup, element, together
from extender.sim.drawn.spelled import span
from extender.sim.outcome import Outcome
from extender.sim.world.workloads import Run

#: So many gangs are drawn, and so many of them for having waited longest.
MOST = 150
LONGEST = 30


def gantt(outcome: Outcome, beginning: float) -> Markup:
    """Draw the gangs, or a part of them that says which part it is."""
    chosen, said = choose(outcome.runs, beginning + outcome.span_s)
    queues, used = list(outcome.shares), {run.job.queue for run in chosen}
    keys = together(
        *(
            element("li", element("span", class_=f"key c{number % COLOURS}"), name)
            for number, name in enumerate(queues)
            if name in used
        ),
        element("li", element("span", class_="key waits"), "waits"),
        element("li", element("span", class_="key lost"), "work that was lost"),
    )
    head = element(
        "tr",
        element("th", "gang", scope="col"),
        element("th", "pods", scope="col", class_="number"),
        element("th", "waited", scope="col", class_="number"),
        element("th", element("span", "over time", class_="unseen"), axis.scale(outcome.span_s)),
    )
    rows = (_row(run, outcome.span_s, beginning, queues) for run in chosen)
    return together(
        element("p", said, class_="quiet"),
        element("ul", keys, class_="keys"),
        element(
            "table",
            element("caption", "Gangs over time", class_="unseen"),
            element("thead", head),
            element("tbody", *rows),
            class_="rows gantt",
        ),
    )


def choose(runs: Sequence[Run], end: float) -> tuple[list[Run], str]:
    """Give the gangs to draw, as they came, and say which they are."""
    ordered = sorted(runs, key=lambda run: (run.created_at, run.job.key))
    if len(ordered) <= MOST:
        return ordered, f"All {len(ordered)}, as they came."
    longest = sorted(ordered, key=lambda run: -_waited(run, end))[:LONGEST]
    picked = {run.job.key for run in longest}
    others = [run for run in ordered if run.job.key not in picked]
    step = -(-len(others) // (MOST - LONGEST))
    picked.update(run.job.key for run in others[::step])
    return (
        [run for run in ordered if run.job.key in picked],
        f"{len(picked)} of {len(ordered):,}, as they came: the {LONGEST} that waited longest, and"
        f" one in {step} of the others. The rest is in the figures, not in this drawing.",
    )


def _waited(run: Run, end: float) -> float:
    started = end if run.first_started_at is None else run.first_started_at
    return max(0.0, started - run.created_at)


def _row(run: Run, span_s: float, beginning: float, queues: Sequence[str]) -> Markup:
    end, job = beginning + span_s, run.job
    colour = f"c{queues.index(job.queue) % COLOURS}" if job.queue in queues else "c0"
    stretches = [(since, until, "lost" if lost else colour) for since, until, lost in run.stretches]
    if run.works_since is not None:
        stretches.append((run.works_since, end, colour))
    bars, at = [], run.created_at
    for since, until, kind in stretches:
        bars += [(at, since, "waits"), (since, until, kind)]
        at = until
    if run.ended_at is None and run.works_since is None:
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
        # What is too short to be seen is drawn all the same.
        least = 0.0 if kind == "waits" else 0.0025
        wide = axis.per_cent(max(least, length))
        return element("rect", class_=kind, x=axis.per_cent(start), y=low, width=wide, height=high)

    seen = (bar(*each) for each in bars if each[1] > each[0])
    return element("svg", axis.grid(span_s), *seen, class_="lane", aria_hidden="true")

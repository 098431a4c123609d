"""The figures of a run: waits, fairness, utilisation, evictions and wasted work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from extender.model.resources import PODS, Resources
from extender.planner.plan import Plan, QueueFigures
from extender.sim.workloads import JobRun

#: Upper bounds of the size classes.
_SIZES = (1, 4, 16, 64)
#: All queues together; no queue can have this name.
ALL = "all queues"
#: Points of each time series.
POINTS = 240


@dataclass(frozen=True, slots=True)
class Waits:
    """How long gangs of one class waited for their first start, in seconds."""

    gangs: int
    started: int
    p50: float
    p95: float
    longest: float


@dataclass(slots=True)
class TimeSeries:
    """A value over time: the average of each interval of the span."""

    span_s: float
    sums: list[float] = field(default_factory=lambda: [0.0] * POINTS)

    def add(self, value: float, since: float, until: float) -> None:
        """Add *value* from *since* to *until*."""
        width = self.span_s / POINTS
        at = since
        while at < until:
            point = min(POINTS - 1, int(at / width))
            end = min(until, (point + 1) * width) if point < POINTS - 1 else until
            self.sums[point] += value * (end - at)
            if end <= at:
                break
            at = end

    def points(self) -> list[float]:
        """Return the average of each interval."""
        width = self.span_s / POINTS
        return [each / width for each in self.sums]

    def mean(self) -> float:
        """Return the average over the span."""
        return sum(self.sums) / self.span_s


class Result:
    """Collect figures of a run that begins at *beginning* and lasts for *span_s*."""

    def __init__(
        self,
        beginning: float,
        span_s: float,
        total: Resources,
        queues: Iterable[str],
        *,
        is_of_a_tree: bool,
    ) -> None:
        self.beginning, self.span_s = beginning, span_s
        self.end = beginning + span_s
        #: Whether the figures of a queue include those of its children.
        self._is_of_a_tree = is_of_a_tree
        self.total = total
        self.resources = [name for name in total if name != PODS]
        self.used = {name: TimeSeries(span_s) for name in self.resources}
        self.shares = {name: TimeSeries(span_s) for name in queues}
        self.deserved = {name: TimeSeries(span_s) for name in queues}
        self.gap = TimeSeries(span_s)
        self.worst_gap = 0.0
        self.runs: list[JobRun] = []
        self.cycles = 0
        self._requested: dict[str, int] = {}
        #: Until when usage and shares are counted, in seconds after the beginning.
        self._usage_at = self._plan_at = 0.0
        self._figures: Mapping[str, QueueFigures] = {}

    def count_pod(self, run: JobRun, step: int, at: float) -> None:
        """Count that a pod of *run* starts (+1) or stops (-1) using its node."""
        self._add_usage(at - self.beginning)
        for name, amount in run.job.shape.requests.items():
            self._requested[name] = self._requested.get(name, 0) + step * amount

    def count_cycle(self, plan: Plan, at: float) -> None:
        """Take the figures of a planning cycle."""
        self._add_shares(at - self.beginning)
        self._figures = plan.queues

    def close(self, runs: list[JobRun], cycles: int) -> None:
        """Complete the time series to the end of the span."""
        self._add_usage(self.span_s)
        self._add_shares(self.span_s)
        self.runs, self.cycles = runs, cycles

    def _add_usage(self, at: float) -> None:
        at = min(at, self.span_s)
        if at > self._usage_at:
            for name in self.resources:
                total = self.total.amount(name)
                share = self._requested.get(name, 0) / total if total else 0.0
                if share:
                    self.used[name].add(share, self._usage_at, at)
            self._usage_at = at

    def _add_shares(self, at: float) -> None:
        at = min(at, self.span_s)
        if at <= self._plan_at:
            return
        since, self._plan_at = self._plan_at, at
        worst = 0.0
        for name, line in self.shares.items():
            figures = self._figures.get(name)
            if figures is None:
                continue
            used = figures.allocated if self._is_of_a_tree else figures.own
            share, deserved = self._dominant(used), self._dominant(figures.deserved)
            line.add(share, since, at)
            self.deserved[name].add(deserved, since, at)
            if not figures.requested.fits_in(figures.allocated):
                worst = max(worst, deserved - share)
        self.gap.add(worst, since, at)
        self.worst_gap = max(self.worst_gap, worst)

    def _dominant(self, amounts: Resources) -> float:
        shares = (
            amounts.amount(name) / self.total.amount(name)
            for name in self.resources
            if self.total.amount(name)
        )
        return min(1.0, max(shares, default=0.0))

    # ── figures ───────────────────────────────────────────────────────────────────────────

    def waits(self) -> dict[tuple[str, str], Waits]:
        """Return the waits by queue and size class; `all` for all sizes, `ALL` for all queues."""
        found: dict[tuple[str, str], list[tuple[float, bool]]] = {}
        for run in self.runs:
            started = run.first_started_at
            until = self.end if started is None else started
            each = (until - run.created_at, started is not None)
            for queue in (run.job.queue, ALL):
                for size in (size_class(run.job.size), "all"):
                    found.setdefault((queue, size), []).append(each)
        order = [*_classes(), "all"]
        keys = sorted(found, key=lambda key: (key[0] == ALL, key[0], order.index(key[1])))
        return {key: _waits(found[key]) for key in keys}

    def work_s(self) -> tuple[float, float]:
        """Return the pod seconds of completed work, and of wasted time."""
        done = sum(run.done_s for run in self.runs)
        lost = sum(run.wasted_s for run in self.runs)
        return done, lost

    def figures(self) -> dict[str, float]:
        """Return all figures to compare, by their displayed name."""
        found: dict[str, float] = {}
        for (queue, size), each in self.waits().items():
            if size == "all":
                found[f"wait p50, {queue}"] = each.p50
                found[f"wait p95, {queue}"] = each.p95
                found[f"wait max, {queue}"] = each.longest
        done, lost = self.work_s()
        found["gangs that ended"] = float(sum(run.ended_at is not None for run in self.runs))
        found["gangs that never started"] = float(
            sum(run.first_started_at is None for run in self.runs)
        )
        found["fairness gap, mean"] = self.gap.mean()
        found["fairness gap, worst"] = self.worst_gap
        for name in self.resources:
            found[f"utilisation, {name}"] = self.used[name].mean()
        found["members evicted"] = float(sum(run.evicted for run in self.runs))
        found["members lost with nodes"] = float(sum(run.lost for run in self.runs))
        found["work wasted"] = lost / (done + lost) if done + lost else 0.0
        return found


def size_class(size: int) -> str:
    """Return the name of a size class."""
    low = 1
    for high in _SIZES:
        if size <= high:
            return str(high) if low == high else f"{low}-{high}"
        low = high + 1
    return f"{low} and more"


def _classes() -> list[str]:
    return [*(size_class(high) for high in _SIZES), size_class(_SIZES[-1] + 1)]


def _waits(waits: list[tuple[float, bool]]) -> Waits:
    spans = sorted(span for span, _ in waits)
    return Waits(
        gangs=len(spans),
        started=sum(started for _, started in waits),
        p50=percentile(spans, 50),
        p95=percentile(spans, 95),
        longest=spans[-1],
    )


def percentile(ordered: list[float], percent: int) -> float:
    """Return the smallest value that *percent* of all do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


#: Figures that are fractions.
_PARTS = ("fairness", "utilisation", "work wasted")
#: The value under each policy, by the name of the figure.
Rows: TypeAlias = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of one policy."""

    label: str
    result: Result
    figures: Mapping[str, float]


def split_figures(simulated: Sequence[Simulated]) -> tuple[Rows, Rows]:
    """Return the figures in which the policies differ, and those in which they agree."""
    rows = {
        name: [value(name, each.figures[name]) for each in simulated]
        for name in (simulated[0].figures if simulated else ())
    }
    differs = {name: values for name, values in rows.items() if len(set(values)) > 1}
    return differs, {name: values for name, values in rows.items() if name not in differs}


def value(name: str, figure: float) -> str:
    """Format a figure by its name."""
    if name.startswith("wait"):
        return span(figure)
    return f"{figure:.1%}" if name.startswith(_PARTS) else f"{figure:.0f}"


def span(seconds: float) -> str:
    """Format a duration."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"

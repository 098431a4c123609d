"""How we are: what we hear, who leads, how long answers take, what should be mended."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from prometheus_client import Histogram

from extender.reporting.journal import Pass
from extender.web.pages.sights import Sights

_MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Latency:
    """How long one thing took since we began: half of the times, and nearly all."""

    name: str
    count: int
    mean_s: float
    #: Not more than this; None when it was longer than anybody measures.
    half_s: float | None
    nearly_all_s: float | None


def page(sights: Sights) -> dict[str, Any]:
    """Give all that speaks of ourselves; it is there before any plan, too."""
    last, leader = sights.last, sights.standby()
    # What a standby has found it found when it led.
    found = None if leader else sights.findings()
    return {
        "missing": sights.readiness(),
        "notes": sights.notes(),
        "leader": leader,
        "silence": sorted(sights.silence().items()),
        "hooks": latencies(sights.metrics.hook_seconds, "verb"),
        "cycles": latencies(sights.metrics.cycle_seconds),
        "schedulers": _schedulers(last),
        "findings": found[:_MOST_FINDINGS] if found else [],
        "finding_count": len(found) if found else 0,
        "age_s": sights.age_s() if last is not None else None,
    }


def latencies(histogram: Histogram, label: str = "") -> list[Latency]:
    """Read a histogram as a table has it."""
    buckets: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sums: dict[str, float] = {}
    for family in histogram.collect():
        for sample in family.samples:
            name = sample.labels.get(label) or next(
                (value for key, value in sample.labels.items() if key != "le"), ""
            )
            if sample.name.endswith("_bucket"):
                buckets[name].append((float(sample.labels["le"]), sample.value))
            elif sample.name.endswith("_sum"):
                sums[name] = sample.value
    return [
        Latency(
            name,
            int(steps[-1][1]),
            sums.get(name, 0.0) / steps[-1][1],
            _below(steps, 0.5),
            _below(steps, 0.99),
        )
        for name, steps in sorted(buckets.items())
        if steps and steps[-1][1]
    ]


def _below(steps: list[tuple[float, float]], part: float) -> float | None:
    """Give the smallest bound that so large a part of all stays within."""
    wanted = part * steps[-1][1]
    bound = next((bound for bound, count in steps if count >= wanted), float("inf"))
    return bound if bound != float("inf") else None


def _schedulers(last: Pass | None) -> list[dict[str, str]]:
    if last is None:
        return []
    now = last.snapshot.now
    return [
        {"name": each.name, "words": each.words(now), "complaint": each.complaint(now)}
        for each in last.snapshot.callers.values()
    ]

"""Gangs on their way to their nodes: who has come, whose bind is held, who is still awaited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from extender.cache.inflight import Promise, Stage
from extender.model.gang import GangKey
from extender.model.pod import Status
from extender.reporting.journal import Journal, Pass
from extender.web.pages import gangs
from extender.web.pages.asked import Asked, paged

SIZE = 50

_ON_THEIR_WAY = (Status.ALLOCATED, Status.BINDING)
#: In the order in which they are passed through.
STAGES = {
    Stage.TICKETED: "promised",
    Stage.PASSED: "passed filter",
    Stage.HELD: "held",
    Stage.COMMITTING: "binding",
    Stage.DOUBTED: "in doubt",
    Stage.BOUND: "bound, not yet seen",
}

#: Gives the promises to a gang, and the monotonic time of now.
Promises = Callable[[GangKey], tuple[Sequence[Promise], float]]


@dataclass(frozen=True, slots=True)
class Way:
    """One gang that is on its way."""

    row: gangs.Row
    stages: tuple[tuple[str, int], ...]
    #: How long the first of its promises has been at its stage.
    longest_s: float
    places: tuple[tuple[str, str, str, float], ...]


def page(last: Pass, journal: Journal, promises: Promises, asked: Asked) -> dict[str, Any]:
    """Give all gangs with promises that are not kept yet, the longest first."""
    keys = [
        key
        for key, gang in last.snapshot.gangs.items()
        if any(status in gang.by_status for status in _ON_THEIR_WAY)
    ]
    keys += sorted(last.plan.tickets.keys() - set(keys))
    ways = []
    for key in keys:
        verdict = last.plan.verdicts.get(key)
        made, monotonic = promises(key)
        if verdict is not None and made:
            ways.append(_way(gangs.row(verdict, last, journal), made, monotonic))
    ways.sort(key=lambda each: -each.longest_s)
    held = sum(count for each in ways for stage, count in each.stages if stage == "held")
    return {"shown": paged(ways, asked.page, SIZE), "held": held}


def _way(row: gangs.Row, promises: Sequence[Promise], monotonic: float) -> Way:
    counted = Counter(each.stage for each in promises)
    oldest = sorted(promises, key=lambda each: each.since_monotonic)
    return Way(
        row,
        tuple((STAGES[stage], counted[stage]) for stage in STAGES if counted[stage]),
        max(0.0, monotonic - oldest[0].since_monotonic),
        tuple(
            (
                each.pod.name,
                each.node or "a node that kube-scheduler chooses",
                STAGES[each.stage],
                max(0.0, monotonic - each.since_monotonic),
            )
            for each in oldest[:20]
        ),
    )

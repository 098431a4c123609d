"""The overview: what the cluster has, what each queue is due, uses and wants, and who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from extender.model.queue import Queue
from extender.model.resources import Resources
from extender.planner.plan import GangStatus, QueueFigures, ShareFigures
from extender.status.history import CycleResult, GangHistory, QueueHistory, main_resources
from extender.web.dashboard import charts, gangs
from extender.web.dashboard.charts import Curves, Part, QueueBar, stack
from extender.web.dashboard.format import QueryFields, paged

FIELDS = ("resource",)
#: Queues on a page, gangs among those who wait longest.
SIZE, LONGEST = 40, 8
#: Shares of a queue, and pieces of kept room, that are named.
_NAMED = 20


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One resource of the whole cluster."""

    resource: str
    total: float
    used: float
    held: float
    unused: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue, how deep it is below others, and who is in it."""

    figures: QueueFigures
    depth: int
    state: str
    waiting: int
    invalid: int
    running: int
    bars: tuple[QueueBar, ...]
    line: Curves | None
    shares: tuple[ShareFigures, ...]
    #: With those that are not named.
    share_count: int


def page(last: CycleResult, journal: GangHistory, asked: QueryFields) -> dict[str, Any]:
    """Give all that the overview shows."""
    plan, snapshot = last.plan, last.snapshot
    resources = main_resources(plan.total)
    drawn = asked["resource"] if asked["resource"] in resources else "".join(resources[:1])
    inside = Counter((each.queue, each.standing) for each in plan.verdicts.values())
    order = paged([*_tree(snapshot.queues, plan.queues)], asked.page, SIZE)
    scales = {
        name: charts.scale(plan.queues.values(), name, plan.total.amount(name))
        for name in resources
    }
    waiting = [each for each in plan.verdicts.values() if each.standing is GangStatus.WAITING]
    waiting.sort(key=lambda each: (journal.since(each.gang) or 0.0, each.gang))
    reasons = Counter(
        each.reason.value
        for each in plan.verdicts.values()
        if each.standing in (GangStatus.WAITING, GangStatus.INVALID)
    )
    shares: dict[str, list[ShareFigures]] = {}
    for each in plan.shares.values():
        shares.setdefault(each.queue, []).append(each)
    return {
        "counts": gangs.counts(plan.verdicts.values()),
        "standings": gangs.STANDINGS,
        "nodes": len(snapshot.nodes.nodes),
        "shut": sum(node.is_closed for node in snapshot.nodes.nodes),
        "rooms": [*_rooms(last, resources)],
        "kept": plan.held[:_NAMED],
        "kept_count": len(plan.held),
        "shown": order,
        "resources": resources,
        "drawn_resource": drawn,
        "queues": [
            QueueRow(
                figures=figures,
                depth=min(depth, 6),
                state=snapshot.queues[figures.name].state.value
                if figures.name in snapshot.queues
                else "",
                waiting=inside[figures.name, GangStatus.WAITING],
                invalid=inside[figures.name, GangStatus.INVALID],
                running=inside[figures.name, GangStatus.RUNNING],
                bars=tuple(charts.queue_bar(figures, name, scales[name]) for name in resources),
                line=_line(journal.history, figures, drawn, snapshot.now, scales),
                shares=tuple(shares.get(figures.name, ())[:_NAMED]),
                share_count=len(shares.get(figures.name, ())),
            )
            for figures, depth in order.items
        ],
        "longest": [gangs.row(each, last, journal) for each in waiting[:LONGEST]],
        "reasons": reasons.most_common(6),
    }


def _line(
    history: QueueHistory,
    figures: QueueFigures,
    resource: str,
    now: float,
    scales: Mapping[str, float],
) -> Curves | None:
    return charts.curves(history.of(figures.name, resource), now, scales.get(resource, 0.0) / 4)


def _rooms(last: CycleResult, resources: tuple[str, ...]) -> Iterator[ResourceRow]:
    plan = last.plan
    kept: Resources = sum((each.amounts for each in plan.held), Resources())
    for name in resources:
        total, idle = plan.total.amount(name), max(0, plan.unused.amount(name))
        withheld = min(idle, kept.amount(name))
        used = max(0, total - idle)
        parts = stack(total, ("used", used), ("promised", withheld))
        yield ResourceRow(name, total, used, withheld, idle - withheld, parts)


def _tree(
    queues: Mapping[str, Queue], figures: Mapping[str, QueueFigures]
) -> Iterator[tuple[QueueFigures, int]]:
    """Give each queue below its parent; who names none that is there stands by itself."""
    below: dict[str, list[str]] = {}
    for name in sorted(figures):
        parent = queues[name].parent if name in queues else ""
        below.setdefault(parent if parent in figures and parent != name else "", []).append(name)
    open_ones = [(name, 0) for name in reversed(below.get("", ()))]
    seen: set[str] = set()
    while open_ones:
        name, depth = open_ones.pop()
        if name in seen:
            continue
        seen.add(name)
        yield figures[name], depth
        open_ones += [(each, depth + 1) for each in reversed(below.get(name, ()))]
    # A circle of parents has no first one, and is shown all the same.
    for name in sorted(figures.keys() - seen):
        yield figures[name], 0

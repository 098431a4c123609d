"""The overview: the cluster's capacity, the queues' figures, and the gangs that wait longest."""

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
#: Queues on a page, and gangs in the list of those that wait longest.
SIZE, LONGEST = 40, 8
#: Namespaces of a queue, and entries of held capacity, that are listed.
_MAX_LISTED = 20


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
    """One queue, its depth in the tree, and its gangs."""

    figures: QueueFigures
    depth: int
    state: str
    waiting: int
    invalid: int
    running: int
    bars: tuple[QueueBar, ...]
    line: Curves | None
    shares: tuple[ShareFigures, ...]
    #: Including those that are not listed.
    share_count: int


def page(last: CycleResult, history: GangHistory, fields: QueryFields) -> dict[str, Any]:
    """Return the variables of the overview."""
    plan, snapshot = last.plan, last.snapshot
    resources = main_resources(plan.total)
    charted = fields["resource"] if fields["resource"] in resources else "".join(resources[:1])
    counted = Counter((each.queue, each.status) for each in plan.verdicts.values())
    order = paged([*_tree(snapshot.queues, plan.queues)], fields.page, SIZE)
    scales = {
        name: charts.scale(plan.queues.values(), name, plan.total.amount(name))
        for name in resources
    }
    waiting = [each for each in plan.verdicts.values() if each.status is GangStatus.WAITING]
    waiting.sort(key=lambda each: (history.since(each.gang) or 0.0, each.gang))
    reasons = Counter(
        each.reason.value
        for each in plan.verdicts.values()
        if each.status in (GangStatus.WAITING, GangStatus.INVALID)
    )
    shares: dict[str, list[ShareFigures]] = {}
    for each in plan.shares.values():
        shares.setdefault(each.queue, []).append(each)
    return {
        "counts": gangs.counts(plan.verdicts.values()),
        "statuses": gangs.STATUSES,
        "nodes": len(snapshot.nodes.nodes),
        "unavailable": sum(node.is_closed for node in snapshot.nodes.nodes),
        "resource_rows": [*_resource_rows(last, resources)],
        "held": plan.held[:_MAX_LISTED],
        "held_count": len(plan.held),
        "shown": order,
        "resources": resources,
        "charted_resource": charted,
        "queues": [
            QueueRow(
                figures=figures,
                depth=min(depth, 6),
                state=snapshot.queues[figures.name].state.value
                if figures.name in snapshot.queues
                else "",
                waiting=counted[figures.name, GangStatus.WAITING],
                invalid=counted[figures.name, GangStatus.INVALID],
                running=counted[figures.name, GangStatus.RUNNING],
                bars=tuple(charts.queue_bar(figures, name, scales[name]) for name in resources),
                line=_line(history.queues, figures, charted, snapshot.now, scales),
                shares=tuple(shares.get(figures.name, ())[:_MAX_LISTED]),
                share_count=len(shares.get(figures.name, ())),
            )
            for figures, depth in order.items
        ],
        "longest": [gangs.row(each, last, history) for each in waiting[:LONGEST]],
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


def _resource_rows(last: CycleResult, resources: tuple[str, ...]) -> Iterator[ResourceRow]:
    plan = last.plan
    held: Resources = sum((each.amounts for each in plan.held), Resources())
    for name in resources:
        total, unused = plan.total.amount(name), max(0, plan.unused.amount(name))
        held_amount = min(unused, held.amount(name))
        used = max(0, total - unused)
        parts = stack(total, ("used", used), ("promised", held_amount))
        yield ResourceRow(name, total, used, held_amount, unused - held_amount, parts)


def _tree(
    queues: Mapping[str, Queue], figures: Mapping[str, QueueFigures]
) -> Iterator[tuple[QueueFigures, int]]:
    """Yield each queue below its parent; a queue without an existing parent is a root."""
    below: dict[str, list[str]] = {}
    for name in sorted(figures):
        parent = queues[name].parent if name in queues else ""
        below.setdefault(parent if parent in figures and parent != name else "", []).append(name)
    pending = [(name, 0) for name in reversed(below.get("", ()))]
    seen: set[str] = set()
    while pending:
        name, depth = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        yield figures[name], depth
        pending += [(each, depth + 1) for each in reversed(below.get(name, ()))]
    # Queues in a circle of parents have no root, and are listed last.
    for name in sorted(figures.keys() - seen):
        yield figures[name], 0

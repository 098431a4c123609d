"""Why no capacity is found: slots counted, and nodes counted by what excludes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from extender.model.budgets import budgets_of
from extender.model.gang import Gang
from extender.model.node import Amounts
from extender.model.pod import SCHEDULED_SET, Shape
from extender.model.resources import CPU, MEMORY, PODS, Resources, write_amount
from extender.planner.plan import Plan
from extender.planner.session import Session
from extender.planner.state import GangState

_NEAREST = 3
_REFUSED = "refused by kube-scheduler"
#: Resources that are shown apart; more than any pod requests, and within 64 bits.
_BITS = 60
#: So many sets of resources that nodes lack are listed, those of most nodes.
_SETS = 8


@dataclass(frozen=True, slots=True)
class NearestNode:
    """A node that may be used but has too little free, and what it lacks."""

    node: str
    lacks: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The members of one shape compared with all nodes."""

    #: Members that need a node, and the requests of each of them.
    members: int
    each: Resources
    #: How many such members fit into free capacity now, and into an empty cluster.
    slots: int
    empty_slots: int
    #: Nodes that take at least one of them.
    takers: int
    #: What excludes the other nodes -> how many nodes it excludes.
    obstacles: Mapping[str, int] = field(default_factory=dict)
    #: The usable nodes that lack least.
    nearest: tuple[NearestNode, ...] = ()


def shortfalls(session: Session, plan: Plan, members: Mapping[Shape, int]) -> tuple[Shortfall, ...]:
    """Compare so many members of each shape with the capacity that *plan* leaves free."""
    capacity = _free_after(session, plan)
    return tuple(_shortfall(session, capacity, shape, count) for shape, count in members.items())


def obstacles(
    session: Session, capacity: Amounts, shape: Shape, *, is_empty: bool = False
) -> dict[str, int]:
    """Count every node that has too little in *capacity* for *shape* once, by what excludes it.

    If nothing ran, *is_empty*, no host port would be used and no node rejected.
    """
    nodes, names = session.nodes, session.snapshot.nodes.dimensions
    need = session.capacity.need(shape)
    if need is None:
        unknown = ", ".join(name for name in shape.requests if name not in names)
        return {f"without any {unknown}": len(capacity)}
    found: dict[str, int] = {}
    left = np.ones(len(capacity), dtype=bool)
    refused = {} if is_empty else {_REFUSED: nodes.rejected(shape)}
    for word, mask in {**nodes.obstacles(shape), **refused}.items():
        found[word] = int((mask & left).sum())
        left &= ~mask
    requested = np.flatnonzero(need)
    # One number for each set of resources that a node lacks; zero for none. Resources without a bit
    # of their own share one.
    requested, rest = requested[:_BITS], requested[_BITS:]
    short = (capacity[:, requested] < need[requested]) @ (1 << np.arange(len(requested)))
    if len(rest):
        short |= np.any(capacity[:, rest] < need[rest], axis=1).astype(np.int64) << _BITS
    codes, numbers = np.unique(short[left & (short > 0)], return_counts=True)
    shown = np.sort(np.argsort(-numbers, kind="stable")[:_SETS])
    for code, number in zip(codes[shown], numbers[shown], strict=True):
        lacks = [names[column] for bit, column in enumerate(requested) if code >> bit & 1]
        lacks += ["others"] if code >> _BITS else []
        found["short of " + " and ".join(lacks)] = int(number)
    found["short of something else"] = int(numbers.sum() - numbers[shown].sum())
    if shape.host_ports and not is_empty:
        conflicts = left & (short == 0) & ~nodes.ranking(shape).without_conflict()
        found["with a host port taken"] = int(conflicts.sum())
    return {word: number for word, number in found.items() if number}


def rejected_nodes(session: Session, shape: Shape) -> dict[str, int]:
    """Count every node that takes no pod of *shape* even if nothing runs; cached."""
    table = session.snapshot.nodes
    return table.facts.memo.recall(
        ("rejected", session.policy, shape),
        lambda: obstacles(session, table.allocatable, shape, is_empty=True),
    )


def in_words(found: Mapping[str, int]) -> str:
    """Return obstacles as one phrase: `: 12 nodes short of cpu, 3 tainted`; empty without any."""
    if not found:
        return ""
    (first, number), *others = found.items()
    rest = "".join(f", {number} {word}" for word, number in others)
    return f": {counted(number, 'node')} {first}{rest}"


def counted(number: int, noun: str) -> str:
    """Format "1 pod" or "2 pods"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def amounts(resources: Resources) -> str:
    """Return amounts as text, common resources first: `4 cpu, 8Gi memory`."""
    order = sorted(resources, key=lambda name: (name != CPU, name != MEMORY, name))
    named = [f"{write_amount(n, resources[n])} {n}" for n in order if resources[n] and n != PODS]
    return ", ".join(named) or "a place"


def _free_after(session: Session, plan: Plan) -> Amounts:
    """Return the free capacity that this plan's placements leave."""
    table = session.snapshot.nodes
    capacity: Amounts = table.allocatable - table.used
    for key, placement in plan.placements.items():
        shapes = {pod.uid: pod.shape for pod in session.snapshot.gangs[key].pods}
        for uid, node in placement.placements.items():
            if node in table.facts.index:
                capacity[table.facts.index[node]] -= session.capacity.row(shapes[uid])
    return capacity


def _shortfall(session: Session, capacity: Amounts, shape: Shape, members: int) -> Shortfall:
    counts = session.nodes.count(capacity, shape)
    return Shortfall(
        members=members,
        each=shape.requests,
        slots=int(counts.sum()),
        empty_slots=session.nodes.count_if_empty(shape),
        takers=int((counts > 0).sum()),
        obstacles=obstacles(session, capacity, shape),
        nearest=_nearest(session, capacity, shape),
    )


def _nearest(session: Session, capacity: Amounts, shape: Shape) -> tuple[NearestNode, ...]:
    """Return the nodes that lack least, of those that could be used if they had more free."""
    need, table = session.capacity.row(shape), session.snapshot.nodes
    lacks = np.maximum(need - capacity, 0)
    rows = np.flatnonzero(session.nodes.ranking(shape).without_conflict() & lacks.any(axis=1))
    ranks = (lacks[rows] / np.maximum(need, 1)).sum(axis=1)
    return tuple(
        NearestNode(table.nodes[row].name, table.resources(lacks[row]).positive())
        for row in rows[np.argsort(ranks, kind="stable")[:_NEAREST]]
    )


#: So many reasons, or pods, are named; the first reason holds for most pods.
_NAMED = 2


class ProtectedPods:
    """Pods that may not be evicted; counted once per cycle, if a gang finds no capacity."""

    def __init__(self, session: Session) -> None:
        self._session = session
        snapshot = session.snapshot
        self._budgets = budgets_of(snapshot)
        self._is_empty = not snapshot.budgets and not snapshot.protected
        #: What is written about them for the gangs of a queue and priority.
        self._notes: dict[tuple[str, int], str] = {}

    def note(self, gang: GangState) -> str:
        """Return which pods could free capacity for *gang* and do not; empty without any."""
        if not self._session.may_evict_for(gang):
            return ""
        return self._protected(gang) + self._overdue

    def _protected(self, gang: GangState) -> str:
        """Return how many pods that could be evicted for *gang* are protected."""
        if self._is_empty:
            return ""
        key = (gang.queue.name, gang.gang.priority)
        if key not in self._notes:
            self._notes[key] = self._protected_note(gang)
        return self._notes[key]

    def _protected_note(self, gang: GangState) -> str:
        total: Counter[str] = Counter()
        for (queue, priority), counts in self._by_queue.items():
            if self._could_be_evicted(queue, priority, gang):
                total += counts
        named = [f"{counted(count, 'pod')} ({why})" for why, count in total.most_common(_NAMED)]
        return f"; protected: {', '.join(named)}" if named else ""

    @cached_property
    def _overdue(self) -> str:
        """The names of overdue pods: no gang waits for them, but a user can help."""
        stuck = self._session.snapshot.stuck
        if not stuck:
            return ""
        gangs = self._session.snapshot.gangs.values()
        names = [pod.key for gang in gangs for pod in gang.pods if pod.uid in stuck]
        named = ", ".join(sorted(names)[:_NAMED])
        overdue = f"; {counted(len(stuck), 'pod')} should have terminated long ago"
        return f"{overdue}: {named}" if named else overdue

    def _could_be_evicted(self, queue: str, priority: int, gang: GangState) -> bool:
        if queue == gang.queue.name:
            return priority < gang.gang.priority
        other = self._session.queues[queue].queue
        return other.reclaimable and not self._session.plugins.is_overused(gang.queue)

    @cached_property
    def _by_queue(self) -> dict[tuple[str, int], Counter[str]]:
        """How many pods each reason protects, by queue and priority."""
        counts: dict[tuple[str, int], Counter[str]] = {}
        for gang in self._session.snapshot.gangs.values():
            if gang.scheduled and gang.queue in self._session.queues:
                of_group = counts.setdefault((gang.queue, gang.priority), Counter())
                of_group.update(self._reasons(gang))
        return counts

    def _reasons(self, gang: Gang) -> Mapping[str, int]:
        protected = self._session.snapshot.protected
        if not protected:
            return self._budgeted(gang)
        reasons = Counter(self._budgeted(gang))
        reasons.update(protected[pod.uid] for pod in gang.pods if pod.uid in protected)
        return reasons

    def _budgeted(self, gang: Gang) -> Mapping[str, int]:
        """Count the members that budgets protect; cached until the gang or the budgets change."""
        budgets = self._session.snapshot.budgets
        return gang.memo.recall("budgets", lambda: self._count(gang), about=budgets)

    def _count(self, gang: Gang) -> Mapping[str, int]:
        budgets = self._budgets
        scheduled = (pod for pod in gang.pods if pod.status in SCHEDULED_SET)
        covered = Counter(each for pod in scheduled for each in budgets.covering(pod))
        return {
            f"{budgets.title(each)} allows {budgets[each].allowed} disruptions": count
            for each, count in sorted(covered.items())
            if count > budgets[each].allowed
        }

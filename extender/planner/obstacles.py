"""Why there is no room: slots counted, and nodes counted by what keeps them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

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
#: Resources that are told apart; more than any pod asks for, and within 64 bits.
_BITS = 60
#: So many sets of resources that nodes are short of are told apart, those of most nodes.
_SETS = 8


@dataclass(frozen=True, slots=True)
class NearestNode:
    """A node that may be used but is too full, and what it lacks."""

    node: str
    lacks: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The members of one shape against all nodes."""

    #: Members that need a node, and what each of them asks for.
    members: int
    each: Resources
    #: How many such members the idle room takes now, and how many an empty cluster would.
    slots: int
    empty_slots: int
    #: Nodes that take at least one of them.
    takers: int
    #: What keeps the other nodes out -> how many nodes it keeps out.
    obstacles: Mapping[str, int] = field(default_factory=dict)
    #: The usable nodes that lack least.
    nearest: tuple[NearestNode, ...] = ()


def shortfalls(session: Session, plan: Plan, members: Mapping[Shape, int]) -> tuple[Shortfall, ...]:
    """Compare so many members of each shape with the room that *plan* leaves."""
    room = _room_left(session, plan)
    return tuple(_shortfall(session, room, shape, count) for shape, count in members.items())


def obstacles(
    session: Session, room: Amounts, shape: Shape, *, is_empty: bool = False
) -> dict[str, int]:
    """Count every node whose *room* takes no pod of *shape* once, by what is in the way.

    Where nothing ran, *is_empty*, no host port would be taken and nobody refused.
    """
    places, names = session.places, session.snapshot.nodes.dimensions
    need = session.capacity.need(shape)
    if need is None:
        unknown = ", ".join(name for name in shape.requests if name not in names)
        return {f"without any {unknown}": len(room)}
    found: dict[str, int] = {}
    left = np.ones(len(room), dtype=bool)
    refused = {} if is_empty else {_REFUSED: places.rejected(shape)}
    for word, mask in {**places.obstacles(shape), **refused}.items():
        found[word] = int((mask & left).sum())
        left &= ~mask
    asked = np.flatnonzero(need)
    # A number for each set of resources that a node is short of; zero for none. Those for which no
    # bit is left share one.
    asked, rest = asked[:_BITS], asked[_BITS:]
    short = (room[:, asked] < need[asked]) @ (1 << np.arange(len(asked)))
    if len(rest):
        short |= np.any(room[:, rest] < need[rest], axis=1).astype(np.int64) << _BITS
    codes, numbers = np.unique(short[left & (short > 0)], return_counts=True)
    told = np.sort(np.argsort(-numbers, kind="stable")[:_SETS])
    for code, number in zip(codes[told], numbers[told], strict=True):
        lacks = [names[column] for bit, column in enumerate(asked) if code >> bit & 1]
        lacks += ["others"] if code >> _BITS else []
        found["short of " + " and ".join(lacks)] = int(number)
    found["short of something else"] = int(numbers.sum() - numbers[told].sum())
    if shape.host_ports and not is_empty:
        clash = left & (short == 0) & ~places.ranking(shape).without_clash()
        found["with a host port taken"] = int(clash.sum())
    return {word: number for word, number in found.items() if number}


def rejected_nodes(session: Session, shape: Shape) -> dict[str, int]:
    """Count every node that would take no pod of *shape* if nothing ran; remembered like slots."""
    table = session.snapshot.nodes
    return table.facts.memo.recall(
        ("barred", session.policy, shape),
        lambda: obstacles(session, table.allocatable, shape, is_empty=True),
    )


def in_words(found: Mapping[str, int]) -> str:
    """Write obstacles as one phrase: `: 12 nodes short of cpu, 3 tainted`; empty without any."""
    if not found:
        return ""
    (first, number), *others = found.items()
    rest = "".join(f", {number} {word}" for word, number in others)
    return f": {number} {'node' if number == 1 else 'nodes'} {first}{rest}"


def amounts(resources: Resources) -> str:
    """Write amounts for people, what everybody asks for first: `4 cpu, 8Gi memory`."""
    order = sorted(resources, key=lambda name: (name != CPU, name != MEMORY, name))
    named = [f"{write_amount(n, resources[n])} {n}" for n in order if resources[n] and n != PODS]
    return ", ".join(named) or "a place"


def _room_left(session: Session, plan: Plan) -> Amounts:
    """Give the idle room after what this plan has handed out."""
    table = session.snapshot.nodes
    room: Amounts = table.allocatable - table.used
    for key, ticket in plan.placements.items():
        shapes = {pod.uid: pod.shape for pod in session.snapshot.gangs[key].pods}
        for uid, node in ticket.placements.items():
            if node in table.facts.index:
                room[table.facts.index[node]] -= session.capacity.row(shapes[uid])
    return room


def _shortfall(session: Session, room: Amounts, shape: Shape, members: int) -> Shortfall:
    counts = session.places.count(room, shape)
    return Shortfall(
        members=members,
        each=shape.requests,
        slots=int(counts.sum()),
        empty_slots=session.places.count_if_empty(shape),
        takers=int((counts > 0).sum()),
        obstacles=obstacles(session, room, shape),
        nearest=_nearest(session, room, shape),
    )


def _nearest(session: Session, room: Amounts, shape: Shape) -> tuple[NearestNode, ...]:
    """Name the nodes that lack least, of those that could be used if they had more room."""
    need, table = session.capacity.row(shape), session.snapshot.nodes
    lacks = np.maximum(need - room, 0)
    rows = np.flatnonzero(session.places.ranking(shape).without_clash() & lacks.any(axis=1))
    ranks = (lacks[rows] / np.maximum(need, 1)).sum(axis=1)
    return tuple(
        NearestNode(
            table.nodes[row].name,
            Resources(zip(table.dimensions, lacks[row].tolist(), strict=True)).positive(),
        )
        for row in rows[np.argsort(ranks, kind="stable")[:_NEAREST]]
    )


#: So many reasons, or pods, are named; the first reason holds for most pods.
_NAMED = 2


class ProtectedPods:
    """Looked up once per cycle, and only when a gang finds no room."""

    def __init__(self, session: Session) -> None:
        self._session = session
        snapshot = session.snapshot
        self._budgets = budgets_of(snapshot)
        self._is_empty = not snapshot.budgets and not snapshot.protected
        self._stuck: str | None = None
        #: (queue, priority) -> why -> pods.
        self._counts: dict[tuple[str, int], Counter[str]] | None = None
        #: What is said of them to the gangs of a queue and priority.
        self._said: dict[tuple[str, int], str] = {}

    def note(self, gang: GangState) -> str:
        """Say who could make room for *gang* and does not; empty when nobody."""
        if not self._session.is_starving(gang):
            return ""
        return self._left_alone(gang) + self._stuck_ones()

    def _left_alone(self, gang: GangState) -> str:
        """Say how many pods that could leave for *gang* are left alone."""
        if self._is_empty:
            return ""
        key = (gang.queue.name, gang.gang.priority)
        if key not in self._said:
            self._said[key] = self._say(gang)
        return self._said[key]

    def _say(self, gang: GangState) -> str:
        total: Counter[str] = Counter()
        for (queue, priority), counts in self._by_place().items():
            if self._could_leave(queue, priority, gang):
                total += counts
        named = [
            f"{count} {'pod' if count == 1 else 'pods'} ({why})"
            for why, count in total.most_common(_NAMED)
        ]
        return f"; left alone: {', '.join(named)}" if named else ""

    def _stuck_ones(self) -> str:
        """Name pods that should have left long ago: nobody waits for them, but people can help."""
        stuck = self._session.snapshot.stuck
        if not stuck:
            return ""
        if self._stuck is None:
            gangs = self._session.snapshot.gangs.values()
            names = [pod.key for gang in gangs for pod in gang.pods if pod.uid in stuck]
            count = "1 pod" if len(stuck) == 1 else f"{len(stuck)} pods"
            named = ", ".join(sorted(names)[:_NAMED])
            self._stuck = f"; {count} should have left long ago" + (f": {named}" if named else "")
        return self._stuck

    def _could_leave(self, queue: str, priority: int, gang: GangState) -> bool:
        if queue == gang.queue.name:
            return priority < gang.gang.priority
        other = self._session.queues[queue].queue
        return other.reclaimable and not self._session.opinions.is_overused(gang.queue)

    def _by_place(self) -> dict[tuple[str, int], Counter[str]]:
        if self._counts is None:
            self._counts = {}
            for gang in self._session.snapshot.gangs.values():
                if gang.scheduled and gang.queue in self._session.queues:
                    place = self._counts.setdefault((gang.queue, gang.priority), Counter())
                    place.update(self._reasons(gang))
        return self._counts

    def _reasons(self, gang: Gang) -> Mapping[str, int]:
        protected = self._session.snapshot.protected
        if not protected:
            return self._budgeted(gang)
        reasons = Counter(self._budgeted(gang))
        reasons.update(protected[pod.uid] for pod in gang.pods if pod.uid in protected)
        return reasons

    def _budgeted(self, gang: Gang) -> Mapping[str, int]:
        """Count the members that budgets keep; remembered until gang or budgets change."""
        budgets = self._session.snapshot.budgets
        return gang.memo.recall("budgets", lambda: self._count(gang), about=budgets)

    def _count(self, gang: Gang) -> Mapping[str, int]:
        seated = [pod for pod in gang.pods if pod.status in SCHEDULED_SET]
        budgets = self._budgets
        covered = Counter(each for pod in seated for each in budgets.covering(pod))
        return {
            f"{budgets.title(each)} allows {budgets[each].allowed} disruptions": count
            for each, count in sorted(covered.items())
            if count > budgets[each].allowed
        }

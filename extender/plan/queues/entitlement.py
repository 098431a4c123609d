"""What every queue deserves, is guaranteed and may use, as its object and its place say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import takewhile
from math import inf
from typing import NamedTuple

from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU, MEMORY, NOTHING, Resources
from extender.plan.arithmetic import Vector
from extender.plan.plugin import View
from extender.plan.queues import limits
from extender.plan.queues.wishes import ceilings
from extender.plan.room.state import QueueUse


class Place(NamedTuple):
    """Where a queue stands among those beside it; the smaller goes first."""

    #: How much of its due it uses; one without any due counts as full.
    share: float
    lacks_due: bool
    created: float
    name: str

    def why_before(self, other: Place) -> str:
        """Say what differs first."""
        if self.share != other.share:
            used = f"queue {self.name} uses {self.share:.0%} of its due"
            return f"{used}, {other.name} {other.share:.0%}"
        if self.lacks_due != other.lacks_due:
            return f"queue {self.name} has a due of its own, {other.name} none"
        if self.created != other.created:
            return f"queue {self.name} is {other.created - self.created:.0f} s older"
        return f"queue {self.name} is equal in all and first by name"


class Entitlement:
    """One queue: its promises, and what it and the queues below it use of them."""

    __slots__ = ("deserved", "elastic", "guarantee", "inqueue", "limit", "name", "state", "tree")

    def __init__(self, state: QueueUse, *, tree: bool) -> None:
        self.state = state
        self.name = state.name
        self.tree = tree
        self.deserved: Resources = state.queue.deserved
        self.guarantee: Resources = state.guarantee
        self.limit: Vector = {}
        self.inqueue = NOTHING
        self.elastic = NOTHING

    @property
    def used(self) -> Resources:
        """Give what it uses; in a tree with everything below it."""
        return self.state.with_children if self.tree else self.state.allocated


class Entitlements:
    """All queues by name, with their lines up to the root."""

    def __init__(self, session: View, *, tree: bool) -> None:
        self._session, self._maths = session, session.maths
        self._tree = tree
        self._all = {name: Entitlement(state, tree=tree) for name, state in session.queues.items()}
        #: Queues whose place in the tree is wrong, with what is wrong.
        self.broken: dict[str, Problem] = self._check() if tree else {}
        if tree:
            self._limit_tree()
        else:
            self._limit_each()
        self._lines = {name: self._climb(each) for name, each in self._all.items()}
        self._count_promises()
        self._shares_at_open = {name: self._share(each) for name, each in self._all.items()}

    def of(self, queue: QueueUse) -> Entitlement:
        """Give the entitlement of *queue*."""
        return self._all[queue.name]

    def line(self, queue: QueueUse) -> list[Entitlement]:
        """List *queue* and, in a tree, everything above it, upwards."""
        return self._lines[queue.name]

    def places(self, queue: QueueUse) -> tuple[Place, ...]:
        """Give the order of *queue* among all: in a tree from the top down."""
        line = self._lines[queue.name]
        path = [each for each in reversed(line) if each.name != ROOT_QUEUE] or line
        return tuple(self._place(each, is_leaf=each is line[0]) for each in path)

    def common_depth(self, one: QueueUse, other: QueueUse) -> int:
        """Count how many ancestors two queues have in common, from the root down."""
        ours, theirs = (self._lines[queue.name][:0:-1] for queue in (one, other))
        shared = takewhile(lambda pair: pair[0] is pair[1], zip(ours, theirs, strict=False))
        return max(len(list(shared)), 1)

    def _place(self, each: Entitlement, *, is_leaf: bool) -> Place:
        is_live = self._is_live(is_leaf=is_leaf)
        share = self._share(each) if is_live else self._shares_at_open[each.name]
        return Place(
            share, not self._maths.names(each.deserved), each.state.queue.created, each.name
        )

    def _is_live(self, *, is_leaf: bool) -> bool:
        """Ask whether a share is the present one, not the one when the cycle began."""
        return True

    def _share(self, each: Entitlement) -> float:
        """Give how much of its due a queue uses; one without any due counts as full."""
        if not self._maths.names(each.deserved):
            return 1.0
        return self._maths.share(each.used, each.deserved)

    def _check(self) -> dict[str, Problem]:
        broken = {}
        inner = {each.state.parent.name for each in self._all.values() if each.state.parent}
        for name, each in self._all.items():
            problem = self._misplaced(each.state.queue)
            if problem is None and name in inner and name in self._session.census.busy:
                message = f"queue {name} has queues below it; a gang must name one without"
                problem = Problem(Reason.QUEUE_NOT_ALLOWED, message)
            if problem is not None:
                broken[name] = problem
        return broken

    def _misplaced(self, queue: Queue) -> Problem | None:
        state = self._all[queue.name].state
        if not queue.parent or queue.name == ROOT_QUEUE or state.parent is not None:
            return None
        if self._is_at_top(queue):
            return None
        known = queue.parent in self._all
        wrong = "which is itself below it" if known else "which does not exist"
        message = f"queue {queue.name} names the parent {queue.parent}, {wrong}"
        return Problem(Reason.QUEUE_NOT_FOUND, message)

    def _is_at_top(self, queue: Queue) -> bool:
        """Ask whether *queue* hangs on a root that nobody wrote."""
        return queue.parent == ROOT_QUEUE

    def _limit_each(self) -> None:
        limits = self._ceilings()
        for each in self._all.values():
            queue, limit = each.state.queue, limits[each.name]
            each.limit = limit
            deserved = {n: int(min(a, limit.get(n, a))) for n, a in queue.deserved.items()}
            each.deserved = Resources(deserved).at_least(each.guarantee)

    def _ceilings(self) -> Mapping[str, Vector]:
        """Give what every queue may use; what is kept for a family is not kept from its own."""
        return ceilings(self._session.stakes, self._session.total)

    def _limit_tree(self) -> None:
        endless = dict.fromkeys((CPU, MEMORY, *self._session.total), inf)
        below: dict[str, list[Entitlement]] = {name: [] for name in self._all}
        for each in self._all.values():
            if each.state.parent is not None:
                below[each.state.parent.name].append(each)
        tops = [each for each in self._all.values() if each.state.parent is None]
        #: Families whose own level is settled, each with what holds above it. Not by recursion:
        #: who may be how far below is for others to say.
        due: deque[tuple[list[Entitlement], Vector, dict[str, float]]] = deque()
        for root in (top for top in tops if top.name == ROOT_QUEUE):
            stated = dict(limits.stated(root.state.queue.capability))
            root.limit = stated or endless
            due.append((below[root.name], root.limit, dict(root.limit)))
        due.append(([top for top in tops if top.name != ROOT_QUEUE], endless, endless))
        while due:
            siblings, above, capability = due.popleft()
            for each, own in self._limit_siblings(siblings, above, capability):
                due.append((below[each.name], each.limit, own))
        for children in (below[top.name] for top in tops if top.name == ROOT_QUEUE):
            if children:
                root = self._all[ROOT_QUEUE]
                root.guarantee = sum((child.guarantee for child in children), NOTHING)
                root.deserved = sum((child.deserved for child in children), NOTHING)

    def _limit_siblings(
        self, siblings: list[Entitlement], above: Vector, capability: dict[str, float]
    ) -> Iterator[tuple[Entitlement, dict[str, float]]]:
        """Give each what is above, less what is guaranteed to the others, up to its capability."""
        kept = limits.reserved(each.state.queue for each in siblings)
        for each in siblings:
            own = capability | dict(limits.stated(each.state.queue.capability))
            each.deserved = each.state.queue.deserved.at_least(each.guarantee)
            each.limit = {
                name: min(
                    max(0, above.get(name, 0) - kept.amount(name))
                    + each.state.queue.reserved.amount(name),
                    own.get(name, inf),
                )
                for name in {**above, **each.guarantee}
            }
            yield each, own

    def _climb(self, each: Entitlement) -> list[Entitlement]:
        return [self._all[s.name] for s in limits.upwards(each.state)] if self._tree else [each]

    def _count_promises(self) -> None:
        for name, each in self._all.items():
            for entitled in self._lines[name]:
                entitled.inqueue = entitled.inqueue + each.state.inqueue
                entitled.elastic = entitled.elastic + each.state.elastic

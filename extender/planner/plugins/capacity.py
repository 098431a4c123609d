"""capacity: every queue states what it deserves, guarantees and may use; queues may form a tree.

Unlike proportion, nothing is computed from weights. A queue may grow to its capability while there
is free capacity. What exceeds its deserved amount is reclaimed when queues within theirs need it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple

from extender.model.pod import Shape
from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU, MEMORY, NOTHING, PODS, Resources, total
from extender.planner import quota
from extender.planner.accounting import still_needed, without_gated
from extender.planner.plugin import Plugin, Preemptor, Round, VictimCandidate, View, Vote
from extender.planner.policy import Vector, exceeds_somewhere, excess, within_somewhere
from extender.planner.state import GangState, QueueUsage


class Place(NamedTuple):
    """The order of a queue among its siblings; the smaller goes first."""

    #: The used part of its deserved amount; a queue that deserves nothing counts as full.
    used: float
    lacks_deserved: bool
    created: float
    name: str

    def why_before(self, other: Place) -> str:
        """Return what differs first, as a phrase."""
        if self.used != other.used:
            ours = f"queue {self.name} uses {self.used:.0%} of its deserved amount"
            return f"{ours}, {other.name} {other.used:.0%}"
        if self.lacks_deserved != other.lacks_deserved:
            return f"queue {self.name} states a deserved amount, {other.name} none"
        if self.created != other.created:
            return f"queue {self.name} is {other.created - self.created:.0f} s older"
        return f"queue {self.name} is equal in all and first by name"


class Entitlement:
    """The entitlement of one queue, and what it and the queues below it use of it."""

    __slots__ = ("deserved", "elastic", "guarantee", "inqueue", "limit", "name", "state", "tree")

    def __init__(self, state: QueueUsage, *, tree: bool) -> None:
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
        """Return what it uses; in a tree with all queues below it."""
        return self.state.with_children if self.tree else self.state.allocated


class Entitlements:
    """The entitlements of all queues by name, with their lines up to the root."""

    def __init__(self, session: View, *, tree: bool) -> None:
        self._session, self._arithmetic = session, session.arithmetic
        self._tree = tree
        self._all = {name: Entitlement(state, tree=tree) for name, state in session.queues.items()}
        #: Queues with a wrong position in the tree, and what is wrong.
        self.misplaced: dict[str, Problem] = self._check() if tree else {}
        if tree:
            self._limit_tree()
        else:
            self._limit_each()
        self._lines = {name: self._climb(each) for name, each in self._all.items()}
        self._count_reserved()
        self._used_at_open = {name: self._used_part(each) for name, each in self._all.items()}

    def of(self, queue: QueueUsage) -> Entitlement:
        """Return the entitlement of *queue*."""
        return self._all[queue.name]

    def line(self, queue: QueueUsage) -> list[Entitlement]:
        """Return *queue* and, in a tree, all queues above it, upwards."""
        return self._lines[queue.name]

    def places(self, queue: QueueUsage) -> tuple[Place, ...]:
        """Return the order of *queue* among all: in a tree from the top down."""
        line = self._lines[queue.name]
        path = [each for each in reversed(line) if each.name != ROOT_QUEUE] or line
        return tuple(self._place(each, is_leaf=each is line[0]) for each in path)

    def common_depth(self, one: QueueUsage, other: QueueUsage) -> int:
        """Count how many ancestors two queues have in common, from the root down."""
        ours, theirs = (self._lines[queue.name][:0:-1] for queue in (one, other))
        shared = takewhile(lambda pair: pair[0] is pair[1], zip(ours, theirs, strict=False))
        return max(len(list(shared)), 1)

    def _place(self, each: Entitlement, *, is_leaf: bool) -> Place:
        is_live = self._is_live(is_leaf=is_leaf)
        used = self._used_part(each) if is_live else self._used_at_open[each.name]
        return Place(
            used, not self._arithmetic.names(each.deserved), each.state.queue.created, each.name
        )

    def _is_live(self, *, is_leaf: bool) -> bool:
        """Return whether a share is the present one, not the one when the cycle began."""
        return True

    def _used_part(self, each: Entitlement) -> float:
        """Return the used part of the deserved amount; 1 for a queue that deserves nothing."""
        if not self._arithmetic.names(each.deserved):
            return 1.0
        return self._arithmetic.dominant_share(each.used, each.deserved)

    def _check(self) -> dict[str, Problem]:
        misplaced = {}
        inner = {each.state.parent.name for each in self._all.values() if each.state.parent}
        for name, each in self._all.items():
            problem = self._problem_of(each.state.queue)
            if problem is None and name in inner and name in self._session.accounting.active:
                message = f"queue {name} has queues below it; a gang must name one without"
                problem = Problem(Reason.QUEUE_NOT_ALLOWED, message)
            if problem is not None:
                misplaced[name] = problem
        return misplaced

    def _problem_of(self, queue: Queue) -> Problem | None:
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
        """Return whether *queue* is below a root that is not an object."""
        return queue.parent == ROOT_QUEUE

    def _limit_each(self) -> None:
        limits = self._ceilings()
        for each in self._all.values():
            queue, limit = each.state.queue, limits[each.name]
            each.limit = limit
            deserved = {n: int(min(a, limit.get(n, a))) for n, a in queue.deserved.items()}
            each.deserved = Resources(deserved).at_least(each.guarantee)

    def _ceilings(self) -> Mapping[str, Vector]:
        """Return what every queue may use."""
        return self._session.ceilings

    def _limit_tree(self) -> None:
        unlimited = dict.fromkeys((CPU, MEMORY, *self._session.total), inf)
        below: dict[str, list[Entitlement]] = {name: [] for name in self._all}
        for each in self._all.values():
            if each.state.parent is not None:
                below[each.state.parent.name].append(each)
        tops = [each for each in self._all.values() if each.state.parent is None]
        #: Families whose own level is settled, each with the limits above it. Not by recursion:
        #: users decide how deep the tree is.
        pending: deque[tuple[list[Entitlement], Vector, dict[str, float]]] = deque()
        for root in (top for top in tops if top.name == ROOT_QUEUE):
            root.limit = dict(root.state.queue.ceiling) or unlimited
            pending.append((below[root.name], root.limit, dict(root.limit)))
        pending.append(([top for top in tops if top.name != ROOT_QUEUE], unlimited, unlimited))
        while pending:
            siblings, above, capability = pending.popleft()
            for each, own in self._limit_siblings(siblings, above, capability):
                pending.append((below[each.name], each.limit, own))
        for children in (below[top.name] for top in tops if top.name == ROOT_QUEUE):
            if children:
                root = self._all[ROOT_QUEUE]
                root.guarantee = total(child.guarantee for child in children)
                root.deserved = total(child.deserved for child in children)

    def _limit_siblings(
        self, siblings: list[Entitlement], above: Vector, capability: dict[str, float]
    ) -> Iterator[tuple[Entitlement, dict[str, float]]]:
        """Limit each to what is above, less what others are guaranteed, up to its capability."""
        guaranteed = total(each.state.queue.reserved for each in siblings)
        for each in siblings:
            own = capability | dict(each.state.queue.ceiling)
            each.deserved = each.state.queue.deserved.at_least(each.guarantee)
            each.limit = {
                name: min(
                    max(0, above.get(name, 0) - guaranteed.amount(name))
                    + each.state.queue.reserved.amount(name),
                    own.get(name, inf),
                )
                for name in {**above, **each.guarantee}
            }
            yield each, own

    def _climb(self, each: Entitlement) -> list[Entitlement]:
        return [self._all[s.name] for s in quota.upwards(each.state)] if self._tree else [each]

    def _count_reserved(self) -> None:
        for name, each in self._all.items():
            for entitled in self._lines[name]:
                entitled.inqueue = entitled.inqueue + each.state.inqueue
                entitled.elastic = entitled.elastic + each.state.elastic


class Capacity(Plugin):
    """Stated entitlements, flat or as a tree (`enableHierarchy`)."""

    known = ("ancestorReclaimLevel",)
    ignored_arguments = (
        "capacity.DynamicResourceAllocationEnable", "capacity.DRAConsumableCapacityEnable",
    )  # fmt: skip

    _entitlements = Entitlements

    def configure(self) -> None:
        """Read how far up a queue may reclaim for its ancestors."""
        self._reclaim_level = max(0, int(self.arguments.number("ancestorReclaimLevel", 0)))

    def open(self, session: View) -> None:
        """Read the entitlements of all queues."""
        super().open(session)
        self._arithmetic = session.arithmetic
        self._by_queue = self._entitlements(session, tree=self.hierarchy)
        self._level = self._reclaim_level if self.hierarchy else 0
        if self.hierarchy:
            self.victim_queue_order = self._victim_queue_order

    def deserved(self, queue: QueueUsage) -> Vector:
        """Return what *queue* deserves."""
        return self._by_queue.of(queue).deserved

    def queue_order(self, queue: QueueUsage) -> tuple[Any, ...]:
        """Put higher priority first, then the queue furthest below what it deserves, by level."""
        return (-queue.queue.priority, *self._by_queue.places(queue))

    def queue_order_reason(self, ahead: QueueUsage, behind: QueueUsage) -> str:
        """Name both priorities, or what differs on the first level where the queues differ."""
        levels = zip(self._by_queue.places(ahead), self._by_queue.places(behind), strict=False)
        differs = (one.why_before(other) for one, other in levels if one != other)
        return ahead.rank_over(behind) or next(differs, f"{behind.name} is below {ahead.name}")

    def allocatable(self, gang: GangState, shape: Shape) -> int | Problem:
        """Count the pods of *shape* that the queue and all above it may still start."""
        problem = self._cannot_start(gang.queue)
        if problem is not None:
            return problem
        requested = shape.requests.without(PODS)
        if self._keeps_to_deserved(gang.queue):
            return self._within_deserved(gang, requested)
        least = quota.UNBOUNDED
        for entitled in self._by_queue.line(gang.queue):
            times = quota.allowed(entitled.name, entitled.used, entitled.limit, requested)
            if isinstance(times, Problem):
                return times
            least = min(least, times)
        return least

    def _keeps_to_deserved(self, queue: QueueUsage) -> bool:
        """Return whether *queue* may not exceed its deserved amount now.

        It may exceed it once queues within theirs have been served. It may also evict for itself if
        it deserves nothing. If it deserved an amount, its victims would start again before it.
        """
        if self.session.round in (Round.OVERSHOOT, Round.BORROW):
            return False
        return self.session.round is Round.DESERVED or bool(self.deserved(queue))

    def _within_deserved(self, gang: GangState, requested: Resources) -> int | Problem:
        """Count the pods within the queue's deserved amount, and within the limits of all above."""
        queue = gang.queue
        deserved = self.deserved(queue)
        named = Resources({n: a for n, a in requested.items() if a > 0 and deserved.get(n, 0) > 0})
        if not named:
            return Problem(Reason.QUEUE_OVER_DESERVED, f"queue {queue.name} deserves none of it")
        if self.session.round is Round.PREEMPT:
            deserved = queue.preemption_limit(deserved, gang, named)
        least, scarcest = quota.how_many(self._by_queue.of(queue).used, deserved, named)
        for entitled in self._by_queue.line(queue):
            least = min(least, quota.how_many(entitled.used, entitled.limit, requested)[0])
        if least:
            return least
        used = self._by_queue.of(queue).used.amount(scarcest)
        return quota.over_deserved(
            queue.name, scarcest, used, requested[scarcest], deserved[scarcest]
        )

    def entitled(self, gang: GangState, needs: Resources) -> bool:
        """Return whether the queue of *gang* has less than it deserves and could hold *needs*."""
        if self._cannot_start(gang.queue) is not None:
            return False
        entitled = self._by_queue.of(gang.queue)
        if excess(needs, entitled.limit, needs):
            return False
        deserved = {n: amount for n, amount in entitled.deserved.items() if needs.amount(n) > 0}
        if not deserved:
            return self.session.round is Round.OVERSHOOT
        return all(entitled.used.amount(name) < amount for name, amount in deserved.items())

    def preemptive(self, gang: GangState, shape: Shape) -> bool:
        """Return whether the queue of *gang* may reclaim for one more pod of *shape*."""
        if self._cannot_start(gang.queue) is not None:
            return False
        entitled = self._by_queue.of(gang.queue)
        if excess(entitled.used + shape.requests, entitled.limit, shape.requests):
            return False
        line = self._by_queue.line(gang.queue)[: self._level + 1]
        return any(
            self._stays_within_deserved(each, shape.requests)
            for each in line
            if each.name != "root"
        )

    def reclaimable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow victims of queues that use more than they deserve, down to their guarantee."""
        if self._cannot_start(preemptor.gang.queue, closed_matters=False) is not None:
            return []
        rest: dict[str, Resources] = {}
        return [
            candidate
            for candidate in self.session.in_victim_order(preemptor, candidates)
            if self._release(preemptor, candidate, rest)
        ]

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose minimum the queue and all above it could hold."""
        problem = self._cannot_start(gang.queue)
        if problem is not None:
            return problem
        least = gang.gang.group.min_resources
        if least is None:
            return Vote.PERMIT
        fades = self.session.rules.reservations_fade
        for entitled in self._by_queue.line(gang.queue):
            used, limit = entitled.used - entitled.elastic, entitled.limit
            requested = still_needed(gang.gang, least, limit) if fades else least
            problem = quota.too_much(entitled.name, used, limit, requested, entitled.inqueue)
            if problem is not None:
                return problem
        return Vote.PERMIT

    def enqueued(self, gang: GangState) -> None:
        """Count what *gang* has reserved, here and above."""
        least = gang.gang.group.min_resources
        if least is None:
            return
        for entitled in self._by_queue.line(gang.queue):
            entitled.inqueue = entitled.inqueue + without_gated(gang.gang, least)

    def _cannot_start(self, queue: QueueUsage, *, closed_matters: bool = True) -> Problem | None:
        problem = self._by_queue.misplaced.get(queue.name)
        if problem is None and closed_matters:
            problem = queue.closed()
        return problem

    def _stays_within_deserved(self, entitled: Entitlement, requested: Resources) -> bool:
        """Return whether one more pod stays within the deserved amount.

        Volcano requires that of one resource of several. Two queues could then reclaim from each
        other for ever, so here it must hold for every resource of the deserved amount.
        """
        after = entitled.used + requested
        if not within_somewhere(self._arithmetic, after, entitled.deserved, requested):
            return False
        named = {name: requested.amount(name) for name in entitled.deserved}
        return not excess(after, entitled.deserved, named)

    def _release(
        self, preemptor: Preemptor, candidate: VictimCandidate, rest: dict[str, Resources]
    ) -> bool:
        """Subtract the victim from *rest*, what its queues use; False if they may not lose it."""
        requested, released = preemptor.pod.requests, candidate.pod.requests
        if not _have_common_resource(requested, released):
            return False
        if candidate.gang.queue is preemptor.gang.queue:
            return True  # for a namespace below its guarantee; the queue loses nothing
        owner, own = (
            self._by_queue.of(candidate.gang.queue),
            self._by_queue.of(preemptor.gang.queue),
        )
        used = rest.setdefault(owner.name, owner.used)
        if not self._arithmetic.within(owner.guarantee, used - released):
            return False
        immediate = not self._names_any(released, owner.deserved)
        if immediate and self._is_exchange(preemptor, candidate, own):
            return False
        lines = [owner, *self._other_ancestors(preemptor, candidate)]
        for entitled in lines:
            left = rest.setdefault(entitled.name, entitled.used)
            if not self._has_too_much(entitled, left, released):
                return False
        for entitled in lines:
            rest[entitled.name] = rest[entitled.name] - released
        return True

    def _has_too_much(self, entitled: Entitlement, rest: Resources, released: Resources) -> bool:
        if not self._names_any(released, entitled.deserved):
            return True
        return exceeds_somewhere(self._arithmetic, entitled.used, entitled.deserved, released)

    def _names_any(self, amounts: Resources, deserved: Vector) -> bool:
        """Return whether *amounts* and *deserved* have a resource in common."""
        names = set(self._arithmetic.names(deserved))
        return any(name in names for name in self._arithmetic.names(amounts))

    def _is_exchange(
        self, preemptor: Preemptor, candidate: VictimCandidate, own: Entitlement
    ) -> bool:
        """Return whether two relatives that deserve nothing would only exchange capacity."""
        if not self._level or self._names_any(preemptor.pod.requests, own.deserved):
            return False
        ours = {each.name for each in self._above(preemptor.gang.queue)}
        return any(each.name in ours for each in self._above(candidate.gang.queue))

    def _other_ancestors(
        self, preemptor: Preemptor, candidate: VictimCandidate
    ) -> list[Entitlement]:
        """Return the victim's ancestors that are not the preemptor's at the same distance."""
        ours = self._by_queue.line(preemptor.gang.queue)[1:]
        theirs = self._by_queue.line(candidate.gang.queue)[1 : self._level + 1]
        return [
            each
            for depth, each in enumerate(theirs)
            if each.name != "root" and not (depth < len(ours) and ours[depth] is each)
        ]

    def _above(self, queue: QueueUsage) -> list[Entitlement]:
        line = self._by_queue.line(queue)[1 : self._level + 1]
        return [each for each in line if each.name != "root"]

    def _victim_queue_order(self, queue: QueueUsage, own: QueueUsage) -> int:
        """Take from the nearest relatives first."""
        return -self._by_queue.common_depth(queue, own)


def _have_common_resource(one: Resources, other: Resources) -> bool:
    return any(a > 0 and name != PODS and other.amount(name) > 0 for name, a in one.items())

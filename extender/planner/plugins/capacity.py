"""capacity: every queue states what it deserves, guarantees and may use; queues may form a tree.

Unlike proportion nothing is computed from weights: a queue may grow to its capability while there
is room, and gives back what exceeds its due when others, within theirs, need it.
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
from extender.model.resources import CPU, MEMORY, NOTHING, PODS, Resources
from extender.planner import quota
from extender.planner.accounting import still_needed, without_gated
from extender.planner.plugin import Plugin, Preemptor, Round, VictimCandidate, View, Vote
from extender.planner.policy import Vector, exceeds_somewhere, excess, within_somewhere
from extender.planner.startable import ceilings
from extender.planner.state import GangState, QueueUsage


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
        """Give what it uses; in a tree with everything below it."""
        return self.state.with_children if self.tree else self.state.allocated


class Entitlements:
    """All queues by name, with their lines up to the root."""

    def __init__(self, session: View, *, tree: bool) -> None:
        self._session, self._maths = session, session.arithmetic
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

    def of(self, queue: QueueUsage) -> Entitlement:
        """Give the entitlement of *queue*."""
        return self._all[queue.name]

    def line(self, queue: QueueUsage) -> list[Entitlement]:
        """List *queue* and, in a tree, everything above it, upwards."""
        return self._lines[queue.name]

    def places(self, queue: QueueUsage) -> tuple[Place, ...]:
        """Give the order of *queue* among all: in a tree from the top down."""
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
            if problem is None and name in inner and name in self._session.accounting.busy:
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
        return ceilings(self._session.limits, self._session.total)

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
            stated = dict(quota.stated(root.state.queue.capability))
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
        kept = quota.reserved(each.state.queue for each in siblings)
        for each in siblings:
            own = capability | dict(quota.stated(each.state.queue.capability))
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
        return [self._all[s.name] for s in quota.upwards(each.state)] if self._tree else [each]

    def _count_promises(self) -> None:
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
        self._maths = session.arithmetic
        self._known = self._entitlements(session, tree=self.hierarchy)
        self._level = self._reclaim_level if self.hierarchy else 0
        if self.hierarchy:
            self.victim_queue_order = self._victim_queue_order

    def deserved(self, queue: QueueUsage) -> Vector:
        """Give what *queue* deserves."""
        return self._known.of(queue).deserved

    def queue_order(self, queue: QueueUsage) -> tuple[Any, ...]:
        """Put higher priority first, then who is furthest below its due, level by level."""
        return (-queue.queue.priority, *self._known.places(queue))

    def queue_order_words(self, ahead: QueueUsage, behind: QueueUsage) -> str:
        """Name both priorities, or what differs on the first level that tells them apart."""
        levels = zip(self._known.places(ahead), self._known.places(behind), strict=False)
        differs = (one.why_before(other) for one, other in levels if one != other)
        return ahead.rank_over(behind) or next(differs, f"{behind.name} is below {ahead.name}")

    def allocatable(self, gang: GangState, shape: Shape) -> int | Problem:
        """Count the pods of *shape* that the queue and all above it may still take."""
        problem = self._cannot_start(gang.queue)
        if problem is not None:
            return problem
        asked = shape.requests.without(PODS)
        if self._keeps_to_due(gang.queue):
            return self._within_due(gang, asked)
        least = quota.UNBOUNDED
        for entitled in self._known.line(gang.queue):
            times = quota.allowed(entitled.name, entitled.used, entitled.limit, asked)
            if isinstance(times, Problem):
                return times
            least = min(least, times)
        return least

    def _keeps_to_due(self, queue: QueueUsage) -> bool:
        """Ask whether *queue* may not exceed its due now.

        It may when others within theirs have been served, or make room for itself if it has no
        due at all; otherwise whoever it displaces would come back before it.
        """
        if self.session.round in (Round.OVERSHOOT, Round.BORROW):
            return False
        return self.session.round is Round.DESERVED or bool(self.deserved(queue))

    def _within_due(self, gang: GangState, asked: Resources) -> int | Problem:
        """Count the pods that keep the queue of *gang* within its due, and all above in limits."""
        queue = gang.queue
        due = self.deserved(queue)
        named = Resources({n: a for n, a in asked.items() if a > 0 and due.get(n, 0) > 0})
        if not named:
            return Problem(Reason.QUEUE_OVER_DESERVED, f"queue {queue.name} deserves none of it")
        if self.session.round is Round.PREEMPT:
            due = queue.preemption_limit(due, gang, named)
        least, scarcest = quota.how_many(self._known.of(queue).used, due, named)
        for entitled in self._known.line(queue):
            least = min(least, quota.how_many(entitled.used, entitled.limit, asked)[0])
        if least:
            return least
        used = self._known.of(queue).used.amount(scarcest)
        return quota.over_deserved(queue.name, scarcest, used, asked[scarcest], due[scarcest])

    def entitled(self, gang: GangState, needs: Resources) -> bool:
        """Ask whether the queue of *gang* is below its due and could hold *needs* by itself."""
        if self._cannot_start(gang.queue) is not None:
            return False
        entitled = self._known.of(gang.queue)
        if excess(needs, entitled.limit, needs):
            return False
        due = {n: amount for n, amount in entitled.deserved.items() if needs.amount(n) > 0}
        if not due:
            return self.session.round is Round.OVERSHOOT
        return all(entitled.used.amount(name) < amount for name, amount in due.items())

    def preemptive(self, gang: GangState, shape: Shape) -> bool:
        """Ask whether the queue of *gang* may take back its due for one more pod of *shape*."""
        if self._cannot_start(gang.queue) is not None:
            return False
        entitled = self._known.of(gang.queue)
        if excess(entitled.used + shape.requests, entitled.limit, shape.requests):
            return False
        line = self._known.line(gang.queue)[: self._level + 1]
        return any(self._is_due(each, shape.requests) for each in line if each.name != "root")

    def reclaimable(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow victims of queues that use more than their due, down to their guarantee."""
        if self._cannot_start(claim.gang.queue, closed_matters=False) is not None:
            return []
        rest: dict[str, Resources] = {}
        return [
            candidate
            for candidate in self.session.in_victim_order(claim, candidates)
            if self._gives(claim, candidate, rest)
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
        for entitled in self._known.line(gang.queue):
            used, limit = entitled.used - entitled.elastic, entitled.limit
            asked = still_needed(gang.gang, least, limit) if fades else least
            problem = quota.too_much(entitled.name, used, limit, asked, entitled.inqueue)
            if problem is not None:
                return problem
        return Vote.PERMIT

    def enqueued(self, gang: GangState) -> None:
        """Count what *gang* was promised, here and above."""
        least = gang.gang.group.min_resources
        if least is None:
            return
        for entitled in self._known.line(gang.queue):
            entitled.inqueue = entitled.inqueue + without_gated(gang.gang, least)

    def _cannot_start(self, queue: QueueUsage, *, closed_matters: bool = True) -> Problem | None:
        problem = self._known.broken.get(queue.name)
        if problem is None and closed_matters:
            problem = quota.closed(queue)
        return problem

    def _is_due(self, entitled: Entitlement, asked: Resources) -> bool:
        """Ask whether one more pod stays within what is deserved.

        Volcano is content with one resource of several; two queues could then take from each
        other for ever, so ours has to hold for every resource the due names.
        """
        after = entitled.used + asked
        if not within_somewhere(self._maths, after, entitled.deserved, asked):
            return False
        named = {name: asked.amount(name) for name in entitled.deserved}
        return not excess(after, entitled.deserved, named)

    def _gives(
        self, claim: Preemptor, candidate: VictimCandidate, rest: dict[str, Resources]
    ) -> bool:
        asked, given = claim.pod.requests, candidate.pod.requests
        if not _share_a_resource(asked, given):
            return False
        if candidate.gang.queue is claim.gang.queue:
            return True  # for a namespace that has too little of it; the queue loses nothing
        owner, claimant = self._known.of(candidate.gang.queue), self._known.of(claim.gang.queue)
        used = rest.setdefault(owner.name, owner.used)
        if not self._maths.within(owner.guarantee, used - given):
            return False
        immediate = not self._concerns(given, owner.deserved)
        if immediate and self._is_quarrel(claim, candidate, claimant):
            return False
        lines = [owner, *self._ancestors_to_ask(claim, candidate)]
        for entitled in lines:
            left = rest.setdefault(entitled.name, entitled.used)
            if not self._has_too_much(entitled, left, given):
                return False
        for entitled in lines:
            rest[entitled.name] = rest[entitled.name] - given
        return True

    def _has_too_much(self, entitled: Entitlement, rest: Resources, given: Resources) -> bool:
        if not self._concerns(given, entitled.deserved):
            return True
        return exceeds_somewhere(self._maths, entitled.used, entitled.deserved, given)

    def _concerns(self, amounts: Resources, deserved: Vector) -> bool:
        """Ask whether *amounts* and *deserved* have a resource in common."""
        names = set(self._maths.names(deserved))
        return any(name in names for name in self._maths.names(amounts))

    def _is_quarrel(
        self, claim: Preemptor, candidate: VictimCandidate, claimant: Entitlement
    ) -> bool:
        """Ask whether two relatives without any due would only fight over the same room."""
        if not self._level or self._concerns(claim.pod.requests, claimant.deserved):
            return False
        ours = {each.name for each in self._above(claim.gang.queue)}
        return any(each.name in ours for each in self._above(candidate.gang.queue))

    def _ancestors_to_ask(self, claim: Preemptor, candidate: VictimCandidate) -> list[Entitlement]:
        """List the victim's ancestors that the claimant does not share at the same distance."""
        ours = self._known.line(claim.gang.queue)[1:]
        theirs = self._known.line(candidate.gang.queue)[1 : self._level + 1]
        return [
            each
            for depth, each in enumerate(theirs)
            if each.name != "root" and not (depth < len(ours) and ours[depth] is each)
        ]

    def _above(self, queue: QueueUsage) -> list[Entitlement]:
        line = self._known.line(queue)[1 : self._level + 1]
        return [each for each in line if each.name != "root"]

    def _victim_queue_order(self, queue: QueueUsage, claimant: QueueUsage) -> int:
        """Take from the nearest relatives first."""
        return -self._known.common_depth(queue, claimant)


def _share_a_resource(one: Resources, other: Resources) -> bool:
    return any(a > 0 and name != PODS and other.amount(name) > 0 for name, a in one.items())

"""proportion: the cluster is divided among the queues by weight.

What a queue deserves is its weighted part, never more than it wants and could start, or may have;
what it leaves is split among the others. Guarantees are kept in any case, capabilities are never
exceeded. What nobody below their due can use is lent to those above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from extender.model.pod import Shape
from extender.model.reason import Problem
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.planner import quota, quota as limits
from extender.planner.accounting import still_needed, without_gated
from extender.planner.plugin import Plugin, Preemptor, Round, VictimCandidate, View, Vote
from extender.planner.policy import Vector, excess
from extender.planner.state import GangState, QueueUsage


@dataclass(frozen=True, slots=True)
class Bounds:
    """One queue, and between which bounds its part of one resource lies."""

    name: str
    weight: int
    #: It gets this much in any case.
    floor: int
    #: It gets no more than this.
    ceiling: int

    @property
    def least(self) -> int:
        """Give its floor, which never lifts it above its ceiling."""
        return min(self.floor, self.ceiling)


def divide(capacity: int, queues: Sequence[Bounds]) -> dict[str, int]:
    """Split *capacity*; nothing stays idle while somebody with a weight is below its ceiling."""
    fixed = {queue.name: queue.least for queue in queues if queue.weight <= 0}
    unsettled = [queue for queue in queues if queue.weight > 0]
    while unsettled:
        rest = capacity - sum(fixed.values())
        weights = sum(queue.weight for queue in unsettled)
        settled = _beyond_limits(unsettled, max(0, rest), weights)
        if not settled:
            fixed.update(_split(unsettled, max(0, rest), weights))
            break
        fixed.update(settled)
        unsettled = [queue for queue in unsettled if queue.name not in settled]
    return fixed


def _beyond_limits(queues: Sequence[Bounds], rest: int, weights: int) -> dict[str, int]:
    """Fix the queues that the level drives beyond a limit.

    Only one side at a time: if the floors add more than the ceilings free, the level will fall
    and a ceiling reached now may not be reached then; and the other way round.
    """
    low = [queue for queue in queues if rest * queue.weight < queue.least * weights]
    high = [queue for queue in queues if rest * queue.weight > queue.ceiling * weights]
    raised = sum(queue.least * weights - rest * queue.weight for queue in low)
    freed = sum(rest * queue.weight - queue.ceiling * weights for queue in high)
    floors = {queue.name: queue.least for queue in low}
    ceilings = {queue.name: queue.ceiling for queue in high}
    if raised == freed:
        return floors | ceilings
    return floors if raised > freed else ceilings


def _split(queues: Sequence[Bounds], rest: int, weights: int) -> dict[str, int]:
    """Split exactly by weight; units that do not divide go to the largest remainders."""
    shares = {queue.name: divmod(rest * queue.weight, weights) for queue in queues}
    given = {name: whole for name, (whole, _) in shares.items()}
    spare = rest - sum(given.values())
    for name in sorted(shares, key=lambda name: (-shares[name][1], name))[:spare]:
        given[name] += 1
    return given


class Proportion(Plugin):
    """Weighted queues with guarantee and capability."""

    known = ()

    def open(self, session: View) -> None:
        """Work out what every queue deserves."""
        super().open(session)
        self._maths = session.arithmetic
        #: What a shape asks for that counts here.
        self._asked: dict[Shape, Resources] = {}

    @cached_property
    def _limits(self) -> Mapping[str, Vector]:
        """What every queue may use; of what nobody limits, as much as there is room for."""
        return self.session.ceilings

    @cached_property
    def _deserved(self) -> dict[str, Vector]:
        """What every queue that has gangs deserves, worked out when it is asked for first."""
        return self._divide(self.session.accounting.busy)

    def deserved(self, queue: QueueUsage) -> Vector:
        """Give what *queue* deserves; nothing when it has no gangs."""
        return self._deserved.get(queue.name, NOTHING)

    def share(self, queue: QueueUsage) -> float:
        """Give how much of its due *queue* uses, in the resource where it is most."""
        return self._maths.share(queue.allocated, self.deserved(queue))

    def queue_order(self, queue: QueueUsage) -> tuple[int, float]:
        """Put higher priority first, then who is furthest below its due."""
        share = self.share(queue)
        if self.session.round is Round.BORROW and not queue.queue.weight:
            share = inf  # it has no part of its own: the others borrow first
        return (-queue.queue.priority, share)

    def queue_order_words(self, ahead: QueueUsage, behind: QueueUsage) -> str:
        """Name both priorities, or how much of their dues they use."""
        used = f"queue {ahead.name} uses {self.share(ahead):.0%} of its due"
        return ahead.rank_over(behind) or f"{used}, {behind.name} {self.share(behind):.0%}"

    def overused(self, queue: QueueUsage) -> bool:
        """Ask whether *queue* has all it deserves, and nothing is being lent."""
        if self.session.round is Round.BORROW:
            return False
        return self._maths.within(self.deserved(queue), queue.allocated)

    def allocatable(self, gang: GangState, shape: Shape) -> int | Problem:
        """Count the pods of *shape* that keep the queue of *gang* within its due."""
        queue = gang.queue
        problem = limits.closed(queue)
        if problem is not None:
            return problem
        asked = self._asked.get(shape)
        if asked is None:
            asked = self._asked[shape] = shape.requests.without(PODS)
        if self.session.rules.may_overshoot:
            return self._for_round(gang, asked)
        return self._within_due(queue, asked)

    def entitled(self, gang: GangState, needs: Resources) -> bool:
        """Ask whether the queue of *gang* is below its due and could hold *needs* by itself."""
        queue = gang.queue
        due = self.deserved(queue)
        return not excess(needs, self._limits[queue.name], needs) and all(
            queue.allocated.amount(name) < due.get(name, 0)
            for name, amount in needs.items()
            if amount > 0 and name != PODS
        )

    def preemptive(self, gang: GangState, shape: Shape) -> bool:
        """Ask whether the queue of *gang* stays within its due with one more pod of *shape*."""
        if limits.closed(gang.queue) is not None:
            return False
        after = gang.queue.allocated + shape.requests
        return not excess(after, self.deserved(gang.queue), shape.requests)

    def reclaimable(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow whoever uses something the claimant needs of which their queue has too much."""
        surplus = {
            queue.name: self._surplus(claim, queue)
            for queue in {one.gang.queue for one in candidates}
        }
        return [
            one
            for one in candidates
            if any(one.pod.requests.amount(name) > 0 for name in surplus[one.gang.queue.name])
        ]

    def protects(self, action: str, claim: Preemptor, gang: GangState) -> bool:
        """Spare queues that have no more than their due of anything the claimant needs."""
        return action == "reclaim" and not self._surplus(claim, gang.queue)

    def _surplus(self, claim: Preemptor, queue: QueueUsage) -> list[str]:
        """Name what the claimant needs of which *queue* uses more than its due.

        Its own queue only gives for a namespace that has too little of it, and then of anything.
        """
        if claim.gang.share is not None and queue is claim.gang.queue:
            return list(claim.pod.requests.without(PODS))
        return excess(queue.allocated, self.deserved(queue), claim.pod.requests)

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose minimum its queue could hold beside what it promised already."""
        queue = gang.queue
        problem = limits.closed(queue)
        if problem is not None:
            return problem
        least = gang.gang.group.min_resources
        if least is None:
            return Vote.PERMIT
        used, limit = queue.allocated - queue.elastic, self._limits[queue.name]
        if self.session.rules.reservations_fade:
            least = still_needed(gang.gang, least, limit)
        problem = limits.too_much(queue.name, used, limit, least, queue.inqueue)
        return Vote.PERMIT if problem is None else problem

    def enqueued(self, gang: GangState) -> None:
        """Count what *gang* was promised."""
        least = gang.gang.group.min_resources
        if least is not None:
            queue = gang.queue
            queue.inqueue = queue.inqueue + without_gated(gang.gang, least)

    def _within_due(self, queue: QueueUsage, asked: Resources) -> int | Problem:
        due, used = self.deserved(queue), queue.allocated
        return limits.allowed(queue.name, used, due, asked, limits.over_deserved)

    def _for_round(self, gang: GangState, asked: Resources) -> int | Problem:
        """Keep to the due, except where the round hands out what is left.

        Up to the ceilings, that is; those hold for every round and whoever divides.
        """
        if self.session.round is Round.BORROW:
            return limits.UNBOUNDED
        queue = gang.queue
        if self.session.round is Round.OVERSHOOT:
            due, others = self.deserved(queue), queue.allocated - gang.trying
            if all(others.amount(n) < due.get(n, 0) for n, a in asked.items() if a > 0):
                return limits.UNBOUNDED
        if self.session.round is Round.PREEMPT:
            limit = queue.preemption_limit(self.deserved(queue), gang, asked)
            return limits.allowed(queue.name, queue.allocated, limit, asked, limits.over_deserved)
        return self._within_due(queue, asked)

    def _divide(self, queues: Mapping[str, QueueUsage]) -> dict[str, Vector]:
        deserved: dict[str, dict[str, int]] = {name: {} for name in queues}
        kept = self._unused_guarantees()
        for resource, amount in self.session.total.items():
            if not self._maths.counts(resource):
                continue
            bounds = [self._bounds(state, resource) for state in queues.values()]
            rest = max(0, amount - kept.amount(resource))
            for name, part in divide(rest, bounds).items():
                deserved[name][resource] = part
        return {name: Resources(parts) for name, parts in deserved.items()}

    def _unused_guarantees(self) -> Resources:
        """Add up what is kept for families that do not want all they are guaranteed."""
        wishes = self.session.startable
        if not any(each.guarantee for each in self.session.limits):
            return NOTHING
        wanting = quota.using(self.session.limits, wishes, self.session.startable_by_share)
        held = Resources(quota.tree(wanting, self.session.total)[quota.TOP].held)
        return held - total(wishes.values())

    def _bounds(self, state: QueueUsage, resource: str) -> Bounds:
        wanted = self.session.startable[state.name].amount(resource)
        return Bounds(
            name=state.name,
            weight=state.queue.weight,
            floor=min(wanted, self._floor(state, resource)),
            ceiling=int(min(wanted, self._limits[state.name].get(resource, 0))),
        )

    def _floor(self, state: QueueUsage, resource: str) -> int:
        """Give what *state* is guaranteed; of what its namespaces are, only what they want."""
        guaranteed = state.guarantee.amount(resource)
        for share in state.shares.values():
            wanted = self.session.startable_by_share[share.name].amount(resource)
            guaranteed -= max(0, share.least.get(resource, 0) - wanted)
        return guaranteed

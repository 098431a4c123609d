"""proportion: the cluster is divided among the queues by weight.

A queue deserves its weighted part, but never more than it requests and could start, or may have.
What it leaves is divided among the others. Guarantees are always kept, capabilities are never
exceeded. Queues above their deserved amount borrow what no queue below its own can use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from extender.model.pod import Shape
from extender.model.reason import Problem
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.planner import quota
from extender.planner.accounting import still_needed, without_gated
from extender.planner.plugin import Plugin, Preemptor, Round, VictimCandidate, View, Vote
from extender.planner.policy import Vector, excess
from extender.planner.state import GangState, QueueUsage


@dataclass(frozen=True, slots=True)
class Bounds:
    """One queue, and the bounds of its part of one resource."""

    name: str
    weight: int
    #: It gets this much in any case.
    floor: int
    #: It gets no more than this.
    ceiling: int

    @property
    def least(self) -> int:
        """Return the floor, which is never above the ceiling."""
        return min(self.floor, self.ceiling)


def divide(capacity: int, queues: Sequence[Bounds]) -> dict[str, int]:
    """Divide *capacity*; nothing is left while a queue with a weight is below its ceiling."""
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
    """Fix the queues that the level would push beyond a bound.

    Only one side at a time: if the floors add more than the ceilings free, the level will fall, and
    a ceiling reached now may not be reached then; and vice versa.
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
    """Divide exactly by weight; units that do not divide go to the largest remainders."""
    shares = {queue.name: divmod(rest * queue.weight, weights) for queue in queues}
    parts = {name: whole for name, (whole, _) in shares.items()}
    spare = rest - sum(parts.values())
    for name in sorted(shares, key=lambda name: (-shares[name][1], name))[:spare]:
        parts[name] += 1
    return parts


class Proportion(Plugin):
    """Weighted queues with guarantee and capability."""

    known = ()

    def open(self, session: View) -> None:
        """Prepare to compute what every queue deserves."""
        super().open(session)
        self._arithmetic = session.arithmetic
        #: The requests of a shape that count here.
        self._requested: dict[Shape, Resources] = {}

    @cached_property
    def _limits(self) -> Mapping[str, Vector]:
        """What every queue may use; without a limit, the capacity there is."""
        return self.session.ceilings

    @cached_property
    def _deserved(self) -> dict[str, Vector]:
        """What every queue that has gangs deserves, computed on first use."""
        return self._divide(self.session.accounting.active)

    def deserved(self, queue: QueueUsage) -> Vector:
        """Return what *queue* deserves; nothing when it has no gangs."""
        return self._deserved.get(queue.name, NOTHING)

    def used_part(self, queue: QueueUsage) -> float:
        """Return the used part of what *queue* deserves, of the resource where it is largest."""
        return self._arithmetic.dominant_share(queue.allocated, self.deserved(queue))

    def queue_order(self, queue: QueueUsage) -> tuple[int, float]:
        """Put higher priority first, then the queue furthest below its deserved amount."""
        used = self.used_part(queue)
        if self.session.round is Round.BORROW and not queue.queue.weight:
            used = inf  # it deserves nothing by weight: the others borrow first
        return (-queue.queue.priority, used)

    def queue_order_reason(self, ahead: QueueUsage, behind: QueueUsage) -> str:
        """Name both priorities, or how much of their deserved amounts they use."""
        used = f"queue {ahead.name} uses {self.used_part(ahead):.0%} of its deserved amount"
        return ahead.rank_over(behind) or f"{used}, {behind.name} {self.used_part(behind):.0%}"

    def overused(self, queue: QueueUsage) -> bool:
        """Return whether *queue* has all it deserves, outside the borrowing round."""
        if self.session.round is Round.BORROW:
            return False
        return self._arithmetic.within(self.deserved(queue), queue.allocated)

    def allocatable(self, gang: GangState, shape: Shape) -> int | Problem:
        """Count the pods of *shape* that keep the queue of *gang* within its deserved amount."""
        queue = gang.queue
        problem = queue.closed()
        if problem is not None:
            return problem
        requested = self._requested.get(shape)
        if requested is None:
            requested = self._requested[shape] = shape.requests.without(PODS)
        if self.session.rules.may_overshoot:
            return self._for_round(gang, requested)
        return self._within_deserved(queue, requested)

    def entitled(self, gang: GangState, needs: Resources) -> bool:
        """Return whether the queue of *gang* has less than it deserves and could hold *needs*."""
        queue = gang.queue
        deserved = self.deserved(queue)
        return not excess(needs, self._limits[queue.name], needs) and all(
            queue.allocated.amount(name) < deserved.get(name, 0)
            for name, amount in needs.items()
            if amount > 0 and name != PODS
        )

    def preemptive(self, gang: GangState, shape: Shape) -> bool:
        """Return whether one more pod of *shape* keeps the queue within its deserved amount."""
        if gang.queue.closed() is not None:
            return False
        after = gang.queue.allocated + shape.requests
        return not excess(after, self.deserved(gang.queue), shape.requests)

    def reclaimable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow victims with a resource the preemptor needs that their queue uses too much of."""
        surplus = {
            queue.name: self._surplus(preemptor, queue)
            for queue in {one.gang.queue for one in candidates}
        }
        return [
            one
            for one in candidates
            if any(one.pod.requests.amount(name) > 0 for name in surplus[one.gang.queue.name])
        ]

    def protects(self, action: str, preemptor: Preemptor, gang: GangState) -> bool:
        """Protect queues within their deserved amount of all resources the preemptor needs."""
        return action == "reclaim" and not self._surplus(preemptor, gang.queue)

    def _surplus(self, preemptor: Preemptor, queue: QueueUsage) -> list[str]:
        """Return the resources the preemptor needs of which *queue* uses more than it deserves.

        Its own queue only loses pods for a namespace below its guarantee, and then of any resource.
        """
        if preemptor.gang.share is not None and queue is preemptor.gang.queue:
            return list(preemptor.pod.requests.without(PODS))
        return excess(queue.allocated, self.deserved(queue), preemptor.pod.requests)

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose minimum its queue could hold beside what is reserved already."""
        queue = gang.queue
        problem = queue.closed()
        if problem is not None:
            return problem
        least = gang.gang.group.min_resources
        if least is None:
            return Vote.PERMIT
        used, limit = queue.allocated - queue.elastic, self._limits[queue.name]
        if self.session.rules.reservations_fade:
            least = still_needed(gang.gang, least, limit)
        problem = quota.too_much(queue.name, used, limit, least, queue.inqueue)
        return Vote.PERMIT if problem is None else problem

    def enqueued(self, gang: GangState) -> None:
        """Count what *gang* has reserved."""
        least = gang.gang.group.min_resources
        if least is not None:
            queue = gang.queue
            queue.inqueue = queue.inqueue + without_gated(gang.gang, least)

    def _within_deserved(self, queue: QueueUsage, requested: Resources) -> int | Problem:
        deserved, used = self.deserved(queue), queue.allocated
        return quota.allowed(queue.name, used, deserved, requested, quota.over_deserved)

    def _for_round(self, gang: GangState, requested: Resources) -> int | Problem:
        """Keep to the deserved amount, except in rounds that hand out what is left.

        Those go up to the ceilings, which hold in every round and with every plugin.
        """
        if self.session.round is Round.BORROW:
            return quota.UNBOUNDED
        queue = gang.queue
        if self.session.round is Round.OVERSHOOT:
            deserved, others = self.deserved(queue), queue.allocated - gang.in_trial
            if all(others.amount(n) < deserved.get(n, 0) for n, a in requested.items() if a > 0):
                return quota.UNBOUNDED
        if self.session.round is Round.PREEMPT:
            limit = queue.preemption_limit(self.deserved(queue), gang, requested)
            return quota.allowed(queue.name, queue.allocated, limit, requested, quota.over_deserved)
        return self._within_deserved(queue, requested)

    def _divide(self, queues: Mapping[str, QueueUsage]) -> dict[str, Vector]:
        deserved: dict[str, dict[str, int]] = {name: {} for name in queues}
        unused = self._unused_guarantees()
        for resource, amount in self.session.total.items():
            if not self._arithmetic.counts(resource):
                continue
            bounds = [self._bounds(state, resource) for state in queues.values()]
            rest = max(0, amount - unused.amount(resource))
            for name, part in divide(rest, bounds).items():
                deserved[name][resource] = part
        return {name: Resources(parts) for name, parts in deserved.items()}

    def _unused_guarantees(self) -> Resources:
        """Return what is held for families that do not request all of their guarantee."""
        startable = self.session.startable
        if not any(each.guarantee for each in self.session.limits):
            return NOTHING
        wanting = quota.using(self.session.limits, startable, self.session.startable_by_share)
        taken = Resources(quota.tree(wanting, self.session.total)[quota.TOP].taken)
        return taken - total(startable.values())

    def _bounds(self, state: QueueUsage, resource: str) -> Bounds:
        wanted = self.session.startable[state.name].amount(resource)
        return Bounds(
            name=state.name,
            weight=state.queue.weight,
            floor=min(wanted, self._floor(state, resource)),
            ceiling=int(min(wanted, self._limits[state.name].get(resource, 0))),
        )

    def _floor(self, state: QueueUsage, resource: str) -> int:
        """Return the guarantee of *state*; of its namespaces' guarantees only what they request."""
        guaranteed = state.guarantee.amount(resource)
        for share in state.shares.values():
            wanted = self.session.startable_by_share[share.name].amount(resource)
            guaranteed -= max(0, share.guarantee.get(resource, 0) - wanted)
        return guaranteed

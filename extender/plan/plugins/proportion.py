"""proportion: the cluster is divided among the queues by weight.

What a queue deserves is its weighted part, never more than it wants or may have; what it leaves
is split among the others. Guarantees are kept in any case, capabilities are never exceeded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from extender.model.pod import Shape
from extender.model.reason import Problem
from extender.model.resources import NOTHING, PODS, Resources
from extender.plan.arithmetic import Vector, excess
from extender.plan.census import without_gated
from extender.plan.plugin import Candidate, Claim, Plugin, Round, View, Vote
from extender.plan.queues import quota, waterfill
from extender.plan.room.state import GangState, QueueUse


class Proportion(Plugin):
    """Weighted queues with guarantee and capability."""

    def open(self, session: View) -> None:
        """Work out what every queue deserves."""
        super().open(session)
        self._maths = session.maths
        guarantees = quota.guaranteed(state.queue for state in session.queues.values())
        self._limits: dict[str, Vector] = {
            name: self._limit(state, guarantees) for name, state in session.queues.items()
        }
        self._deserved = self._divide(session.census.busy)
        #: What a shape asks for that counts here.
        self._asked: dict[Shape, Resources] = {}

    def _limit(self, state: QueueUse, guarantees: Resources) -> Vector:
        """Give what a queue may use; of what nobody limits, as much as there is room for."""
        limit = quota.real_capability(state.queue, self.session.total, guarantees)
        stated = quota.stated(state.queue.capability)
        return {
            name: amount if name in stated or guarantees.amount(name) else inf
            for name, amount in limit.items()
        }

    def deserved(self, queue: QueueUse) -> Vector:
        """Give what *queue* deserves; nothing when it has no gangs."""
        return self._deserved.get(queue.name, NOTHING)

    def share(self, queue: QueueUse) -> float:
        """Give how much of its due *queue* uses, in the resource where it is most."""
        return self._maths.share(queue.allocated, self.deserved(queue))

    def queue_order(self, queue: QueueUse) -> tuple[int, float]:
        """Put higher priority first, then who is furthest below its due."""
        return (-queue.queue.priority, self.share(queue))

    def queue_order_words(self, ahead: QueueUse, behind: QueueUse) -> str:
        """Name both priorities, or how much of their dues they use."""
        used = f"queue {ahead.name} uses {self.share(ahead):.0%} of its due"
        return ahead.rank_over(behind) or f"{used}, {behind.name} {self.share(behind):.0%}"

    def overused(self, queue: QueueUse) -> bool:
        """Ask whether *queue* has all it deserves."""
        return self._maths.within(self.deserved(queue), queue.allocated)

    def allocatable(self, gang: GangState, shape: Shape) -> int | Problem:
        """Count the pods of *shape* that keep the queue of *gang* within its due."""
        queue = gang.queue
        problem = quota.closed(queue.queue)
        if problem is not None:
            return problem
        asked = self._asked.get(shape)
        if asked is None:
            asked = self._asked[shape] = shape.requests.without(PODS)
        if self.session.rules.may_overshoot:
            return self._up_to_ceiling(gang, shape.requests, asked)
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
        if quota.closed(gang.queue.queue) is not None:
            return False
        after = gang.queue.allocated + shape.requests
        return not excess(after, self.deserved(gang.queue), shape.requests)

    def reclaimable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
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

    def protects(self, action: str, claim: Claim, gang: GangState) -> bool:
        """Spare queues that have no more than their due of anything the claimant needs."""
        return action == "reclaim" and not self._surplus(claim, gang.queue)

    def _surplus(self, claim: Claim, queue: QueueUse) -> list[str]:
        """Name what the claimant needs of which *queue* uses more than its due."""
        return excess(queue.allocated, self.deserved(queue), claim.pod.requests)

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose minimum its queue could hold beside what it promised already."""
        queue = gang.queue
        problem = quota.closed(queue.queue)
        if problem is not None:
            return problem
        least = gang.gang.group.min_resources
        if least is None:
            return Vote.PERMIT
        used = queue.allocated + queue.inqueue - queue.elastic
        problem = quota.too_much(queue.name, used, self._limits[queue.name], least)
        return Vote.PERMIT if problem is None else problem

    def enqueued(self, gang: GangState) -> None:
        """Count what *gang* was promised."""
        least = gang.gang.group.min_resources
        if least is not None:
            queue = gang.queue
            queue.inqueue = queue.inqueue + without_gated(gang.gang, least)

    def _within_due(self, queue: QueueUse, asked: Resources) -> int | Problem:
        due, used = self.deserved(queue), queue.allocated
        return quota.allowed(queue.name, used, due, asked, quota.over_deserved)

    def _up_to_ceiling(
        self, gang: GangState, requests: Resources, asked: Resources
    ) -> int | Problem:
        """Keep to the due, except for a gang that begins below it when nobody else is left."""
        queue = gang.queue
        limited = requests if PODS in queue.queue.capability else asked
        most = quota.allowed(queue.name, queue.allocated, self._limits[queue.name], limited)
        if isinstance(most, Problem):
            return most
        within = self._within_due(queue, asked)
        if self.session.round is not Round.REST:
            return within if isinstance(within, Problem) else min(most, within)
        due, others = self.deserved(queue), queue.allocated - gang.trying
        begins_below = all(others.amount(n) < due.get(n, 0) for n, a in asked.items() if a > 0)
        return most if begins_below else within

    def _divide(self, queues: Mapping[str, QueueUse]) -> dict[str, Vector]:
        deserved: dict[str, dict[str, int]] = {name: {} for name in queues}
        for resource, amount in self.session.total.items():
            if not self._maths.counts(resource):
                continue
            bounds = [self._bounds(state, resource) for state in queues.values()]
            rest = max(0, amount - self._unused_guarantee(resource))
            for name, part in waterfill.divide(rest, bounds).items():
                deserved[name][resource] = part
        return {name: Resources(parts) for name, parts in deserved.items()}

    def _unused_guarantee(self, resource: str) -> int:
        """Add up what is kept for queues that do not want all they are guaranteed.

        Below a queue that is guaranteed some of it too, it is that one's that is kept.
        """
        return sum(
            max(0, state.queue.guarantee.amount(resource) - state.requested.amount(resource))
            for state in self.session.queues.values()
            if state.queue.guarantee
            and not any(up.queue.guarantee.amount(resource) for up in quota.upwards(state.parent))
        )

    def _bounds(self, state: QueueUse, resource: str) -> waterfill.Bounds:
        wanted = state.requested.amount(resource)
        return waterfill.Bounds(
            name=state.name,
            weight=state.queue.weight,
            floor=min(wanted, state.queue.guarantee.amount(resource)),
            ceiling=int(min(wanted, self._limits[state.name].get(resource, 0))),
        )

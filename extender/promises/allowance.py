"""What queues may still promise: by the last plan, and by what was promised since its snapshot.

A namespace that has a share of its own in a queue is judged by that, and by the queue. What an
administrator wrote of it after the snapshot counts at once: between two plans a namespace could
start everything it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from extender.model.queue import Share, share_name
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, Resources
from extender.plan.decision import NO_PLAN, OpenQueue, Plan
from extender.plan.queues.limits import upwards
from extender.plan.queues.quota import TOP, Quota, tree

_NOT_PLANNED = Problem(
    Reason.BEHIND_IN_ORDER, "what its namespace may have of the queue is not planned with yet"
)


class Allowance:
    """Two limits: the ceilings and guarantees of all queues, which hold for everybody; and the
    due of each, which holds for what starts before the next plan."""

    def __init__(
        self,
        spent: Callable[[], Mapping[tuple[str, str], Resources]],
        total: Callable[[], Resources],
        share: Callable[[str, str], Share | None],
    ) -> None:
        #: What was promised since the last snapshot, by queue and namespace.
        self._spent_since = spent
        #: What all ready nodes have now; fewer may be left than the plan saw.
        self._total = total
        #: What a namespace may have of a queue by now.
        self._share = share
        self._quotas: dict[str, Quota] = {}
        #: Whether any namespace had a share of its own.
        self._has_shares = False
        self._open: Mapping[str, OpenQueue] = {}
        #: Of the dues: what was started without a plan.
        self._spent: dict[str, Resources] = {}
        self.renew(NO_PLAN)

    def renew(self, plan: Plan) -> None:
        """Begin anew with what *plan* leaves, less what was promised since its snapshot."""
        self._open, self._quotas = plan.open_queues, tree(plan.stakes, plan.total)
        self._has_shares = any(stake.namespace for stake in plan.stakes)
        self._spent = {}
        for (queue, namespace), amounts in self._spent_since().items():
            self.spend(queue, amounts)
            self.count(queue, namespace, amounts)

    def welcomes_gangs(self, queue: str) -> bool:
        """Ask whether a gang may start in *queue* without waiting for a plan."""
        return queue in self._open and self._open[queue].is_quiet

    def _quota(self, queue: str, namespace: str) -> Quota | None:
        """Give the place where what *namespace* has in *queue* counts."""
        own = self._quotas.get(share_name(queue, namespace)) if self._has_shares else None
        return own or self._quotas.get(queue)

    def objection(self, queue: str, namespace: str, amounts: Resources) -> Problem | None:
        """Say which ceiling or guarantee *amounts* more would break, None when none."""
        quota, top = self._quota(queue, namespace), self._quotas[TOP]
        share = self._share(queue, namespace)
        if share is not None and (quota is None or quota.name != share.name):
            return _NOT_PLANNED
        if quota is None:
            return None
        if share is not None:
            quota.most = dict(share.most)
        if top.most:
            now = self._total()
            top.most = {n: min(a, now.amount(n)) for n, a in top.most.items()}
        return quota.how_many(amounts)[1] or quota.occupied(amounts, is_taken=False)

    def is_exceeded(self) -> bool:
        """Ask whether some queue, or namespace in one, has more than its ceiling by now."""
        return any(
            quota.is_exceeded(quota.most) for name, quota in self._quotas.items() if name != TOP
        )

    def exceeds(self, queue: str, namespace: str, amounts: Resources) -> bool:
        """Ask whether a ceiling is exceeded by something of which *amounts* are a part."""
        quota = self._quota(queue, namespace)
        above = upwards(quota) if quota is not None else ()
        return any(each.is_exceeded(amounts.positive()) for each in above if each.name != TOP)

    def may_start(self, queue: str, namespace: str, amounts: Resources) -> bool:
        """Ask whether *amounts* of *namespace* may start in *queue* before the next plan."""
        if queue not in self._open:
            return False
        left = self._open[queue].left
        if left is not None:
            spent = self._spent.get(queue, NOTHING)
            if any(a > left.amount(n) - spent.amount(n) for n, a in amounts.items() if a > 0):
                return False
        return self.objection(queue, namespace, amounts) is None

    def count(self, queue: str, namespace: str, amounts: Resources) -> None:
        """Count *amounts* against ceilings and guarantees."""
        quota = self._quota(queue, namespace)
        if quota is not None:
            quota.take(amounts)

    def spend(self, queue: str, amounts: Resources) -> None:
        """Take *amounts* from the due: they were promised without a plan."""
        self._spent[queue] = self._spent.get(queue, NOTHING) + amounts

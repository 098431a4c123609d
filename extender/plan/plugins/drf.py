"""drf: the gang with the smallest dominant share goes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.model.resources import Resources
from extender.plan.plugin import Candidate, Claim, Plugin, View
from extender.plan.queues.hierarchy import Tree
from extender.plan.room.state import GangState, QueueUse


class Drf(Plugin):
    """Dominant resource fairness between gangs, and with a hierarchy between queues."""

    known = ()

    #: Whether members that stay are counted as gone when the next of their gang is weighed.
    _counts_all_as_gone = False

    def open(self, session: View) -> None:
        """Build the tree of queues, if it is asked for."""
        super().open(session)
        self._maths = session.maths
        self._total = session.total
        if self.hierarchy:
            self._tree = Tree(session)
            # Only a tree has an opinion on queues.
            self.queue_order = self._queue_order
            self.reclaimable = self._reclaimable

    def share(self, gang: GangState) -> float:
        """Give the largest part *gang* has of any resource of the cluster."""
        return self._maths.share(gang.allocated, self._total)

    gang_order = share

    def gang_order_words(self, ahead: GangState, behind: GangState) -> str:
        """Name both shares."""
        return f"it uses {self.share(ahead):.1%} of the cluster, this one {self.share(behind):.1%}"

    def queue_order_words(self, ahead: QueueUse, behind: QueueUse) -> str:
        """Say that the tree decides; its levels would fill a page."""
        return f"queue {ahead.name} has less than {behind.name} in the tree of shares"

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Allow victims whose gang would still have at least the share of the claimant."""
        claimed = self._maths.share(claim.gang.allocated + claim.pod.requests, self._total)
        rest: dict[str, Resources] = {}
        allowed = []
        for candidate in candidates:
            before = rest.get(candidate.gang.key, candidate.gang.allocated)
            after = before - candidate.pod.requests
            left = self._maths.share(after, self._total)
            fair = self._is_fair(claimed, left)
            if fair:
                allowed.append(candidate)
            if fair or self._counts_all_as_gone:
                rest[candidate.gang.key] = after
        return allowed

    def _is_fair(self, claimed: float, left: float) -> bool:
        return claimed <= left

    def _queue_order(self, queue: QueueUse) -> tuple[Any, ...]:
        return self._tree.place(queue)

    def _reclaimable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        return [one for one in candidates if self._tree.favours(claim, one)]

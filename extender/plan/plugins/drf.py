"""drf: the gang with the smallest dominant share goes first.

With `enableNamespaceOrder` the namespace with the smallest share goes first, before all queues, as
in Volcano until 1.7: its share is divided by its weight, the highest that its ResourceQuotas name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.model.pod import PodUid
from extender.model.resources import NOTHING, Resources, total
from extender.plan.plugin import Candidate, Claim, Plugin, View
from extender.plan.queues.hierarchy import Tree
from extender.plan.room.state import GangState, QueueUse


class Drf(Plugin):
    """Dominant resource fairness between gangs, and with a hierarchy between queues."""

    known = ()

    #: Whether members that stay are counted as gone when the next of their gang is weighed.
    _counts_all_as_gone = False
    #: Shares of namespaces that differ by no more are the same.
    _same = 0.0

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
        if self.orders_namespaces:
            self._namespaces = NamespaceShares(session)
            self.namespace_order = self._namespaces.weighted

    def share(self, gang: GangState) -> float:
        """Give the largest part *gang* has of any resource of the cluster."""
        return self._maths.share(gang.allocated, self._total)

    gang_order = share

    def gang_order_words(self, ahead: GangState, behind: GangState) -> str:
        """Name both shares."""
        return f"it uses {self.share(ahead):.1%} of the cluster, this one {self.share(behind):.1%}"

    def namespace_order_words(self, ahead: str, behind: str) -> str:
        """Name both shares, by weight."""
        theirs, ours = (f"{self._namespaces.weighted(each):.1%}" for each in (ahead, behind))
        return f"namespace {ahead} uses {theirs} of the cluster by weight, {behind} {ours}"

    def queue_order_words(self, ahead: QueueUse, behind: QueueUse) -> str:
        """Say that the tree decides; its levels would fill a page."""
        return f"queue {ahead.name} has less than {behind.name} in the tree of shares"

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Allow victims whose gang would still have at least the share of the claimant."""
        if not self.orders_namespaces:
            return self._of_fair_gangs(claim, candidates)
        chosen, undecided = self._of_fair_namespaces(claim, candidates)
        chosen |= {one.pod.uid for one in self._of_fair_gangs(claim, undecided)}
        return [one for one in candidates if one.pod.uid in chosen]

    def _of_fair_namespaces(
        self, claim: Claim, candidates: Sequence[Candidate]
    ) -> tuple[set[PodUid], list[Candidate]]:
        """Name victims whose namespace keeps a larger share, and give those it does not settle."""
        shares, ours = self._namespaces, claim.gang.gang.group.namespace
        claimed = shares.weighted(ours, shares.use(ours) + claim.pod.requests)
        rest: dict[str, Resources] = {}
        chosen, undecided = set(), []
        for candidate in candidates:
            theirs = candidate.gang.gang.group.namespace
            if theirs == ours:
                undecided.append(candidate)
                continue
            before = rest[theirs] if theirs in rest else shares.use(theirs)
            after = before - candidate.pod.requests
            left = shares.weighted(theirs, after)
            if claimed < left:
                chosen.add(candidate.pod.uid)
            elif claimed - left <= self._same:
                undecided.append(candidate)
            if claimed < left or self._counts_all_as_gone:
                rest[theirs] = after
        return chosen, undecided

    def _of_fair_gangs(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
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


class NamespaceShares:
    """What the gangs of each namespace use together, at any moment of a cycle."""

    def __init__(self, session: View) -> None:
        self._session = session
        self._weights = {
            name: max(quota.weight for quota in quotas)
            for name, quotas in session.snapshot.quotas.items()
        }
        self._before: dict[str, Resources] = {}
        self._gangs: dict[str, list[GangState]] = {}
        for gang in session.snapshot.gangs.values():
            if gang.allocated:
                name = gang.group.namespace
                self._before[name] = self._before.get(name, NOTHING) + gang.allocated
        for state in session.census.contenders.values():
            self._gangs.setdefault(state.gang.group.namespace, []).append(state)

    def use(self, namespace: str) -> Resources:
        """Give what *namespace* uses by now."""
        gangs = self._gangs.get(namespace, ())
        given = total(gang.allocated - gang.gang.allocated for gang in gangs)
        taken = total(
            each.pod.requests
            for each in self._session.room.departures
            if each.pod.namespace == namespace and each.gang not in gangs
        )
        return self._before.get(namespace, NOTHING) + given - taken

    def weighted(self, namespace: str, use: Resources | None = None) -> float:
        """Give the dominant share of what *namespace* uses, or would, by its weight."""
        session, amounts = self._session, self.use(namespace) if use is None else use
        return session.maths.share(amounts, session.total) / self._weights.get(namespace, 1)

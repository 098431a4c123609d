"""drf: the gang with the smallest dominant share goes first.

With `enableNamespaceOrder` the namespace with the smallest share goes first, before all queues, as
in Volcano until 1.7: its share is divided by its weight, the highest that its ResourceQuotas name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.model.queue_tree import MAX_DEPTH
from extender.model.resources import NOTHING, Resources, total
from extender.planner.plugin import Plugin, Preemptor, VictimCandidate, View
from extender.planner.policy import Vector
from extender.planner.state import GangState, QueueUsage

_PATH, _WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
#: Whoever weighs more than all the world would be first for ever, whatever it uses.
_HEAVIEST = 1e12


class _Node:
    """What it has, as it was last added up."""

    __slots__ = ("allocated", "saturated", "share")

    def __init__(self) -> None:
        self.allocated: Vector = NOTHING
        self.share = 0.0
        self.saturated = False


class _Branch(_Node):
    """An inner node: a queue, or what is above queues."""

    __slots__ = ("above", "branches", "leaves", "weight")

    def __init__(self, weight: float = 1.0, above: _Branch | None = None) -> None:
        super().__init__()
        self.weight = weight
        self.above = above
        self.branches: dict[str, _Branch] = {}
        self.leaves: list[_Leaf] = []


class _Leaf(_Node):
    """A gang."""

    __slots__ = ("branch", "gang", "wants")

    def __init__(self, gang: GangState, wants: Vector, branch: _Branch) -> None:
        super().__init__()
        self.gang = gang
        self.wants = wants
        self.branch = branch


class Tree:
    """All queues that have gangs, by their paths; added up anew along those that were touched."""

    def __init__(self, session: View) -> None:
        self._session, self._maths = session, session.arithmetic
        self._root = _Branch()
        self._worked_out = -1
        self._leaves: dict[GangKey, _Leaf] = {}
        #: By queue, and what each of them had when its gangs were last looked at.
        self._gangs: dict[QueueUsage, list[_Leaf]] = {}
        self._seen: dict[QueueUsage, Resources] = {}
        #: Of everything, and what nobody has left of it.
        self._used: dict[str, float] = {}
        self._scarce: set[str] = set()
        #: To be added up again, with all above them.
        self._stale: set[_Branch] = set()
        for key, gang in session.snapshot.gangs.items():
            state = session.accounting.state(key)
            if state is not None:
                branch = self._branch(state.queue)
                wants = gang.allocated + session.accounting.wanted(gang)
                leaf = self._leaves[key] = _Leaf(state, wants, branch)
                branch.leaves.append(leaf)
                self._gangs.setdefault(state.queue, []).append(leaf)

    def place(self, queue: QueueUsage) -> tuple[Any, ...]:
        """Give the order of *queue*: from the root down, unsaturated first, then by share."""
        version = len(self._session.capacity.touched)
        if version != self._worked_out:
            self._look()
            self._add_up()
            self._worked_out = version
        return self._place(queue)

    def favours(self, claim: Preemptor, candidate: VictimCandidate) -> bool:
        """Ask whether the claimant's queue still comes first after the exchange."""
        moved: dict[GangKey, Vector] = {
            claim.gang.key: claim.gang.allocated + claim.pod.requests,
            candidate.gang.key: candidate.gang.allocated - candidate.pod.requests,
        }
        self._look()
        leaves = [self._leaves[key] for key in moved if key in self._leaves]
        for leaf in leaves:
            self._give(leaf, moved[leaf.gang.key])
        self._add_up()
        favours = self._place(claim.gang.queue) < self._place(candidate.gang.queue)
        for leaf in leaves:
            self._give(leaf, leaf.gang.allocated)
        self._worked_out = -1
        return favours

    def _place(self, queue: QueueUsage) -> tuple[Any, ...]:
        places: list[tuple[bool, float]] = []
        branch = self._root
        for name in _path(queue)[1:]:
            branch = branch.branches.get(name, _NOWHERE)
            places.append((branch.saturated, branch.share / branch.weight))
        return tuple(places)

    def _branch(self, queue: QueueUsage) -> _Branch:
        branch = self._root
        weights = queue.queue.annotations.get(_WEIGHTS, "").split("/")
        for level, name in enumerate(_path(queue)[1:], start=1):
            if name not in branch.branches:
                branch.branches[name] = _Branch(_weight(weights, level), branch)
            branch = branch.branches[name]
        return branch

    def _look(self) -> None:
        """Take note of what gangs have by now, in the queues whose use is not what it was."""
        for queue, leaves in self._gangs.items():
            if self._seen.get(queue) is queue.allocated:
                continue  # amounts are never changed, only replaced
            self._seen[queue] = queue.allocated
            for leaf in leaves:
                if leaf.allocated is not leaf.gang.allocated:
                    self._give(leaf, leaf.gang.allocated)

    def _give(self, leaf: _Leaf, allocated: Vector) -> None:
        """Take note that a gang has *allocated*, or would have it."""
        _add(self._used, leaf.allocated, -1)
        _add(self._used, allocated, 1)
        leaf.allocated, leaf.share = allocated, self._share(allocated)
        leaf.saturated = self._is_saturated(leaf)
        self._stale.add(leaf.branch)

    def _add_up(self) -> None:
        total, used = self._session.total, self._used
        scarce = {name for name in self._maths.names(total) if used.get(name, 0) >= total[name]}
        if scarce != self._scarce:
            self._scarce = scarce
            for leaf in self._leaves.values():
                leaf.saturated = self._is_saturated(leaf)
                self._stale.add(leaf.branch)
        for touched in list(self._stale):
            above = touched.above
            while above is not None and above not in self._stale:
                self._stale.add(above)
                above = above.above
        self._sum_up(self._root)
        self._stale.clear()

    def _sum_up(self, branch: _Branch) -> None:
        """Scale the unsaturated children to the smallest of their shares and add all up."""
        if branch not in self._stale:
            return
        for below in branch.branches.values():
            self._sum_up(below)
        children: list[_Node] = [*branch.branches.values(), *branch.leaves]
        having = [child for child in children if child.share]
        smallest = min([1.0, *(child.share for child in having if not child.saturated)])
        added: dict[str, float] = {}
        for child in having:
            _add(added, child.allocated, 1.0 if child.saturated else smallest / child.share)
        branch.allocated = added
        branch.share = self._share(added)
        branch.saturated = all(child.saturated for child in children)

    def _is_saturated(self, leaf: _Leaf) -> bool:
        """Ask whether a gang has all it wants of something, or wants what nobody has left."""
        for name in self._maths.names(leaf.allocated):
            wants = leaf.wants.get(name, 0)
            if wants and (leaf.allocated[name] >= wants or name in self._scarce):
                return True
        return False

    def _share(self, allocated: Vector) -> float:
        return self._maths.share(allocated, self._session.total)


_NOWHERE = _Branch()


def _path(queue: QueueUsage) -> list[str]:
    """Give the names from the root down; what is written further down than may be is one name."""
    return queue.queue.annotations.get(_PATH, f"root/{queue.name}").split("/", MAX_DEPTH)


def _weight(weights: list[str], level: int) -> float:
    try:
        return min(max(1.0, float(weights[level])), _HEAVIEST)
    except (IndexError, ValueError):
        return 1.0


def _add(total: dict[str, float], amounts: Vector, times: float) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


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
        self._maths = session.arithmetic
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

    def queue_order_words(self, ahead: QueueUsage, behind: QueueUsage) -> str:
        """Say that the tree decides; its levels would fill a page."""
        return f"queue {ahead.name} has less than {behind.name} in the tree of shares"

    def preemptable(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow victims whose gang would still have at least the share of the claimant."""
        if not self.orders_namespaces:
            return self._of_fair_gangs(claim, candidates)
        chosen, undecided = self._of_fair_namespaces(claim, candidates)
        chosen |= {one.pod.uid for one in self._of_fair_gangs(claim, undecided)}
        return [one for one in candidates if one.pod.uid in chosen]

    def _of_fair_namespaces(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> tuple[set[PodUid], list[VictimCandidate]]:
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

    def _of_fair_gangs(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
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

    def _queue_order(self, queue: QueueUsage) -> tuple[Any, ...]:
        return self._tree.place(queue)

    def _reclaimable(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
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
        for state in session.accounting.contenders.values():
            self._gangs.setdefault(state.gang.group.namespace, []).append(state)

    def use(self, namespace: str) -> Resources:
        """Give what *namespace* uses by now."""
        gangs = self._gangs.get(namespace, ())
        given = total(gang.allocated - gang.gang.allocated for gang in gangs)
        taken = total(
            each.pod.requests
            for each in self._session.capacity.departures
            if each.pod.namespace == namespace and each.gang not in gangs
        )
        return self._before.get(namespace, NOTHING) + given - taken

    def weighted(self, namespace: str, use: Resources | None = None) -> float:
        """Give the dominant share of what *namespace* uses, or would, by its weight."""
        session, amounts = self._session, self.use(namespace) if use is None else use
        return session.arithmetic.share(amounts, session.total) / self._weights.get(namespace, 1)

"""drf: the gang with the smallest dominant share goes first.

With `enableNamespaceOrder` the namespace with the smallest share goes first, before all queues, as
in Volcano until 1.7. Its share is divided by its weight, the highest that its ResourceQuotas state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.model.annotations import HIERARCHY, HIERARCHY_WEIGHTS
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.model.queue_tree import MAX_DEPTH
from extender.model.resources import NOTHING, Resources, total
from extender.planner.plugin import Plugin, Preemptor, VictimCandidate, View
from extender.planner.policy import Vector
from extender.planner.state import GangState, QueueUsage

#: With an unbounded weight a queue would be first for ever, whatever it uses.
_MAX_WEIGHT = 1e12


class _Node:
    """A node of the tree with its use, as last added up."""

    __slots__ = ("allocated", "saturated", "share")

    def __init__(self) -> None:
        self.allocated: Vector = NOTHING
        self.share = 0.0
        self.saturated = False


class _Branch(_Node):
    """An inner node: a queue, or a level above queues."""

    __slots__ = ("above", "branches", "leaves", "weight")

    def __init__(self, weight: float = 1.0, above: _Branch | None = None) -> None:
        super().__init__()
        self.weight = weight
        self.above = above
        self.branches: dict[str, _Branch] = {}
        self.leaves: list[_Leaf] = []


class _Leaf(_Node):
    """A gang."""

    __slots__ = ("branch", "gang", "requested")

    def __init__(self, gang: GangState, requested: Vector, branch: _Branch) -> None:
        super().__init__()
        self.gang = gang
        self.requested = requested
        self.branch = branch


class Tree:
    """All queues that have gangs, by path; sums are updated along the paths that changed."""

    def __init__(self, session: View) -> None:
        self._session, self._arithmetic = session, session.arithmetic
        self._root = _Branch()
        self._version = -1
        self._leaves: dict[GangKey, _Leaf] = {}
        #: Gangs by queue, and the use of each queue when its gangs were last read.
        self._gangs: dict[QueueUsage, list[_Leaf]] = {}
        self._seen: dict[QueueUsage, Resources] = {}
        #: The total use, and the resources that are used up.
        self._used: dict[str, float] = {}
        self._scarce: set[str] = set()
        #: Branches to add up again, with all above them.
        self._stale: set[_Branch] = set()
        for key, gang in session.snapshot.gangs.items():
            state = session.accounting.state(key)
            if state is not None:
                branch = self._branch(state.queue)
                requested = gang.allocated + session.accounting.wanted(gang)
                leaf = self._leaves[key] = _Leaf(state, requested, branch)
                branch.leaves.append(leaf)
                self._gangs.setdefault(state.queue, []).append(leaf)

    def place(self, queue: QueueUsage) -> tuple[Any, ...]:
        """Return the order of *queue*: from the root down, unsaturated first, then by share."""
        version = len(self._session.capacity.touched)
        if version != self._version:
            self._read_usage()
            self._add_up()
            self._version = version
        return self._place(queue)

    def prefers(self, preemptor: Preemptor, candidate: VictimCandidate) -> bool:
        """Return whether the preemptor's queue still comes first after the exchange."""
        after: dict[GangKey, Vector] = {
            preemptor.gang.key: preemptor.gang.allocated + preemptor.pod.requests,
            candidate.gang.key: candidate.gang.allocated - candidate.pod.requests,
        }
        self._read_usage()
        leaves = [self._leaves[key] for key in after if key in self._leaves]
        for leaf in leaves:
            self._record(leaf, after[leaf.gang.key])
        self._add_up()
        prefers = self._place(preemptor.gang.queue) < self._place(candidate.gang.queue)
        for leaf in leaves:
            self._record(leaf, leaf.gang.allocated)
        self._version = -1
        return prefers

    def _place(self, queue: QueueUsage) -> tuple[Any, ...]:
        places: list[tuple[bool, float]] = []
        branch = self._root
        for name in _path(queue)[1:]:
            branch = branch.branches.get(name, _NO_BRANCH)
            places.append((branch.saturated, branch.share / branch.weight))
        return tuple(places)

    def _branch(self, queue: QueueUsage) -> _Branch:
        branch = self._root
        weights = queue.queue.annotations.get(HIERARCHY_WEIGHTS, "").split("/")
        for level, name in enumerate(_path(queue)[1:], start=1):
            if name not in branch.branches:
                branch.branches[name] = _Branch(_weight(weights, level), branch)
            branch = branch.branches[name]
        return branch

    def _read_usage(self) -> None:
        """Read what gangs use now, in the queues whose use changed."""
        for queue, leaves in self._gangs.items():
            if self._seen.get(queue) is queue.allocated:
                continue  # amounts are never changed, only replaced
            self._seen[queue] = queue.allocated
            for leaf in leaves:
                if leaf.allocated is not leaf.gang.allocated:
                    self._record(leaf, leaf.gang.allocated)

    def _record(self, leaf: _Leaf, allocated: Vector) -> None:
        """Record that a gang uses *allocated*, or would use it."""
        _add(self._used, leaf.allocated, -1)
        _add(self._used, allocated, 1)
        leaf.allocated, leaf.share = allocated, self._share(allocated)
        leaf.saturated = self._is_saturated(leaf)
        self._stale.add(leaf.branch)

    def _add_up(self) -> None:
        total, used = self._session.total, self._used
        scarce = {
            name for name in self._arithmetic.names(total) if used.get(name, 0) >= total[name]
        }
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
        """Return whether a gang has all it requests of a resource, or no more of it exists."""
        for name in self._arithmetic.names(leaf.allocated):
            requested = leaf.requested.get(name, 0)
            if requested and (leaf.allocated[name] >= requested or name in self._scarce):
                return True
        return False

    def _share(self, allocated: Vector) -> float:
        return self._arithmetic.dominant_share(allocated, self._session.total)


_NO_BRANCH = _Branch()


def _path(queue: QueueUsage) -> list[str]:
    """Return the names from the root down; names below the maximum depth are joined into one."""
    return queue.queue.annotations.get(HIERARCHY, f"root/{queue.name}").split("/", MAX_DEPTH)


def _weight(weights: list[str], level: int) -> float:
    try:
        return min(max(1.0, float(weights[level])), _MAX_WEIGHT)
    except (IndexError, ValueError):
        return 1.0


def _add(total: dict[str, float], amounts: Vector, times: float) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


class Drf(Plugin):
    """Dominant resource fairness between gangs, and with a hierarchy between queues."""

    known = ()

    #: Whether members that stay count as gone when the next of their gang is weighed.
    _counts_all_as_gone = False
    #: Shares of namespaces that differ by no more than this are equal.
    _same = 0.0

    def open(self, session: View) -> None:
        """Build the tree of queues, if it is enabled."""
        super().open(session)
        self._arithmetic = session.arithmetic
        self._total = session.total
        if self.hierarchy:
            self._tree = Tree(session)
            # Without a tree this plugin does not order queues.
            self.queue_order = self._tree.place
            self.reclaimable = self._reclaimable
        if self.orders_namespaces:
            self._namespaces = NamespaceShares(session)
            self.namespace_order = self._namespaces.weighted

    def dominant_share(self, gang: GangState) -> float:
        """Return the largest part of any resource of the cluster that *gang* uses."""
        return self._arithmetic.dominant_share(gang.allocated, self._total)

    gang_order = dominant_share

    def gang_order_reason(self, ahead: GangState, behind: GangState) -> str:
        """Name both shares."""
        theirs, ours = (f"{self.dominant_share(each):.1%}" for each in (ahead, behind))
        return f"it uses {theirs} of the cluster, this one {ours}"

    def namespace_order_reason(self, ahead: str, behind: str) -> str:
        """Name both shares, by weight."""
        theirs, ours = (f"{self._namespaces.weighted(each):.1%}" for each in (ahead, behind))
        return f"namespace {ahead} uses {theirs} of the cluster by weight, {behind} {ours}"

    def queue_order_reason(self, ahead: QueueUsage, behind: QueueUsage) -> str:
        """Say that the tree decides; its levels would fill a page."""
        return f"queue {ahead.name} has less than {behind.name} in the tree of shares"

    def preemptable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow victims whose gang would still have at least the share of the preemptor."""
        if not self.orders_namespaces:
            return self._of_fair_gangs(preemptor, candidates)
        chosen, undecided = self._of_fair_namespaces(preemptor, candidates)
        chosen |= {one.pod.uid for one in self._of_fair_gangs(preemptor, undecided)}
        return [one for one in candidates if one.pod.uid in chosen]

    def _of_fair_namespaces(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> tuple[set[PodUid], list[VictimCandidate]]:
        """Return victims whose namespace keeps a larger share, and undecided candidates."""
        shares, ours = self._namespaces, preemptor.gang.gang.group.namespace
        with_pod = shares.weighted(ours, shares.use(ours) + preemptor.pod.requests)
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
            if with_pod < left:
                chosen.add(candidate.pod.uid)
            elif with_pod - left <= self._same:
                undecided.append(candidate)
            if with_pod < left or self._counts_all_as_gone:
                rest[theirs] = after
        return chosen, undecided

    def _of_fair_gangs(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        with_pod = self._arithmetic.dominant_share(
            preemptor.gang.allocated + preemptor.pod.requests, self._total
        )
        rest: dict[str, Resources] = {}
        allowed = []
        for candidate in candidates:
            before = rest.get(candidate.gang.key, candidate.gang.allocated)
            after = before - candidate.pod.requests
            left = self._arithmetic.dominant_share(after, self._total)
            fair = self._is_fair(with_pod, left)
            if fair:
                allowed.append(candidate)
            if fair or self._counts_all_as_gone:
                rest[candidate.gang.key] = after
        return allowed

    def _is_fair(self, with_pod: float, left: float) -> bool:
        return with_pod <= left

    def _reclaimable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        return [one for one in candidates if self._tree.prefers(preemptor, one)]


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
        """Return what *namespace* uses now."""
        gangs = self._gangs.get(namespace, ())
        placed = total(gang.allocated - gang.gang.allocated for gang in gangs)
        evicted = total(
            each.pod.requests
            for each in self._session.capacity.evictions
            if each.pod.namespace == namespace and each.gang not in gangs
        )
        return self._before.get(namespace, NOTHING) + placed - evicted

    def weighted(self, namespace: str, use: Resources | None = None) -> float:
        """Return the dominant share of what *namespace* uses, or would use, by its weight."""
        session, amounts = self._session, self.use(namespace) if use is None else use
        return session.arithmetic.dominant_share(amounts, session.total) / self._weights.get(
            namespace, 1
        )

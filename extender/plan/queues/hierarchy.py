"""Hierarchical DRF: a tree of queues in which every level is divided by dominant share.

The path and weights of a queue are its annotations `volcano.sh/hierarchy` ("root/eng/dev") and
`volcano.sh/hierarchy-weights` ("1/2/8"); gangs are the leaves, with weight 1.
"""

from __future__ import annotations

from typing import Any

from extender.model.gang import GangKey
from extender.model.resources import NOTHING, Resources
from extender.plan.arithmetic import Vector
from extender.plan.plugin import Candidate, Claim, View
from extender.plan.queues.kinship import DEEPEST
from extender.plan.room.state import GangState, QueueUse

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
        self._session, self._maths = session, session.maths
        self._root = _Branch()
        self._worked_out = -1
        self._leaves: dict[GangKey, _Leaf] = {}
        #: By queue, and what each of them had when its gangs were last looked at.
        self._gangs: dict[QueueUse, list[_Leaf]] = {}
        self._seen: dict[QueueUse, Resources] = {}
        #: Of everything, and what nobody has left of it.
        self._used: dict[str, float] = {}
        self._scarce: set[str] = set()
        #: To be added up again, with all above them.
        self._stale: set[_Branch] = set()
        for key, gang in session.snapshot.gangs.items():
            state = session.census.state(key)
            if state is not None:
                branch = self._branch(state.queue)
                wants = gang.allocated + session.census.wanted(gang)
                leaf = self._leaves[key] = _Leaf(state, wants, branch)
                branch.leaves.append(leaf)
                self._gangs.setdefault(state.queue, []).append(leaf)

    def place(self, queue: QueueUse) -> tuple[Any, ...]:
        """Give the order of *queue*: from the root down, unsaturated first, then by share."""
        version = len(self._session.room.touched)
        if version != self._worked_out:
            self._look()
            self._add_up()
            self._worked_out = version
        return self._place(queue)

    def favours(self, claim: Claim, candidate: Candidate) -> bool:
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

    def _place(self, queue: QueueUse) -> tuple[Any, ...]:
        places: list[tuple[bool, float]] = []
        branch = self._root
        for name in _path(queue)[1:]:
            branch = branch.branches.get(name, _NOWHERE)
            places.append((branch.saturated, branch.share / branch.weight))
        return tuple(places)

    def _branch(self, queue: QueueUse) -> _Branch:
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


def _path(queue: QueueUse) -> list[str]:
    """Give the names from the root down; what is written further down than may be is one name."""
    return queue.queue.annotations.get(_PATH, f"root/{queue.name}").split("/", DEEPEST)


def _weight(weights: list[str], level: int) -> float:
    try:
        return min(max(1.0, float(weights[level])), _HEAVIEST)
    except (IndexError, ValueError):
        return 1.0


def _add(total: dict[str, float], amounts: Vector, times: float) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times

"""Hierarchical DRF: a tree of queues in which every level is divided by dominant share.

The path and weights of a queue are its annotations `volcano.sh/hierarchy` ("root/eng/dev") and
`volcano.sh/hierarchy-weights` ("1/2/8"); gangs are the leaves, with weight 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.model.gang import GangKey
from extender.plan.arithmetic import Vector
from extender.plan.plugin import Candidate, Claim, View
from extender.plan.queues.kinship import DEEPEST
from extender.plan.room.state import GangState, QueueUse

_PATH, _WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
#: Whoever weighs more than all the world would be first for ever, whatever it uses.
_HEAVIEST = 1e12


class _Branch:
    """An inner node: a queue, or what is above queues."""

    __slots__ = ("allocated", "branches", "gangs", "saturated", "share", "weight")

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self.branches: dict[str, _Branch] = {}
        self.gangs: list[GangState] = []
        self.allocated: Vector = {}
        self.share = 0.0
        self.saturated = False


class Tree:
    """All queues that have gangs, by their paths; worked out anew when somebody was placed."""

    def __init__(self, session: View) -> None:
        self._session, self._maths = session, session.maths
        self._root = _Branch()
        self._worked_out = -1
        self._gangs: list[GangState] = []
        self._wants: dict[GangKey, Vector] = {}
        for key, gang in session.snapshot.gangs.items():
            state = session.census.state(key)
            if state is not None:
                self._gangs.append(state)
                self._branch(state.queue).gangs.append(state)
                self._wants[key] = gang.allocated + session.census.wanted(gang)

    def place(self, queue: QueueUse) -> tuple[Any, ...]:
        """Give the order of *queue*: from the root down, unsaturated first, then by share."""
        version = len(self._session.room.touched)
        if version != self._worked_out:
            self._work_out({})
            self._worked_out = version
        return self._place(queue)

    def favours(self, claim: Claim, candidate: Candidate) -> bool:
        """Ask whether the claimant's queue still comes first after the exchange."""
        moved: dict[GangKey, Vector] = {
            claim.gang.key: claim.gang.allocated + claim.pod.requests,
            candidate.gang.key: candidate.gang.allocated - candidate.pod.requests,
        }
        self._work_out(moved)
        self._worked_out = -1
        return self._place(claim.gang.queue) < self._place(candidate.gang.queue)

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
                branch.branches[name] = _Branch(_weight(weights, level))
            branch = branch.branches[name]
        return branch

    def _work_out(self, moved: Mapping[GangKey, Vector]) -> None:
        used: dict[str, float] = {}
        for gang in self._gangs:
            _add(used, moved.get(gang.key, gang.allocated), 1.0)
        total = self._session.total
        scarce = {name for name in self._maths.names(total) if used.get(name, 0) >= total[name]}
        self._sum_up(self._root, moved, scarce)

    def _sum_up(self, branch: _Branch, moved: Mapping[GangKey, Vector], scarce: set[str]) -> None:
        """Scale the unsaturated children to the smallest of their shares and add all up."""
        children: list[tuple[Vector, float, bool]] = []
        for child in branch.branches.values():
            self._sum_up(child, moved, scarce)
            children.append((child.allocated, child.share, child.saturated))
        for gang in branch.gangs:
            allocated = moved.get(gang.key, gang.allocated)
            saturated = self._saturated(allocated, self._wants[gang.key], scarce)
            children.append((allocated, self._share(allocated), saturated))
        smallest = min([1.0, *(s for _, s, saturated in children if s and not saturated)])
        added: dict[str, float] = {}
        for allocated, share, saturated in children:
            if share:
                _add(added, allocated, 1.0 if saturated else smallest / share)
        branch.allocated = added
        branch.share = self._share(added)
        branch.saturated = all(saturated for _, _, saturated in children)

    def _saturated(self, allocated: Vector, wanted: Vector, scarce: set[str]) -> bool:
        """Ask whether a gang has all it wants of something, or wants what nobody has left."""
        for name in self._maths.names(allocated):
            wants = wanted.get(name, 0)
            if wants and (allocated[name] >= wants or name in scarce):
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

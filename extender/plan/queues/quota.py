"""How much all queues together may have: ceilings, those of their ancestors, and guarantees.

Every queue *holds* what its own gangs use and what the families below it need; a family needs
what it holds, or what it is guaranteed where that is more. So a guarantee that nobody uses yet is
held by everything above it, and one rule is enough for all three promises: what a queue holds
never exceeds its ceiling, and at the top nobody gets room that is guaranteed to somebody else.

The plan hands room out by this tree, and the ledger of promises checks by the same tree whatever
is promised after the snapshot was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from extender.model.queue import Queue
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, Resources, write_amount
from extender.plan.queues.ceiling import stated

#: Above every queue; what it may hold is what the cluster has.
TOP = ""

#: More than any gang has members.
_UNBOUNDED = 2**31


class Stake(NamedTuple):
    """What one queue is limited to, is guaranteed and uses, at one moment."""

    name: str
    #: The queue above it, or `TOP`.
    parent: str
    #: At most; what it does not name is not limited.
    most: Resources = NOTHING
    #: At least, used or not.
    least: Resources = NOTHING
    #: By its own gangs.
    used: Resources = NOTHING


def stake(queue: Queue, parent: str, used: Resources) -> Stake:
    """Read what *queue* is limited to and guaranteed; a guarantee above its ceiling is cut."""
    most = stated(queue.capability)
    return Stake(queue.name, parent, most, queue.guarantee.positive().at_most(most), used)


class Quota:
    """One queue in the tree; taking and giving is counted all the way up."""

    __slots__ = ("held", "least", "most", "name", "parent")

    def __init__(self, name: str, most: Resources, least: Resources) -> None:
        self.name = name
        self.most = most
        self.least = least
        self.parent: Quota | None = None
        self.held: dict[str, int] = {}

    def take(self, amounts: Mapping[str, int], sign: int = 1) -> None:
        """Count *amounts* here and, beyond what is guaranteed, in every queue above."""
        quota: Quota | None = self
        moved: Mapping[str, int] = amounts
        while quota is not None and moved:
            moved = quota._move(moved, sign)
            quota = quota.parent

    def _move(self, amounts: Mapping[str, int], sign: int) -> dict[str, int]:
        """Count *amounts* here; give by how much the family needs more, or less."""
        moved: dict[str, int] = {}
        for name, amount in amounts.items():
            before = self.held.get(name, 0)
            after = self.held[name] = before + sign * amount
            least = self.least.amount(name)
            change = sign * (max(after, least) - max(before, least))
            if change:
                moved[name] = change
        return moved

    def how_many(self, asked: Resources) -> tuple[int, Problem | None]:
        """Count how often *asked* may be taken more; with why not, when not at all."""
        most, problem = _UNBOUNDED, None
        for name, amount in asked.items():
            if amount <= 0:
                continue
            times, where = self._times(name, amount)
            if times < most:
                most = times
                problem = where._reached(self.name, name, amount) if not times else None
        return most, problem

    def _times(self, name: str, amount: int) -> tuple[int, Quota]:
        """Count how often *amount* fits under every ceiling from here up, and who allows least."""
        least, scarcest, free = _UNBOUNDED, self, 0
        quota: Quota | None = self
        while quota is not None:
            if name in quota.most:
                # What is free of guarantees further down costs this queue nothing.
                left = max(quota.most[name] - quota.held.get(name, 0), 0) + free
                if left // amount < least:
                    least, scarcest = left // amount, quota
            free += max(0, quota.least.amount(name) - quota.held.get(name, 0))
            quota = quota.parent
        return least, scarcest

    def _reached(self, queue: str, name: str, asked: int) -> Problem:
        held, most, more = (
            write_amount(name, each)
            for each in (self.held.get(name, 0), self.most.amount(name), asked)
        )
        if self.name == TOP:
            message = (
                f"{held} of {most} {name} is in use or guaranteed to other queues;"
                f" {more} more for queue {queue} would eat their guarantee"
            )
        else:
            message = (
                f"queue {self.name} uses {held} of at most {most} {name}; {more} more would"
                " exceed it"
            )
        return Problem(Reason.QUEUE_AT_CAPABILITY, message)


def tree(stakes: Iterable[Stake], total: Resources) -> dict[str, Quota]:
    """Build the tree of all queues and of `TOP`, with what they use counted.

    A circle of parents ends at the first queue that is met again: it then has no queue above.
    """
    stakes = tuple(stakes)
    quotas = {each.name: Quota(each.name, each.most, each.least) for each in stakes}
    guaranteed = {name for each in stakes for name in each.least}
    # Of what nobody is guaranteed the nodes themselves are limit enough.
    limits = Resources({name: total.amount(name) for name in guaranteed})
    top = quotas[TOP] = Quota(TOP, limits, NOTHING)
    for each in stakes:
        parent = quotas.get(each.parent, top)
        quotas[each.name].parent = top if _is_above(quotas[each.name], parent) else parent
    for each in stakes:
        # A guarantee is held by those above before anybody has used any of it.
        quota = quotas[each.name]
        if quota.least and quota.parent is not None:
            quota.parent.take(quota.least)
    for each in stakes:
        quotas[each.name].take(each.used)
    return quotas


def _is_above(quota: Quota, line: Quota | None) -> bool:
    while line is not None:
        if line is quota:
            return True
        line = line.parent
    return False

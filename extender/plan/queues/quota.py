"""How much queues may have, each and all together: ceilings, those above, and guarantees.

Every queue *holds* what its own gangs use and what the families below it need; a family needs
what it holds, or what it is guaranteed where that is more. So a guarantee that nobody uses yet is
held by everything above it, and one rule is enough for all three promises: what a queue holds
never exceeds its ceiling, and at the top nobody gets room that is guaranteed to somebody else.

The plan hands room out by this tree, and the ledger of promises checks by the same tree whatever
is promised after the snapshot was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from extender.model.queue import Queue, QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU, MEMORY, NOTHING, Resources, write_amount
from extender.plan.arithmetic import Vector, excess

#: Above every queue; what it may hold is what the cluster has.
TOP = ""

#: More than any gang has members.
UNBOUNDED = 2**31


class _Below(Protocol):
    parent: Any


Q = TypeVar("Q", bound=_Below)


def upwards(queue: Q | None) -> Iterator[Q]:
    """Give *queue* and everything above it."""
    while queue is not None:
        yield queue
        queue = queue.parent


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
    """Read what *queue* is limited to and guaranteed; a guarantee above its ceiling is cut.

    One that it lends is no part of it: nobody has to leave that alone.
    """
    most = stated(queue.capability)
    return Stake(queue.name, parent, most, queue.reserved.positive().at_most(most), used)


class Quota:
    """One queue in the tree; taking and giving is counted all the way up."""

    __slots__ = ("held", "least", "most", "name", "parent")

    def __init__(self, name: str, most: Resources, least: Resources) -> None:
        self.name = name
        # Plain dictionaries: they are asked about every pod that is tried.
        self.most = dict(most)
        self.least = dict(least)
        self.parent: Quota | None = None
        self.held: dict[str, int] = {}

    def take(self, amounts: Mapping[str, int]) -> None:
        """Count *amounts* here and, beyond what is guaranteed, in every queue above."""
        quota: Quota | None = self
        while quota is not None and amounts:
            if quota.least:
                amounts = quota._move(amounts)
            else:  # almost always, and for every pod that is tried
                held = quota.held
                for name, amount in amounts.items():
                    held[name] = held.get(name, 0) + amount
            quota = quota.parent

    def _move(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Count *amounts* here; give by how much the family needs more, or less."""
        moved: dict[str, int] = {}
        for name, amount in amounts.items():
            before = self.held.get(name, 0)
            after = self.held[name] = before + amount
            least = self.least.get(name, 0)
            change = max(after, least) - max(before, least) if least else amount
            if change:
                moved[name] = change
        return moved

    def how_many(self, asked: Resources) -> tuple[int, Problem | None]:
        """Count how often *asked* may be taken more; with why not, when not at all."""
        most, problem = UNBOUNDED, None
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
        left, scarcest = self._left(name)
        return (UNBOUNDED if left == inf else int(left) // amount), scarcest

    def _left(self, name: str) -> tuple[float, Quota]:
        """Give how much more of *name* every ceiling from here up allows, and who allows least."""
        least, scarcest, free = inf, self, 0
        for quota in upwards(self):
            if name in quota.most:
                # What is free of guarantees further down costs this queue nothing.
                left = max(quota.most[name] - quota.held.get(name, 0), 0) + free
                if left < least:
                    least, scarcest = left, quota
            free += max(0, quota.least.get(name, 0) - quota.held.get(name, 0))
        return least, scarcest

    def left(self, name: str) -> float:
        """Give how much more of *name* may be taken; endless where nobody limits it."""
        return self._left(name)[0]

    @property
    def kept(self) -> Resources:
        """Give what is kept idle for its family: what it is guaranteed beyond what it holds."""
        held = self.held
        return Resources({n: a - max(held.get(n, 0), 0) for n, a in self.least.items()}).positive()

    def _reached(self, queue: str, name: str, asked: int) -> Problem:
        held, most = self.held.get(name, 0), self.most.get(name, 0)
        if self.name != TOP:
            return at_capability(self.name, name, held, asked, most)
        message = (
            f"{write_amount(name, held)} of {write_amount(name, most)} {name} is in use or"
            f" guaranteed to other queues; {write_amount(name, asked)} more for queue {queue} would"
            " eat their guarantee"
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
        quotas[each.name].parent = top if quotas[each.name] in upwards(parent) else parent
    for each in stakes:
        # A guarantee is held by those above before anybody has used any of it.
        quota = quotas[each.name]
        if quota.least and quota.parent is not None:
            quota.parent.take(quota.least)
    for each in stakes:
        quotas[each.name].take(each.used)
    return quotas


def reserved(queues: Iterable[Queue]) -> Resources:
    """Add up what is kept for all *queues*."""
    return sum((queue.reserved for queue in queues), NOTHING)


def real_capability(queue: Queue, total: Resources, kept: Resources) -> Resources:
    """Give what *queue* may use: everything not *kept* for others, up to its capability."""
    return (total.beyond(kept) + queue.reserved).at_most(stated(queue.capability))


def stated(capability: Resources) -> Resources:
    """Leave out cpu and memory of zero: it means that they are not limited."""
    return Resources(
        {name: a for name, a in capability.items() if a > 0 or name not in (CPU, MEMORY)}
    )


def closed(queue: Queue) -> Problem | None:
    """Say that *queue* is not open, None when it is."""
    if queue.state is QueueState.OPEN:
        return None
    return Problem(Reason.QUEUE_CLOSED, f"queue {queue.name} is {queue.state.value.lower()}")


def at_capability(queue: str, name: str, used: float, asked: float, limit: float) -> Problem:
    """Say that one more pod or gang would exceed what *queue* may use."""
    message = (
        f"queue {queue} uses {_write(name, used)} of at most {_write(name, limit)} {name};"
        f" {_write(name, asked)} more would exceed it"
    )
    return Problem(Reason.QUEUE_AT_CAPABILITY, message)


def over_deserved(queue: str, name: str, used: float, asked: float, limit: float) -> Problem:
    """Say that one more pod would carry *queue* over what it deserves."""
    message = (
        f"queue {queue} deserves {_write(name, limit)} {name} and uses {_write(name, used)};"
        f" {_write(name, asked)} more would exceed it"
    )
    return Problem(Reason.QUEUE_OVER_DESERVED, message)


def how_many(used: Vector, limit: Vector, asked: Resources) -> tuple[int, str]:
    """Count how often *asked* fits between *used* and *limit*, and name what runs out first."""
    least, scarcest = None, ""
    for name, amount in asked.items():
        most = limit.get(name, 0)
        if amount <= 0 or most == inf:
            continue
        times = max(0, int((most - used.get(name, 0)) // amount))
        if least is None or times < least:
            least, scarcest = times, name
    return (least, scarcest) if least is not None else (UNBOUNDED, "")


def allowed(
    queue: str,
    used: Vector,
    limit: Vector,
    asked: Resources,
    refuse: Callable[[str, str, float, float, float], Problem] = at_capability,
) -> int | Problem:
    """Count how often *asked* fits between *used* and *limit*, or *refuse* what runs out."""
    times, name = how_many(used, limit, asked)
    return times or refuse(queue, name, used.get(name, 0), asked[name], limit.get(name, 0))


def too_much(queue: str, used: Resources, limit: Vector, asked: Resources) -> Problem | None:
    """Say that *asked* more would carry *queue* over *limit*, None when it would not."""
    short = excess(used + asked, limit, asked)
    if not short:
        return None
    name = short[0]
    return at_capability(queue, name, used.amount(name), asked[name], limit.get(name, 0))


def _write(name: str, amount: float) -> str:
    return write_amount(name, int(amount))

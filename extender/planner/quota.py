"""How much queues may have, each and all together: ceilings, those above, and guarantees.

Every queue *holds* what its own gangs use and what the families below it need; a family needs
what it holds, or what it is guaranteed where that is more. So a guarantee that nobody uses yet is
held by everything above it, and one rule is enough for all three promises: what a queue holds
never exceeds its ceiling, and at the top nobody gets room that is guaranteed to somebody else.

What a namespace has of a queue, where administrators limit or guarantee it (`Share`), hangs below
that queue like a family of its own: its gangs count there, and so in everything above.

The plan hands room out by this tree, and the ledger of promises checks by the same tree whatever
is promised after the snapshot was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from extender.model.queue import NamespaceShare, Queue, QueueState, share_words
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU, MEMORY, NOTHING, Resources, write_amount
from extender.planner.policy import Vector, excess

#: More than any gang has members.
UNBOUNDED = 2**31


class _Below(Protocol):
    parent: Any


class _Standing(_Below, Protocol):
    name: str
    queue: Queue


Q = TypeVar("Q", bound=_Below)


def upwards(queue: Q | None) -> Iterator[Q]:
    """Give *queue* and everything above it."""
    while queue is not None:
        yield queue
        queue = queue.parent


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


def closed(queue: _Standing) -> Problem | None:
    """Say that *queue*, or one above it, is not open; None when all are.

    Closing a queue closes the whole family. Volcano's scheduler looks at the queue alone, but
    its controller closes those below a closed one, so it comes to the same.
    """
    for each in upwards(queue):
        state = each.queue.state
        if state is not QueueState.OPEN:
            what = f"queue {each.name} is {state.value.lower()}"
            below = f"queue {queue.name} is below {each.name}, and "
            message = what if each is queue else f"{below}{what}"
            return Problem(Reason.QUEUE_CLOSED, message)
    return None


def at_capability(
    queue: str, name: str, used: float, asked: float, limit: float, also: str = ""
) -> Problem:
    """Say that one more pod or gang would exceed what *queue* may use."""
    message = (
        f"queue {queue} uses {_write(name, used)} of at most {_write(name, limit)} {name}{also};"
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


def too_much(
    queue: str, used: Resources, limit: Vector, asked: Resources, promised: Resources = NOTHING
) -> Problem | None:
    """Say that *asked* more would carry *queue* over *limit*, None when it would not."""
    short = excess(used + promised + asked, limit, asked)
    if not short:
        return None
    name = short[0]
    given = promised.amount(name)
    also = f" and has promised {_write(name, given)} to gangs that it let in" if given else ""
    return at_capability(queue, name, used.amount(name), asked[name], limit.get(name, 0), also)


def _write(name: str, amount: float) -> str:
    return write_amount(name, int(amount))


#: Above every queue; what it may hold is what the cluster has.
TOP = ""


class QueueLimits(NamedTuple):
    """What one queue, or one namespace in it, is limited to, is guaranteed and uses."""

    name: str
    #: The queue above it, or `TOP`.
    parent: str
    #: At most; what it does not name is not limited.
    ceiling: Resources = NOTHING
    #: At least, used or not.
    guarantee: Resources = NOTHING
    #: By its own gangs; those of namespaces that have a stake of their own count there.
    used: Resources = NOTHING
    #: The namespace whose share of *parent* it is; empty for a queue.
    namespace: str = ""
    #: By pods that are being deleted and not gone yet.
    leaving: Resources = NOTHING


def queue_limits(queue: Queue, parent: str, used: Resources) -> QueueLimits:
    """Read what *queue* is limited to and guaranteed; a guarantee above its ceiling is cut.

    One that it lends is no part of it: nobody has to leave that alone.
    """
    most = stated(queue.capability)
    return QueueLimits(queue.name, parent, most, queue.reserved.positive().at_most(most), used)


def share_limits(share: NamespaceShare, used: Resources) -> QueueLimits:
    """Read what a namespace is limited to and guaranteed in a queue."""
    least = share.guarantee.at_most(share.limit).positive()
    return QueueLimits(share.name, share.queue, share.limit, least, used, share.namespace)


def using(
    stakes: Iterable[QueueLimits], queues: Mapping[str, Resources], shares: Mapping[str, Resources]
) -> list[QueueLimits]:
    """Give *stakes* with other amounts in use: *queues* with all their *shares*, and those."""
    stakes = tuple(stakes)
    parts: dict[str, Resources] = {}
    for each in stakes:
        if each.namespace:
            part = shares.get(each.name, NOTHING)
            parts[each.parent] = parts.get(each.parent, NOTHING) + part
    own = {name: used - parts[name] if name in parts else used for name, used in queues.items()}
    return [
        each._replace(used=(shares if each.namespace else own).get(each.name, NOTHING))
        for each in stakes
    ]


class QuotaNode:
    """One queue in the tree, or the share of a namespace; taking is counted all the way up."""

    __slots__ = (
        "_leaving_above", "held", "least", "leaving", "most", "name", "namespace", "parent",
        "shares",
    )  # fmt: skip

    def __init__(self, name: str, most: Resources, least: Resources, namespace: str = "") -> None:
        self.name = name
        #: The namespace whose share it is; empty for a queue.
        self.namespace = namespace
        #: Below a queue, those of namespaces.
        self.shares: list[QuotaNode] = []
        # Plain dictionaries: they are asked about every pod that is tried.
        self.most = dict(most)
        self.least = dict(least)
        self.parent: QuotaNode | None = None
        self.held: dict[str, int] = {}
        #: By pods that are being deleted, below it too, as far as it needs room for them; and
        #: what of that is counted above.
        self.leaving: dict[str, int] = {}
        self._leaving_above: dict[str, int] = {}

    def take(self, amounts: Mapping[str, int]) -> None:
        """Count *amounts* here and, beyond what is guaranteed, in every queue above."""
        quota: QuotaNode | None = self
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
                problem = where._reached(self, name, amount) if not times else None
        return most, problem

    def _times(self, name: str, amount: int) -> tuple[int, QuotaNode]:
        """Count how often *amount* fits under every ceiling from here up, and who allows least.

        Where it does not fit at all that is the nearest one, whatever those above it have left.
        """
        left, scarcest = self._left(name, amount)
        return (UNBOUNDED if left == inf else int(left) // amount), scarcest

    def _left(self, name: str, wanted: int = 0) -> tuple[float, QuotaNode]:
        """Give how much more of *name* every ceiling from here up allows, and who allows least.

        The first to allow less than *wanted* will do.
        """
        least, scarcest, free = inf, self, 0
        for quota in upwards(self):
            if name in quota.most:
                # What is free of guarantees further down costs this queue nothing.
                left = max(quota.most[name] - quota.held.get(name, 0), 0) + free
                if left < least:
                    least, scarcest = left, quota
                if left < wanted:
                    break
            free += max(0, quota.least.get(name, 0) - quota.held.get(name, 0))
        return least, scarcest

    def blocker(self, asked: Resources) -> QuotaNode | None:
        """Give the one that has too little left for *asked*, here or above; None when none."""
        places = (self._times(name, amount) for name, amount in asked.items() if amount > 0)
        return next((where for times, where in places if not times), None)

    def leave(self, amounts: Mapping[str, int]) -> None:
        """Count *amounts* that pods occupy which are being deleted."""
        quota: QuotaNode | None = self
        while quota is not None and amounts:
            _add(quota.leaving, amounts)
            amounts = quota._beyond_guarantee(amounts)
            _add(quota._leaving_above, amounts)
            quota = quota.parent

    def _beyond_guarantee(self, leaving: Mapping[str, int]) -> dict[str, int]:
        """Give what of *leaving* the family needs beyond what it is guaranteed and holds."""
        beyond = {}
        for name, amount in leaving.items():
            held, least = self.held.get(name, 0), self.least.get(name, 0)
            beyond[name] = max(held + amount, least) - max(held, least)
        return beyond

    def blocked_by_terminating(self, asked: Mapping[str, int], *, is_taken: bool) -> Problem | None:
        """Say which ceiling *asked* would break until pods that are being deleted are gone.

        They count for what starts, not for what waits for their room. *is_taken* when *asked* is
        counted as held already.
        """
        above: Mapping[str, int] = {}
        more = {} if is_taken else dict(asked)
        for quota in upwards(self):
            leaving = dict(quota.leaving)
            _add(leaving, above)
            for name, gone in leaving.items():
                held, wanted = quota.held.get(name, 0) + more.get(name, 0), asked.get(name, 0)
                most = quota.most.get(name, inf)
                if gone > 0 < wanted and held + gone > most >= held:
                    return quota._still_occupied(name, held - wanted, gone, wanted)
            # What it has taken since they were counted may use up the guarantee they stood on.
            counted = quota._leaving_above
            above = {n: a - counted.get(n, 0) for n, a in quota._beyond_guarantee(leaving).items()}
            more = quota._beyond_guarantee(more)
        return None

    def _still_occupied(self, name: str, used: int, leaving: int, asked: int) -> Problem:
        most = write_amount(name, self.most[name])
        reason = Reason.NAMESPACE_OVER_LIMIT if self.namespace else Reason.QUEUE_AT_CAPABILITY
        has = (
            f"{self.words} uses {write_amount(name, used)} of at most {most} {name}"
            if self.name != TOP
            else f"{write_amount(name, used)} of {most} {name} is in use or guaranteed to others"
        )
        message = (
            f"{has}, and pods that are being deleted {write_amount(name, leaving)} until they are"
            f" gone; {write_amount(name, asked)} more would exceed it"
        )
        return Problem(reason, message)

    def lacks(self, asked: Mapping[str, int]) -> str:
        """Name what this one by itself has too little left of for *asked*; empty when nothing."""
        most, held = self.most, self.held
        over = (n for n, a in asked.items() if a > 0 and n in most and held.get(n, 0) + a > most[n])
        return next(over, "")

    def is_exceeded(self, names: Iterable[str]) -> bool:
        """Ask whether it holds more than its ceiling of any of *names*: that was lowered."""
        most, held = self.most, self.held
        return any(held.get(name, 0) > most[name] for name in names if name in most)

    def covers(self, asked: Mapping[str, int]) -> int:
        """Count how often *asked* fits into what it is guaranteed and does not hold yet.

        What the guarantee does not name is not its business; one that names none of it covers
        nothing.
        """
        held, least = self.held, self.least
        named = [
            max(0, least[n] - held.get(n, 0)) // a for n, a in asked.items() if a > 0 and n in least
        ]
        return min(named, default=0)

    def reserves(self, gone: Mapping[str, int]) -> bool:
        """Ask whether it still holds what it is guaranteed, of what is *gone*, without that."""
        held, least = self.held, self.least
        return all(held.get(n, 0) - a >= least[n] for n, a in gone.items() if a > 0 and n in least)

    def left(self, name: str) -> float:
        """Give how much more of *name* may be taken; endless where nobody limits it."""
        return self._left(name)[0]

    @property
    def kept(self) -> Resources:
        """Give what is kept idle for its family: what it is guaranteed beyond what it holds."""
        held = self.held
        return Resources({n: a - max(held.get(n, 0), 0) for n, a in self.least.items()}).positive()

    @property
    def words(self) -> str:
        """Say what it is."""
        if not self.namespace:
            return f"queue {self.name}"
        return f"namespace {share_words(self.name.partition('/')[0], self.namespace)}"

    def at_most(self, name: str, asked: int) -> Problem:
        """Say that one more pod or gang would exceed what a namespace may have of its queue."""
        queue = self.name.partition("/")[0]
        used, limit = self.held.get(name, 0), self.most.get(name, 0)
        message = (
            f"namespace {self.namespace} uses {write_amount(name, used)} of at most"
            f" {write_amount(name, limit)} {name} in queue {queue}; {write_amount(name, asked)}"
            " more would exceed it"
        )
        return Problem(Reason.NAMESPACE_OVER_LIMIT, message)

    def _reached(self, claimant: QuotaNode, name: str, asked: int) -> Problem:
        held, most = self.held.get(name, 0), self.most.get(name, 0)
        if self.namespace:
            return self.at_most(name, asked)
        kept = sum(share.kept.amount(name) for share in self.shares if share is not claimant)
        if self.name != TOP and kept:
            message = (
                f"queue {self.name} uses {write_amount(name, held - kept)} {name}, keeps"
                f" {write_amount(name, kept)} for its namespaces and may have at most"
                f" {write_amount(name, most)}; {write_amount(name, asked)} more would exceed it"
            )
            return Problem(Reason.QUEUE_AT_CAPABILITY, message)
        if self.name != TOP:
            return at_capability(self.name, name, held, asked, most)
        message = (
            f"{write_amount(name, held)} of {write_amount(name, most)} {name} is in use or"
            f" guaranteed to others; {write_amount(name, asked)} more for {claimant.words} would"
            " eat their guarantee"
        )
        return Problem(Reason.QUEUE_AT_CAPABILITY, message)


def left_of_all(quotas: Iterable[QuotaNode], name: str) -> dict[QuotaNode, float]:
    """Give `Quota.left` of all at one moment, each from the one above it: they may be hundreds."""
    known: dict[QuotaNode, float] = {}
    for quota in quotas:
        new = []
        for each in upwards(quota):
            if each in known:
                break
            new.append(each)
        for each in reversed(new):
            held = each.held.get(name, 0)
            above = inf if each.parent is None else known[each.parent]
            # What is free of a guarantee costs those above nothing.
            above += max(0, each.least.get(name, 0) - held)
            own = max(each.most[name] - held, 0) if name in each.most else inf
            known[each] = min(own, above)
    return known


def tree(stakes: Iterable[QueueLimits], total: Resources) -> dict[str, QuotaNode]:
    """Build the tree of all queues and of `TOP`, with what they use counted.

    A circle of parents ends at the first queue that is met again: it then has no queue above.
    """
    stakes = tuple(stakes)
    quotas = {
        each.name: QuotaNode(each.name, each.ceiling, each.guarantee, each.namespace)
        for each in stakes
    }
    guaranteed = {name for each in stakes for name in each.guarantee}
    # Of what nobody is guaranteed the nodes themselves are limit enough.
    limits = Resources({name: total.amount(name) for name in guaranteed})
    top = quotas[TOP] = QuotaNode(TOP, limits, NOTHING)
    for each in stakes:
        parent = quotas.get(each.parent, top)
        quotas[each.name].parent = top if quotas[each.name] in upwards(parent) else parent
        if each.namespace:
            parent.shares.append(quotas[each.name])
    _reserve([quotas[each.name] for each in stakes if each.guarantee], top)
    for each in stakes:
        quotas[each.name].take(each.used)
    for each in stakes:
        if each.leaving:
            quotas[each.name].leave(each.leaving)
    return quotas


def _reserve(guaranteed: list[QuotaNode], top: QuotaNode) -> None:
    """Let those above hold every guarantee before anybody has used any of it.

    Those that would break a ceiling above them together are cut, from the top down, so that the
    ceiling holds. What the nodes cannot keep is not cut: they may be back in a moment.
    """
    limits, top.most = top.most, {}
    for quota in sorted(guaranteed, key=lambda each: sum(1 for _ in upwards(each))):
        if quota.parent is not None:
            above = quota.parent
            quota.least = {n: int(min(a, above.left(n))) for n, a in quota.least.items()}
            above.take(quota.least)
    top.most = limits


def _add(sums: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount

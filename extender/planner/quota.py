"""The limits of queues, each and all together: ceilings, those of ancestors, and guarantees.

Every queue has *taken* what its own gangs use and what the families below it need. A family needs
what it has taken, or its guarantee where that is more. So a guarantee that is not used yet is taken
in all queues above it, and one rule is enough for ceilings, ancestors and guarantees: what a queue
has taken never exceeds its ceiling, and at the top no queue takes what is guaranteed to another.

The share of a namespace in a queue, where administrators limit or guarantee it (`Share`), is below
that queue like a family of its own. Its gangs count there, and so in all queues above.

The plan hands out capacity by this tree. The reservations made after the snapshot was taken are
checked by the same tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from extender.model.queue import NamespaceShare, Queue, share_text
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, Resources, write_amount
from extender.planner.policy import Vector, excess

#: More members than any gang has.
UNBOUNDED = 2**31


class _HasParent(Protocol):
    parent: Any


Q = TypeVar("Q", bound=_HasParent)


def upwards(queue: Q | None) -> Iterator[Q]:
    """Yield *queue* and all queues above it."""
    while queue is not None:
        yield queue
        queue = queue.parent


def at_capability(
    queue: str, name: str, used: float, requested: float, limit: float, also: str = ""
) -> Problem:
    """Return the problem that one more pod or gang would exceed what *queue* may use."""
    message = (
        f"queue {queue} uses {_write(name, used)} of at most {_write(name, limit)} {name}{also};"
        f" {_write(name, requested)} more would exceed it"
    )
    return Problem(Reason.QUEUE_AT_CAPABILITY, message)


def over_deserved(queue: str, name: str, used: float, requested: float, limit: float) -> Problem:
    """Return the problem that one more pod would carry *queue* over its deserved amount."""
    message = (
        f"queue {queue} deserves {_write(name, limit)} {name} and uses {_write(name, used)};"
        f" {_write(name, requested)} more would exceed it"
    )
    return Problem(Reason.QUEUE_OVER_DESERVED, message)


def how_many(used: Vector, limit: Vector, requested: Resources) -> tuple[int, str]:
    """Count how often *requested* fits between *used* and *limit*; name the scarcest resource."""
    least, scarcest = None, ""
    for name, amount in requested.items():
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
    requested: Resources,
    refuse: Callable[[str, str, float, float, float], Problem] = at_capability,
) -> int | Problem:
    """Count how often *requested* fits below *limit*, or *refuse* the scarcest resource."""
    times, name = how_many(used, limit, requested)
    return times or refuse(queue, name, used.get(name, 0), requested[name], limit.get(name, 0))


def too_much(
    queue: str, used: Resources, limit: Vector, requested: Resources, reserved: Resources = NOTHING
) -> Problem | None:
    """Return the problem that *requested* would carry *queue* over *limit*, else None."""
    short = excess(used + reserved + requested, limit, requested)
    if not short:
        return None
    name = short[0]
    kept = reserved.amount(name)
    also = f" and has reserved {_write(name, kept)} for admitted gangs" if kept else ""
    return at_capability(queue, name, used.amount(name), requested[name], limit.get(name, 0), also)


def _write(name: str, amount: float) -> str:
    return write_amount(name, int(amount))


#: The node above all queues; it may take what the cluster has.
TOP = ""


class QueueLimits(NamedTuple):
    """Limit, guarantee and use of one queue, or of one namespace in it."""

    name: str
    #: The queue above it, or `TOP`.
    parent: str
    #: The ceiling; a resource it does not name is not limited.
    ceiling: Resources = NOTHING
    #: The guarantee, whether it is used or not.
    guarantee: Resources = NOTHING
    #: Used by its own gangs; those of namespaces with a share of their own count there.
    used: Resources = NOTHING
    #: The namespace whose share of *parent* it is; empty for a queue.
    namespace: str = ""
    #: Used by terminating pods.
    leaving: Resources = NOTHING


def queue_limits(queue: Queue, parent: str, used: Resources) -> QueueLimits:
    """Return the limits of *queue*; a guarantee above the ceiling is cut.

    A guarantee that others may borrow is not part of it: no other queue must leave it free.
    """
    most = queue.ceiling
    return QueueLimits(queue.name, parent, most, queue.reserved.positive().at_most(most), used)


def share_limits(share: NamespaceShare, used: Resources) -> QueueLimits:
    """Return the limits of a namespace in a queue."""
    least = share.guarantee.at_most(share.limit).positive()
    return QueueLimits(share.name, share.queue, share.limit, least, used, share.namespace)


def using(
    limits: Iterable[QueueLimits], queues: Mapping[str, Resources], shares: Mapping[str, Resources]
) -> list[QueueLimits]:
    """Return *limits* with new usage of *queues*, which includes that of *shares*."""
    limits = tuple(limits)
    parts: dict[str, Resources] = {}
    for each in limits:
        if each.namespace:
            part = shares.get(each.name, NOTHING)
            parts[each.parent] = parts.get(each.parent, NOTHING) + part
    own = {name: used - parts[name] if name in parts else used for name, used in queues.items()}
    return [
        each._replace(used=(shares if each.namespace else own).get(each.name, NOTHING))
        for each in limits
    ]


class QuotaNode:
    """One queue in the tree, or the share of a namespace; usage is counted in all nodes above."""

    __slots__ = (
        "ceiling",
        "guarantee",
        "name",
        "namespace",
        "parent",
        "shares",
        "taken",
        "terminating",
        "terminating_above",
    )  # fmt: skip

    def __init__(
        self, name: str, ceiling: Resources, guarantee: Resources, namespace: str = ""
    ) -> None:
        self.name = name
        #: The namespace of a share; empty for a queue.
        self.namespace = namespace
        #: The shares of namespaces in this queue.
        self.shares: list[QuotaNode] = []
        # Plain dictionaries: they are read for every pod that is tried.
        self.ceiling = dict(ceiling)
        self.guarantee = dict(guarantee)
        self.parent: QuotaNode | None = None
        self.taken: dict[str, int] = {}
        #: Used by terminating pods, also below, as far as it needs capacity for them; and what of
        #: that is counted above.
        self.terminating: dict[str, int] = {}
        self.terminating_above: dict[str, int] = {}

    def take(self, amounts: Mapping[str, int]) -> None:
        """Count *amounts* here and, beyond the guarantee, in all queues above."""
        quota: QuotaNode | None = self
        while quota is not None and amounts:
            if quota.guarantee:
                amounts = _count(quota, amounts)
            else:  # almost always, and for every pod that is tried
                taken = quota.taken
                for name, amount in amounts.items():
                    taken[name] = taken.get(name, 0) + amount
            quota = quota.parent

    def how_many(self, requested: Resources) -> tuple[int, Problem | None]:
        """Count how often *requested* fits here; add the problem if it does not fit at all."""
        most, problem = UNBOUNDED, None
        for name, amount in requested.items():
            if amount <= 0:
                continue
            times, where = self._times(name, amount)
            if times < most:
                most = times
                problem = _reached(where, self, name, amount) if not times else None
        return most, problem

    def _times(self, name: str, amount: int) -> tuple[int, QuotaNode]:
        """Count how often *amount* fits under all ceilings from here up, and return the lowest one.

        If it does not fit at all, that is the nearest ceiling which refuses it, whatever those
        above have left.
        """
        left, scarcest = self._left(name, amount)
        return (UNBOUNDED if left == inf else int(left) // amount), scarcest

    def _left(self, name: str, wanted: int = 0) -> tuple[float, QuotaNode]:
        """Return how much more of *name* the ceilings from here up allow, and the lowest one.

        The search ends at the first that allows less than *wanted*.
        """
        least, scarcest, free = inf, self, 0
        for quota in upwards(self):
            if name in quota.ceiling:
                # A free guarantee further down costs this queue nothing.
                left = max(quota.ceiling[name] - quota.taken.get(name, 0), 0) + free
                if left < least:
                    least, scarcest = left, quota
                if left < wanted:
                    break
            free += max(0, quota.guarantee.get(name, 0) - quota.taken.get(name, 0))
        return least, scarcest

    def blocker(self, requested: Resources) -> QuotaNode | None:
        """Return the node that has too little left for *requested*, here or above; else None."""
        found = (self._times(name, amount) for name, amount in requested.items() if amount > 0)
        return next((where for times, where in found if not times), None)

    def count_terminating(self, amounts: Mapping[str, int]) -> None:
        """Count *amounts* as used by terminating pods."""
        quota: QuotaNode | None = self
        while quota is not None and amounts:
            _add(quota.terminating, amounts)
            amounts = _beyond_guarantee(quota, amounts)
            _add(quota.terminating_above, amounts)
            quota = quota.parent

    def blocked_by_terminating(
        self, requested: Mapping[str, int], *, is_taken: bool
    ) -> Problem | None:
        """Return the ceiling that *requested* would exceed until terminating pods are gone.

        Terminating pods count against pods that start, not against pods that wait for their
        capacity. *is_taken* states that *requested* is taken already.
        """
        above: Mapping[str, int] = {}
        more = {} if is_taken else dict(requested)
        for quota in upwards(self):
            terminating = dict(quota.terminating)
            _add(terminating, above)
            for name, gone in terminating.items():
                taken, wanted = quota.taken.get(name, 0) + more.get(name, 0), requested.get(name, 0)
                most = quota.ceiling.get(name, inf)
                if gone > 0 < wanted and taken + gone > most >= taken:
                    return _blocked(quota, name, taken - wanted, gone, wanted)
            # Pods that started since may have used up the guarantee which covered the terminating
            # ones.
            counted = quota.terminating_above
            above = {
                n: a - counted.get(n, 0) for n, a in _beyond_guarantee(quota, terminating).items()
            }
            more = _beyond_guarantee(quota, more)
        return None

    def lacks(self, requested: Mapping[str, int]) -> str:
        """Return a resource of *requested* that this node alone has too little of; else empty."""
        most, taken = self.ceiling, self.taken
        over = (
            n for n, a in requested.items() if a > 0 and n in most and taken.get(n, 0) + a > most[n]
        )
        return next(over, "")

    def is_exceeded(self, names: Iterable[str]) -> bool:
        """Return whether it took more of any of *names* than its ceiling, which was lowered."""
        most, taken = self.ceiling, self.taken
        return any(taken.get(name, 0) > most[name] for name in names if name in most)

    def covers(self, requested: Mapping[str, int]) -> int:
        """Count how often *requested* fits into the part of the guarantee that is not taken yet.

        Resources that the guarantee does not name are ignored; a guarantee that names none of them
        covers nothing.
        """
        taken, least = self.taken, self.guarantee
        named = [
            max(0, least[n] - taken.get(n, 0)) // a
            for n, a in requested.items()
            if a > 0 and n in least
        ]
        return min(named, default=0)

    def reserves(self, gone: Mapping[str, int]) -> bool:
        """Return whether it still holds its guarantee once *gone* is released."""
        taken, least = self.taken, self.guarantee
        return all(taken.get(n, 0) - a >= least[n] for n, a in gone.items() if a > 0 and n in least)

    def left(self, name: str) -> float:
        """Return how much more of *name* may be taken; infinite without a limit."""
        return self._left(name)[0]

    @property
    def unused_guarantee(self) -> Resources:
        """Return the part of its guarantee that is not taken: kept free for its family."""
        taken = self.taken
        return Resources(
            {n: a - max(taken.get(n, 0), 0) for n, a in self.guarantee.items()}
        ).positive()

    @property
    def text(self) -> str:
        """Return a phrase that names this node."""
        if not self.namespace:
            return f"queue {self.name}"
        return f"namespace {share_text(self.name.partition('/')[0], self.namespace)}"

    def at_most(self, name: str, requested: int) -> Problem:
        """Return the problem that one more pod or gang would exceed the limit of a namespace."""
        queue = self.name.partition("/")[0]
        used, limit = self.taken.get(name, 0), self.ceiling.get(name, 0)
        message = (
            f"namespace {self.namespace} uses {write_amount(name, used)} of at most"
            f" {write_amount(name, limit)} {name} in queue {queue}; {write_amount(name, requested)}"
            " more would exceed it"
        )
        return Problem(Reason.NAMESPACE_OVER_LIMIT, message)


def _count(quota: QuotaNode, amounts: Mapping[str, int]) -> dict[str, int]:
    """Count *amounts* in *quota*; return by how much its family needs more, or less."""
    moved: dict[str, int] = {}
    for name, amount in amounts.items():
        before = quota.taken.get(name, 0)
        after = quota.taken[name] = before + amount
        least = quota.guarantee.get(name, 0)
        change = max(after, least) - max(before, least) if least else amount
        if change:
            moved[name] = change
    return moved


def _beyond_guarantee(quota: QuotaNode, terminating: Mapping[str, int]) -> dict[str, int]:
    """Return what the family needs for *terminating* beyond its guarantee and what it took."""
    beyond = {}
    for name, amount in terminating.items():
        taken, least = quota.taken.get(name, 0), quota.guarantee.get(name, 0)
        beyond[name] = max(taken + amount, least) - max(taken, least)
    return beyond


def _blocked(quota: QuotaNode, name: str, used: int, terminating: int, requested: int) -> Problem:
    most = write_amount(name, quota.ceiling[name])
    reason = Reason.NAMESPACE_OVER_LIMIT if quota.namespace else Reason.QUEUE_AT_CAPABILITY
    has = (
        f"{quota.text} uses {write_amount(name, used)} of at most {most} {name}"
        if quota.name != TOP
        else f"{write_amount(name, used)} of {most} {name} is in use or guaranteed to others"
    )
    message = (
        f"{has}, and terminating pods use {write_amount(name, terminating)} until they are"
        f" gone; {write_amount(name, requested)} more would exceed it"
    )
    return Problem(reason, message)


def _reached(quota: QuotaNode, claimant: QuotaNode, name: str, requested: int) -> Problem:
    taken, most = quota.taken.get(name, 0), quota.ceiling.get(name, 0)
    if quota.namespace:
        return quota.at_most(name, requested)
    kept = sum(
        share.unused_guarantee.amount(name) for share in quota.shares if share is not claimant
    )
    if quota.name != TOP and kept:
        message = (
            f"queue {quota.name} uses {write_amount(name, taken - kept)} {name}, reserves"
            f" {write_amount(name, kept)} for its namespaces and may have at most"
            f" {write_amount(name, most)}; {write_amount(name, requested)} more would exceed it"
        )
        return Problem(Reason.QUEUE_AT_CAPABILITY, message)
    if quota.name != TOP:
        return at_capability(quota.name, name, taken, requested, most)
    message = (
        f"{write_amount(name, taken)} of {write_amount(name, most)} {name} is in use or"
        f" guaranteed to others; {write_amount(name, requested)} more for {claimant.text}"
        " would use capacity guaranteed to others"
    )
    return Problem(Reason.QUEUE_AT_CAPABILITY, message)


def left_of_all(quotas: Iterable[QuotaNode], name: str) -> dict[QuotaNode, float]:
    """Return `QuotaNode.left` of all at once, each from the one above it: there can be hundreds."""
    known: dict[QuotaNode, float] = {}
    for quota in quotas:
        new = []
        for each in upwards(quota):
            if each in known:
                break
            new.append(each)
        for each in reversed(new):
            taken = each.taken.get(name, 0)
            above = inf if each.parent is None else known[each.parent]
            # A free guarantee costs the nodes above nothing.
            above += max(0, each.guarantee.get(name, 0) - taken)
            own = max(each.ceiling[name] - taken, 0) if name in each.ceiling else inf
            known[each] = min(own, above)
    return known


def tree(limits: Iterable[QueueLimits], total: Resources) -> dict[str, QuotaNode]:
    """Build the tree of all queues and of `TOP`, with their usage counted.

    A cycle of parents ends at the first queue that occurs twice: it then has no queue above.
    """
    limits = tuple(limits)
    quotas = {
        each.name: QuotaNode(each.name, each.ceiling, each.guarantee, each.namespace)
        for each in limits
    }
    guaranteed = {name for each in limits for name in each.guarantee}
    # Resources without any guarantee are limited by the nodes alone.
    node_limits = Resources({name: total.amount(name) for name in guaranteed})
    top = quotas[TOP] = QuotaNode(TOP, node_limits, NOTHING)
    for each in limits:
        parent = quotas.get(each.parent, top)
        quotas[each.name].parent = top if quotas[each.name] in upwards(parent) else parent
        if each.namespace:
            parent.shares.append(quotas[each.name])
    _reserve([quotas[each.name] for each in limits if each.guarantee], top)
    for each in limits:
        quotas[each.name].take(each.used)
    for each in limits:
        if each.leaving:
            quotas[each.name].count_terminating(each.leaving)
    return quotas


def ceilings(limits: Sequence[QueueLimits], total: Resources) -> dict[str, Vector]:
    """Return what every queue could hold if all others were empty.

    Its own ceiling, those above it, and what is guaranteed to others limit that. Guarantees of its
    own namespaces do not.
    """
    empty = tree((each._replace(used=NOTHING) for each in limits), total)
    kept: dict[str, Resources] = {}
    for each in limits:
        if each.namespace and each.guarantee:
            least = Resources(empty[each.name].guarantee)
            kept[each.parent] = kept.get(each.parent, NOTHING) + least
    left = {name: left_of_all(empty.values(), name) for name in total}
    return {
        each.name: {
            name: left[name][empty[each.name]] + kept.get(each.name, NOTHING).amount(name)
            for name in total
        }
        for each in limits
    }


def _reserve(guaranteed: list[QuotaNode], top: QuotaNode) -> None:
    """Count all guarantees in the queues above before any of them is used.

    Guarantees that together exceed a ceiling above are cut, from the top down, so that the ceiling
    holds. A guarantee larger than the nodes is not cut: nodes may come back in a moment.
    """
    node_limits, top.ceiling = top.ceiling, {}
    for quota in sorted(guaranteed, key=lambda each: sum(1 for _ in upwards(each))):
        if quota.parent is not None:
            above = quota.parent
            quota.guarantee = {n: int(min(a, above.left(n))) for n, a in quota.guarantee.items()}
            above.take(quota.guarantee)
    top.ceiling = node_limits


def _add(sums: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount

"""What queues want that could start: the rest has no part in dividing the cluster.

A wish that nobody can fulfil now, such as a gang larger than the cluster or than its queue may
ever hold, would be given a part like any other, and nobody could use that part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from extender.model.pod import Pod, Shape
from extender.model.queue import share_name
from extender.model.resources import NOTHING, Resources
from extender.planner import accounting, quota, quota as limits
from extender.planner.accounting import Accounting
from extender.planner.policy import Vector, excess
from extender.planner.state import GangState


class StartableRequest(NamedTuple):
    """What one gang waits for."""

    #: The members that bring it to its minimum, by shape, and what they ask for together.
    least: Mapping[Shape, int]
    needs: Resources
    #: All members that wait, by shape, and what they ask for together.
    waiting: Mapping[Shape, int]
    all_of_it: Resources

    def limited_by(self, most: Vector, slots: Callable[[Shape], int]) -> Resources:
        """Add up what its members ask for, those left out that no node or no ceiling would take."""
        fitting = {
            shape: count
            for shape, count in self.waiting.items()
            if slots(shape) and not excess(shape.requests, most, shape.requests)
        }
        return self.all_of_it if len(fitting) == len(self.waiting) else _total(fitting)


def startable_request(needed: Sequence[Pod], waiting: Sequence[Pod]) -> StartableRequest:
    """Count what *waiting* members ask for, *needed* ones apart."""
    least, rest = Counter(pod.shape for pod in needed), Counter(pod.shape for pod in waiting)
    return StartableRequest(least, _total(least), rest, _total(rest))


def ceilings(stakes: Sequence[quota.QueueLimits], total: Resources) -> dict[str, Vector]:
    """Give what every queue could hold if all others were empty.

    That is by its own ceiling, by those above it, and by what is kept for others. What is kept for
    namespaces in it is its own.
    """
    empty = quota.tree((each._replace(used=NOTHING) for each in stakes), total)
    kept: dict[str, Resources] = {}
    for each in stakes:
        if each.namespace and each.guarantee:
            least = Resources(empty[each.name].least)
            kept[each.parent] = kept.get(each.parent, NOTHING) + least
    left = {name: quota.left_of_all(empty.values(), name) for name in total}
    return {
        each.name: {
            name: left[name][empty[each.name]] + kept.get(each.name, NOTHING).amount(name)
            for name in total
        }
        for each in stakes
    }


def startable(
    census: Accounting,
    ceilings: Mapping[str, Vector],
    wish_of: Callable[[GangState], StartableRequest | None],
    slots: Callable[[Shape], int],
) -> tuple[dict[str, Resources], dict[str, Resources]]:
    """Add up, for every queue that has gangs, what they use and what could start of the rest.

    The same beside it for namespaces that have a share of their own; of more than their share
    may hold nothing could start, so that is no wish of the queue. *wish_of* gives what a gang
    waits for, None when it cannot be considered; *slots* counts the pods of a shape that an empty
    cluster takes.
    """
    slots = cache(slots)
    wishes: dict[str, dict[str, int]] = {name: {} for name in census.busy}
    for name, state in census.busy.items():
        state.allocated.add_to(wishes[name])
    shares = {name: dict(use.used) for name, use in census.shares.items()}
    for gang in census.contenders.values():
        queue = gang.queue
        if not gang.gang.waiting or limits.closed(queue) is not None:
            continue
        found = wish_of(gang)
        share = gang.share
        most = ceilings[queue.name if share is None else share.name]
        if found is not None and _fits(found, gang, most, slots):
            counted = wishes[queue.name] if share is None else shares[share.name]
            found.limited_by(most, slots).add_to(counted)
    for name, wanted in _of_crowds(census, ceilings, shares).items():
        wanted.add_to(shares[name] if name in shares else wishes[name])
    held = {}
    for name, amounts in shares.items():
        use = census.shares[name]
        most, used = ceilings[name], use.used
        held[name] = Resources(
            {n: int(min(a, max(most.get(n, a), used.amount(n)))) for n, a in amounts.items()}
        )
        if use.share.queue in wishes:
            (held[name] - used).add_to(wishes[use.share.queue])
    return {name: Resources(amounts) for name, amounts in wishes.items()}, held


def _of_crowds(
    census: Accounting, ceilings: Mapping[str, Vector], shares: Container[str]
) -> dict[str, Resources]:
    """Add up what gangs without a turn want, no more than their queue or share may hold.

    They are too many to be looked at one by one; whoever asks for more than all nodes have
    together is left out.
    """
    wanted: dict[str, dict[str, int]] = {}
    for gang in census.behind.values():
        if limits.closed(census.queues[gang.queue]) is not None or accounting.is_short(gang):
            continue
        if gang.pending.fits_in(census.total):
            share = share_name(gang.queue, gang.group.namespace)
            gang.pending.add_to(wanted.setdefault(share if share in shares else gang.queue, {}))
    return {
        name: Resources({n: int(min(a, ceilings[name].get(n, a))) for n, a in amounts.items()})
        for name, amounts in wanted.items()
    }


def _fits(
    found: StartableRequest, gang: GangState, most: Vector, slots: Callable[[Shape], int]
) -> bool:
    """Ask whether a gang could start if nothing else ran, in the cluster or in its queue."""
    if any(slots(shape) < count for shape, count in found.least.items()):
        return False
    needs = found.needs + gang.allocated if gang.allocated else found.needs
    stated = gang.gang.group.min_resources
    return not excess(needs, most, needs) and not (stated and excess(stated, most, stated))


def _total(counts: Mapping[Shape, int]) -> Resources:
    return sum((shape.requests * count for shape, count in counts.items()), NOTHING)

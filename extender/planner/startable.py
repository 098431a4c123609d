"""The requests of queues that could start; other requests do not count when capacity is divided.

A gang larger than the cluster, or than its queue's ceiling, can never start. Its request would be
given a part like any other, and no gang could use that part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from extender.model.pod import Pod, Shape
from extender.model.queue import share_name
from extender.model.resources import Resources, total
from extender.planner.accounting import Accounting, is_short
from extender.planner.policy import Vector, excess
from extender.planner.state import GangState


class StartableRequest(NamedTuple):
    """What one gang waits for."""

    #: The members that bring it to its minimum, by shape, and the sum of their requests.
    least: Mapping[Shape, int]
    needs: Resources
    #: All waiting members, by shape, and the sum of their requests.
    waiting: Mapping[Shape, int]
    all_requests: Resources

    def limited_by(self, most: Vector, slots: Callable[[Shape], int]) -> Resources:
        """Return the requests of its members, without those that no node or ceiling admits."""
        fitting = {
            shape: count
            for shape, count in self.waiting.items()
            if slots(shape) and not excess(shape.requests, most, shape.requests)
        }
        return self.all_requests if len(fitting) == len(self.waiting) else _total(fitting)


def startable_request(needed: Sequence[Pod], waiting: Sequence[Pod]) -> StartableRequest:
    """Count the requests of *waiting* members, those of *needed* ones apart."""
    least, rest = Counter(pod.shape for pod in needed), Counter(pod.shape for pod in waiting)
    return StartableRequest(least, _total(least), rest, _total(rest))


def startable(
    accounting: Accounting,
    ceilings: Mapping[str, Vector],
    request_of: Callable[[GangState], StartableRequest | None],
    slots: Callable[[Shape], int],
) -> tuple[dict[str, Resources], dict[str, Resources]]:
    """Return, for every queue with gangs, what they use and what of their requests could start.

    Return the same for namespaces that have a share of their own. What exceeds the limit of a share
    could not start, so the queue does not request it. *request_of* returns what a gang waits for,
    None for an invalid one; *slots* counts the pods of a shape that fit into an empty cluster.
    """
    slots = cache(slots)
    requests: dict[str, dict[str, int]] = {name: {} for name in accounting.active}
    for name, state in accounting.active.items():
        state.allocated.add_to(requests[name])
    shares = {name: dict(use.used) for name, use in accounting.shares.items()}
    for gang in accounting.contenders.values():
        queue = gang.queue
        if not gang.gang.waiting or queue.closed() is not None:
            continue
        request = request_of(gang)
        share = gang.share
        most = ceilings[queue.name if share is None else share.name]
        if request is not None and _fits(request, gang, most, slots):
            counted = requests[queue.name] if share is None else shares[share.name]
            request.limited_by(most, slots).add_to(counted)
    for name, wanted in _of_unconsidered(accounting, ceilings, shares).items():
        wanted.add_to(shares[name] if name in shares else requests[name])
    limited = {}
    for name, amounts in shares.items():
        use = accounting.shares[name]
        most, used = ceilings[name], use.used
        limited[name] = Resources(
            {n: int(min(a, max(most.get(n, a), used.amount(n)))) for n, a in amounts.items()}
        )
        if use.share.queue in requests:
            (limited[name] - used).add_to(requests[use.share.queue])
    return {name: Resources(amounts) for name, amounts in requests.items()}, limited


def _of_unconsidered(
    accounting: Accounting, ceilings: Mapping[str, Vector], shares: Container[str]
) -> dict[str, Resources]:
    """Return the requests of gangs not considered now, at most what their queue or share may hold.

    They are too many to look at one by one. A gang that requests more than all nodes have together
    is left out.
    """
    wanted: dict[str, dict[str, int]] = {}
    for gang in accounting.over_limit.values():
        if accounting.queues[gang.queue].closed() is not None or is_short(gang):
            continue
        if gang.pending.fits_in(accounting.total):
            share = share_name(gang.queue, gang.group.namespace)
            gang.pending.add_to(wanted.setdefault(share if share in shares else gang.queue, {}))
    return {
        name: Resources({n: int(min(a, ceilings[name].get(n, a))) for n, a in amounts.items()})
        for name, amounts in wanted.items()
    }


def _fits(
    request: StartableRequest, gang: GangState, most: Vector, slots: Callable[[Shape], int]
) -> bool:
    """Return whether a gang could start if nothing else ran, in the cluster and in its queue."""
    if any(slots(shape) < count for shape, count in request.least.items()):
        return False
    needs = request.needs + gang.allocated if gang.allocated else request.needs
    stated = gang.gang.group.min_resources
    return not excess(needs, most, needs) and not (stated and excess(stated, most, stated))


def _total(counts: Mapping[Shape, int]) -> Resources:
    return total(shape.requests * count for shape, count in counts.items())

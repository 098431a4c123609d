"""Reservations for gangs that wait too long.

A large gang can wait for ever while smaller ones take every node that becomes free. So after a
while capacity is *reserved* for it: on nodes that together could hold it, its part of what is free
is held, and others may use only the rest. This is conservative backfill: no gang can delay it,
whatever runs elsewhere. A reservation ends by itself after a time, so that a gang whose nodes never
become free does not hold them for ever. The gang gets another one when it has waited as long again.

The plan has no memory: the age of a gang follows from the time at which its minimum was complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import Shape
from extender.planner.capacity_forecast import occupied_until
from extender.planner.free_capacity import PortUsage
from extender.planner.plugin import Round
from extender.planner.policy import Starvation
from extender.planner.session import Demand, Session
from extender.planner.state import GangState

#: Shapes in the order in which they are placed, each with its number of pods.
_Groups = tuple[tuple[Shape, int], ...]
#: So many different gangs of one namespace are laid out without success in one cycle. Its other
#: gangs then count as without a layout too, so that the cost has a bound.
_MOST_LAYOUTS = 8


def starving_longest(session: Session, gangs: list[GangState]) -> list[GangState]:
    """Return the gangs that have waited long enough for a reservation, the longest first.

    Only the first gang of each queue counts, and only queues of the highest priority: a gang behind
    another one in order would lose its capacity again to that one. A gang ahead that could not use
    any capacity is skipped.
    """
    if not any(has_starved_long(session, gang) for gang in gangs):
        return []
    has_shares = bool(session.accounting.shares)
    candidates = [
        gang
        for gang in gangs
        if session.plugins.missing_members(gang)
        and session.accounting.may_claim(gang.gang)
        and not (has_shares and _exceeds_share(session, gang))
    ]
    first_by_queue: dict[str, GangState] = {}
    for gang in sorted(candidates, key=session.gang_key):
        if gang.queue.name not in first_by_queue and _fits_in_the_end(session, gang):
            first_by_queue[gang.queue.name] = gang
    open_gangs = [gang for gang in first_by_queue.values() if _is_open_for(session, gang)]
    highest = max((gang.queue.queue.priority for gang in open_gangs), default=0)
    starving = [
        gang
        for gang in open_gangs
        if gang.queue.queue.priority == highest and has_starved_long(session, gang)
    ]
    return sorted(starving, key=lambda gang: (complete_since(gang), gang.key))


def gangs_that_may_evict(session: Session) -> list[list[GangState]]:
    """Return the gangs that pods may be evicted for, by queue, both in order.

    A gang that could not use capacity comes after one that has waited long and could.
    """
    by_queue: dict[str, list[GangState]] = {}
    for gang in session.accounting.contenders.values():
        if gang.is_pending or not gang.gang.waiting or not session.may_evict_for(gang):
            continue
        if session.plugins.invalid_reason(gang) is None and session.accounting.may_claim(gang.gang):
            by_queue.setdefault(gang.queue.name, []).append(gang)
    for _, gangs in sorted(by_queue.items()):
        gangs.sort(key=session.gang_key)
        first = next((gang for gang in gangs if not _can_never_fit(session, gang)), gangs[0])
        if is_first(session, first):
            gangs.remove(first)
            gangs.insert(0, first)
    return sorted(by_queue.values(), key=lambda gangs: session.queue_key(gangs[0].queue))


def is_first(session: Session, gang: GangState) -> bool:
    """Return whether *gang*, the first of its queue, goes ahead because it waited long."""
    is_long = has_starved_long(session, gang) and not _exceeds_share(session, gang)
    return is_long and _fits_in_the_end(session, gang)


def _exceeds_share(session: Session, gang: GangState) -> bool:
    """Return whether its namespace has too little left of the queue: capacity would not help it."""
    if gang.share is None:
        return False
    return session.plugins.exceeds_share(gang, session.demand(gang).total)


def _can_never_fit(session: Session, gang: GangState) -> bool:
    """Return whether *gang* has waited long for what no node could ever give it."""
    return has_starved_long(session, gang) and not _fits_in_the_end(session, gang)


def _fits_in_the_end(session: Session, gang: GangState) -> bool:
    """Return whether nodes could hold all that *gang* lacks if all gangs left them."""
    return session.once(_InTheEnd).holds(session.demand(gang))


class _InTheEnd:
    """The nodes as they would be if all gangs left them.

    That is less than an empty cluster: pods of other schedulers stay.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        table = session.snapshot.nodes
        self._capacity: Amounts = table.allocatable - np.maximum(
            session.once(occupied_until).stays - table.releasing, 0
        )
        self._portless = replace(table, ports={})
        self._slots = cache(lambda shape: int(self._count(self._capacity, shape).sum()))
        self._known: dict[_Groups, bool] = {}
        #: How many layouts were not found, by namespace.
        self._not_found = Counter[str]()

    def holds(self, demand: Demand) -> bool:
        """Return whether they would hold all of *demand* at once, whatever else waits."""
        groups = tuple([(shape, len(pods)) for shape, pods in demand.by_shape.items()])
        if any(self._slots(shape) < number for shape, number in groups):
            return False
        namespace = demand.gang.gang.group.namespace
        if groups not in self._known and self._not_found[namespace] < _MOST_LAYOUTS:
            self._known[groups] = self._find_layout(groups)
            self._not_found[namespace] += not self._known[groups]
        return self._known.get(groups, False)

    def _find_layout(self, groups: _Groups) -> bool:
        """Try greedy layouts: the largest shapes first, or those with the fewest slots."""
        if len(groups) < 2:
            return True  # counting slots was enough
        rare_first = sorted(groups, key=lambda group: self._slots(group[0]) / group[1])
        ways = product((groups, rare_first), (1, -1))
        return any(self._lay_out(each, sign) for each, sign in ways)

    def _lay_out(self, groups: Iterable[tuple[Shape, int]], sign: int) -> bool:
        """Fill nodes that fit few other shapes first, the tightest (*sign* 1) or emptiest of these.

        Each shape in turn is given all its nodes; False if there are too few.
        """
        capacity, ports = self._capacity.copy(), PortUsage(self._portless)
        wanted = sum((self._count(capacity, shape) > 0).astype(np.intp) for shape, _ in groups)
        for shape, number in groups:
            wanted -= self._count(self._capacity, shape) > 0
            counts = self._count(capacity, shape)
            if shape.host_ports:
                counts[ports.conflicting(shape)] = 0
            rows = np.flatnonzero(counts)
            rows = rows[np.lexsort((sign * counts[rows], wanted[rows]))]
            spread = np.repeat(rows, counts[rows])[:number]
            if len(spread) < number:
                return False
            np.subtract.at(capacity, spread, self._session.capacity.row(shape))
            ports.reserve(shape, spread.tolist())
        return True

    def _count(self, capacity: Amounts, shape: Shape) -> Amounts:
        """Count the pods of *shape* on every node; each host port is free once there."""
        nodes = self._session.nodes
        counts: Amounts = np.where(nodes.usable(shape), nodes.fitting(capacity, shape), 0)
        return counts


def _is_open_for(session: Session, gang: GangState) -> bool:
    """Return whether its queue admits *gang* now, or would if others had not taken the capacity."""
    demand = session.demand(gang)
    if not demand.pods:
        return True  # all it needs is being released
    is_entitled = session.plugins.is_entitled(gang, demand.total)
    return is_entitled or may_be_preferred(session, demand)


def may_be_preferred(session: Session, demand: Demand) -> bool:
    """Return whether no other queue has a right to reclaim the capacity at once.

    While queues are served within their deserved amounts, that is true only for a gang that stays
    within its queue's.
    """
    if not demand.is_allowed(session):
        return False
    if session.round is Round.OVERSHOOT:
        return True
    return session.plugins.is_preemptive(demand.gang, Shape(requests=demand.total))


def has_starved_long(session: Session, gang: GangState) -> bool:
    """Return whether *gang* lacks members and has waited long enough for a reservation."""
    starvation = session.policy.starvation
    if not starvation.after_s or not session.plugins.missing_members(gang):
        return False
    return is_due(session.snapshot.now - complete_since(gang), starvation)


def complete_since(gang: GangState) -> float:
    """Return when the gang had its minimum of members for the first time."""

    def since() -> float:
        created = sorted(pod.created for pod in gang.gang.pods)
        last = created[min(max(gang.min_member, 1), len(created)) - 1]
        return max(last, gang.created)

    return gang.gang.memo.recall("complete since", since)


def is_due(age_s: float, starvation: Starvation) -> bool:
    """Return whether a gang that waits for *age_s* has a reservation now."""
    beyond = age_s - starvation.after_s
    return beyond >= 0 and beyond % (starvation.after_s + starvation.hold_s) < starvation.hold_s


def hold_for_starving(session: Session, demand: Demand) -> bool:
    """Reserve capacity for *demand* on nodes that could hold it; False when no nodes could."""
    amounts_by_row = _amounts_by_row(session, demand)
    if amounts_by_row is None:
        return False
    session.holds[demand.gang.key] = [
        session.capacity.hold(row, amounts) for row, amounts in sorted(amounts_by_row.items())
    ]
    return True


@contextmanager
def without_its_hold(session: Session, gang: GangState) -> Iterator[None]:
    """Let *gang* use its own reservation; what it does not take is reserved again."""
    holds = session.holds.pop(gang.key, [])
    for each in holds:
        session.capacity.release(each)
    yield
    if holds and session.plugins.missing_members(gang) > len(gang.pipelined):
        session.holds[gang.key] = holds
        for each in holds:
            session.capacity.hold_again(each)


def _amounts_by_row(session: Session, demand: Demand) -> dict[int, Amounts] | None:
    """Return the nodes where it will fit first: much free already, and enough in the end.

    Capacity used by gangs that end soon counts as free. Otherwise backfilled gangs would move the
    reservation to other nodes.
    """
    stays, brief = session.once(occupied_until)
    capacity = session.snapshot.nodes.allocatable - stays
    soon = session.capacity.free + brief
    amounts_by_row: dict[int, Amounts] = {}
    for shape, pods in demand.by_shape.items():
        need, left = session.capacity.row(shape), len(pods)
        in_the_end = session.nodes.count(capacity, shape)
        now = np.minimum(session.nodes.count(soon, shape), in_the_end)
        for row in np.lexsort((-in_the_end, -now)).tolist():
            count = min(left, int(in_the_end[row]))
            if count:
                amounts_by_row[row] = amounts_by_row.get(row, 0) + need * count
                capacity[row] -= need * count
                left -= count
        if left:
            return None
    return amounts_by_row

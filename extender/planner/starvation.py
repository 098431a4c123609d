"""Room for gangs that keep losing their turn.

A large gang can wait for ever while smaller ones take every node that becomes free. So after a
while its room is *fenced*: on nodes that together could hold it, what is idle is kept for it, and
others may only use what it does not need there. That is conservative backfill: nobody can delay
it, whatever runs elsewhere. A fence ends by itself after a time, so that a gang whose nodes never
become free does not hold them for ever; it gets another one when it has waited as long again.

The plan has no memory: the age of a gang follows from when its minimum was complete.
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
from extender.model.resources import total
from extender.planner.capacity_forecast import seats
from extender.planner.free_capacity import PortUsage
from extender.planner.node_ranking import pods_that_fit
from extender.planner.plugin import Round
from extender.planner.policy import Starvation
from extender.planner.session import Demand, Session, needed_pods
from extender.planner.state import GangState

#: Shapes in the order in which they are given room, each with how many pods of it there are.
_Groups = tuple[tuple[Shape, int], ...]
#: So many different gangs of one namespace are laid out in vain in one cycle; its others of
#: different members are passed over like these, and it costs no more however many there are.
_MOST_IN_VAIN = 8


def starving_longest(session: Session, gangs: list[GangState]) -> list[GangState]:
    """Name the gangs that have waited long enough to have room kept, the longest first.

    Only the first of each queue, and only of the queues of the highest priority: whoever is behind
    another by rule would lose its room again to the one ahead. But who is ahead and could do
    nothing with room is in nobody's way.
    """
    if not any(has_starved_long(session, gang) for gang in gangs):
        return []
    has_shares = bool(session.accounting.shares)
    asking = [
        gang
        for gang in gangs
        if session.opinions.missing_members(gang)
        and session.accounting.may_claim(gang.gang)
        and not (has_shares and _is_kept_out(session, gang))
    ]
    heads: dict[str, GangState] = {}
    for gang in sorted(asking, key=session.gang_key):
        if gang.queue.name not in heads and _could_be_seated(session, gang):
            heads[gang.queue.name] = gang
    helped = [gang for gang in heads.values() if _is_open_to(session, gang)]
    highest = max((gang.queue.queue.priority for gang in helped), default=0)
    aged = [
        gang
        for gang in helped
        if gang.queue.queue.priority == highest and has_starved_long(session, gang)
    ]
    return sorted(aged, key=lambda gang: (complete_since(gang), gang.key))


def starving_gangs(session: Session) -> list[list[GangState]]:
    """List the gangs others may have to leave for, by queue, both in order.

    Who could do nothing with room comes after whoever waited long and could.
    """
    by_queue: dict[str, list[GangState]] = {}
    for gang in session.accounting.contenders.values():
        if gang.is_pending or not gang.gang.waiting or not session.is_starving(gang):
            continue
        if session.opinions.invalid_reason(gang) is None and session.accounting.may_claim(
            gang.gang
        ):
            by_queue.setdefault(gang.queue.name, []).append(gang)
    for _, gangs in sorted(by_queue.items()):
        gangs.sort(key=session.gang_key)
        first = next((gang for gang in gangs if not _waits_in_vain(session, gang)), gangs[0])
        if is_first(session, first):
            gangs.remove(first)
            gangs.insert(0, first)
    return sorted(by_queue.values(), key=lambda gangs: session.queue_key(gangs[0].queue))


def is_first(session: Session, gang: GangState) -> bool:
    """Ask whether *gang*, the first of its queue, waited so long that others let it go ahead."""
    is_long = has_starved_long(session, gang) and not _is_kept_out(session, gang)
    return is_long and _could_be_seated(session, gang)


def _is_kept_out(session: Session, gang: GangState) -> bool:
    """Ask whether its namespace has too little left of the queue: no room would help it."""
    if gang.share is None:
        return False
    needs = total(pod.requests for pod in needed_pods(session, gang))
    return session.opinions.exceeds_share(gang, needs)


def _waits_in_vain(session: Session, gang: GangState) -> bool:
    """Ask whether *gang* has waited long for what no node could ever give it."""
    return has_starved_long(session, gang) and not _could_be_seated(session, gang)


def _could_be_seated(session: Session, gang: GangState) -> bool:
    """Ask whether nodes could hold all that *gang* lacks, had all gangs left them."""
    known = session.shared.get("in the end")
    if not isinstance(known, _InTheEnd):
        known = session.shared["in the end"] = _InTheEnd(session)
    return known.holds(Demand(gang, needed_pods(session, gang)))


class _InTheEnd:
    """The nodes as they would be had all gangs left them.

    Less is there than in an empty cluster: pods of other schedulers stay.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        table = session.snapshot.nodes
        self._room: Amounts = table.allocatable - np.maximum(
            seats(session).stays - table.releasing, 0
        )
        self._portless = replace(table, ports={})
        self._slots = cache(lambda shape: int(self._count(self._room, shape).sum()))
        self._known: dict[_Groups, bool] = {}
        #: How many layouts were looked for in vain, by namespace.
        self._in_vain = Counter[str]()

    def holds(self, demand: Demand) -> bool:
        """Ask whether they would hold all of *demand* together, whoever else waits."""
        groups = tuple([(shape, len(pods)) for shape, pods in demand.by_shape.items()])
        if any(self._slots(shape) < number for shape, number in groups):
            return False
        namespace = demand.gang.gang.group.namespace
        if groups not in self._known and self._in_vain[namespace] < _MOST_IN_VAIN:
            self._known[groups] = self._find_room(groups)
            self._in_vain[namespace] += not self._known[groups]
        return self._known.get(groups, False)

    def _find_room(self, groups: _Groups) -> bool:
        """Lay them out greedily in some ways: what is large first, or what finds few places."""
        if len(groups) < 2:
            return True  # counting was enough
        rare_first = sorted(groups, key=lambda group: self._slots(group[0]) / group[1])
        ways = product((groups, rare_first), (1, -1))
        return any(self._lay_out(each, sign) for each, sign in ways)

    def _lay_out(self, groups: Iterable[tuple[Shape, int]], sign: int) -> bool:
        """Fill nodes that few other shapes fit first, of these the tightest (*sign* 1) or roomiest.

        One after the other each shape is given all its places, or there are too few.
        """
        room, ports = self._room.copy(), PortUsage(self._portless)
        wanted = sum((self._count(room, shape) > 0).astype(np.intp) for shape, _ in groups)
        for shape, number in groups:
            wanted -= self._count(self._room, shape) > 0
            counts = self._count(room, shape)
            if shape.host_ports:
                counts[ports.clashing(shape)] = 0
            rows = np.flatnonzero(counts)
            rows = rows[np.lexsort((sign * counts[rows], wanted[rows]))]
            spread = np.repeat(rows, counts[rows])[:number]
            if len(spread) < number:
                return False
            np.subtract.at(room, spread, self._session.capacity.row(shape))
            ports.reserve(shape, spread.tolist())
        return True

    def _count(self, room: Amounts, shape: Shape) -> Amounts:
        """Count the pods of *shape* on every node; a host port is free once there."""
        need = self._session.capacity.need(shape)
        if need is None:
            return np.zeros(len(room), dtype=np.int64)
        counts = pods_that_fit(room, need)
        masked: Amounts = np.where(
            self._session.places.usable(shape),
            np.minimum(counts, 1) if shape.host_ports else counts,
            0,
        )
        return masked


def _is_open_to(session: Session, gang: GangState) -> bool:
    """Ask whether its queue lets *gang* have room now, or would if others had not taken it."""
    demand = Demand(gang, needed_pods(session, gang))
    if not demand.pods:
        return True  # all it needs is on its way
    is_entitled = session.opinions.is_entitled(gang, demand.total)
    return is_entitled or may_be_preferred(session, demand)


def may_be_preferred(session: Session, demand: Demand) -> bool:
    """Ask whether nobody could rightly take the room back at once.

    As long as queues are served within their due, only a gang that stays within its own.
    """
    if not demand.is_allowed(session):
        return False
    if session.round is Round.OVERSHOOT:
        return True
    return session.opinions.is_preemptive(demand.gang, Shape(requests=demand.total))


def has_starved_long(session: Session, gang: GangState) -> bool:
    """Ask whether *gang* lacks members and has waited long enough to have room kept."""
    patience = session.policy.starvation
    if not patience.after_s or not session.opinions.missing_members(gang):
        return False
    return is_due(session.snapshot.now - complete_since(gang), patience)


def complete_since(gang: GangState) -> float:
    """Tell when the gang had its minimum of members for the first time."""

    def since() -> float:
        created = sorted(pod.created for pod in gang.gang.pods)
        last = created[min(max(gang.min_member, 1), len(created)) - 1]
        return max(last, gang.created)

    return gang.gang.memo.recall("complete since", since)


def is_due(age_s: float, patience: Starvation) -> bool:
    """Ask whether a gang that waits for *age_s* has room kept now."""
    beyond = age_s - patience.after_s
    return beyond >= 0 and beyond % (patience.after_s + patience.hold_s) < patience.hold_s


def reserve_for_starving(session: Session, demand: Demand) -> bool:
    """Keep room for *demand* on nodes that could hold it; False when no nodes could."""
    places = _places(session, demand)
    if places is None:
        return False
    session.fenced[demand.gang.key] = [
        session.capacity.reservation(row, amounts) for row, amounts in sorted(places.items())
    ]
    return True


@contextmanager
def without_its_reservation(session: Session, gang: GangState) -> Iterator[None]:
    """Let *gang* use the room kept for it; what it does not take is kept again."""
    fences = session.fenced.pop(gang.key, [])
    for each in fences:
        session.capacity.release(each)
    yield
    if fences and session.opinions.missing_members(gang) > len(gang.pipelined):
        session.fenced[gang.key] = fences
        for each in fences:
            session.capacity.hold(each)


def _places(session: Session, demand: Demand) -> dict[int, Amounts] | None:
    """Choose the nodes where it will fit first: much idle already, and enough in the end.

    What the brief use is as good as idle: else those who are let in meanwhile would drive it away.
    """
    stays, brief = seats(session)
    room = session.snapshot.nodes.allocatable - stays
    soon = session.capacity.idle + brief
    places: dict[int, Amounts] = {}
    for shape, pods in demand.by_shape.items():
        need, left = session.capacity.row(shape), len(pods)
        in_the_end = session.places.count(room, shape)
        now = np.minimum(session.places.count(soon, shape), in_the_end)
        for row in np.lexsort((-in_the_end, -now)).tolist():
            count = min(left, int(in_the_end[row]))
            if count:
                places[row] = places.get(row, 0) + need * count
                room[row] -= need * count
                left -= count
        if left:
            return None
    return places

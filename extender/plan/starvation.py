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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import cast

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import Shape
from extender.model.resources import total
from extender.plan.demand import Demand, needed_pods
from extender.plan.endings import seats
from extender.plan.plugin import Round
from extender.plan.policy.options import Starvation
from extender.plan.room.slots import times
from extender.plan.room.state import GangState
from extender.plan.session import Session


def starving_longest(session: Session, gangs: list[GangState]) -> list[GangState]:
    """Name the gangs that have waited long enough to have room kept, the longest first.

    Only the first of each queue, and only of the queues of the highest priority: whoever is behind
    another by rule would lose its room again to the one ahead. But who is ahead and could do
    nothing with room is in nobody's way.
    """
    if not any(is_starving_long(session, gang) for gang in gangs):
        return []
    heads: dict[str, GangState] = {}
    has_shares = bool(session.census.shares)
    for gang in gangs:
        head = heads.get(gang.queue.name)
        if (
            session.opinions.lacking(gang)
            and session.census.may_claim(gang.gang)
            and not (has_shares and _is_kept_out(session, gang))
            and (head is None or session.gang_key(gang) < session.gang_key(head))
            and _could_be_seated(session, gang)
        ):
            heads[gang.queue.name] = gang
    helped = [gang for gang in heads.values() if _is_open_to(session, gang)]
    highest = max((gang.queue.queue.priority for gang in helped), default=0)
    aged = [
        gang
        for gang in helped
        if gang.queue.queue.priority == highest and is_starving_long(session, gang)
    ]
    return sorted(aged, key=lambda gang: (complete_since(gang), gang.key))


def starving_gangs(session: Session) -> list[list[GangState]]:
    """List the gangs others may have to leave for, by queue, both in order."""
    by_queue: dict[str, list[GangState]] = {}
    for gang in session.census.contenders.values():
        if gang.is_pending or not gang.gang.waiting or not session.is_starving(gang):
            continue
        if session.opinions.problem_of(gang) is None and session.census.may_claim(gang.gang):
            by_queue.setdefault(gang.queue.name, []).append(gang)
    for name, gangs in by_queue.items():
        gangs.sort(key=session.gang_key)
        first = next((gang for gang in gangs if not _waits_in_vain(session, gang)), gangs[0])
        is_long = is_starving_long(session, first) and not _is_kept_out(session, first)
        if is_long and _could_be_seated(session, first):
            # What the others could free would be kept for this one.
            by_queue[name] = [first]
    return sorted(by_queue.values(), key=lambda gangs: session.queue_key(gangs[0].queue))


def _is_kept_out(session: Session, gang: GangState) -> bool:
    """Ask whether its namespace has too little left of the queue: no room would help it."""
    if gang.share is None:
        return False
    needs = total(pod.requests for pod in needed_pods(session, gang))
    return session.opinions.is_kept_out(gang, needs)


def _waits_in_vain(session: Session, gang: GangState) -> bool:
    """Ask whether *gang* has waited long for what no node could ever give it."""
    return is_starving_long(session, gang) and not _could_be_seated(session, gang)


def _could_be_seated(session: Session, gang: GangState) -> bool:
    """Ask whether nodes could hold what *gang* lacks, shape by shape, had all gangs left them.

    Less is there than in an empty cluster: pods of other schedulers stay.
    """
    known = session.shared.setdefault("in the end", cache(partial(_in_the_end, session)))
    count = cast(Callable[[Shape], int], known)
    shapes = Counter(pod.shape for pod in needed_pods(session, gang))
    return all(count(shape) >= number for shape, number in shapes.items())


def _in_the_end(session: Session, shape: Shape) -> int:
    """Count the pods of *shape* that would fit then; on every node a host port is free once."""
    table, need = session.snapshot.nodes, session.room.need(shape)
    if need is None:
        return 0
    room = table.allocatable - np.maximum(seats(session).stays - table.releasing, 0)
    counts = times(room, need)[session.places.usable(shape)]
    return int((np.minimum(counts, 1) if shape.host_ports else counts).sum())


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
    if session.round is Round.REST:
        return True
    return session.opinions.is_preemptive(demand.gang, Shape(requests=demand.total))


def is_starving_long(session: Session, gang: GangState) -> bool:
    """Ask whether *gang* lacks members and has waited long enough to have room kept."""
    patience = session.policy.starvation
    if not patience.after_s or not session.opinions.lacking(gang):
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


def fence(session: Session, demand: Demand) -> bool:
    """Keep room for *demand* on nodes that could hold it; False when no nodes could."""
    places = _places(session, demand)
    if places is None:
        return False
    session.fenced[demand.gang.key] = [
        session.room.fence(row, amounts) for row, amounts in sorted(places.items())
    ]
    return True


@contextmanager
def without_its_fence(session: Session, gang: GangState) -> Iterator[None]:
    """Let *gang* use the room kept for it; what it does not take is kept again."""
    fences = session.fenced.pop(gang.key, [])
    for each in fences:
        session.room.take_down(each)
    yield
    if fences and session.opinions.lacking(gang) > len(gang.pipelined):
        session.fenced[gang.key] = fences
        for each in fences:
            session.room.put_up(each)


def _places(session: Session, demand: Demand) -> dict[int, Amounts] | None:
    """Choose the nodes where it will fit first: much idle already, and enough in the end.

    What the brief use is as good as idle: else those who are let in meanwhile would drive it away.
    """
    stays, brief = seats(session)
    room = session.snapshot.nodes.allocatable - stays
    soon = session.room.idle + brief
    places: dict[int, Amounts] = {}
    for shape, pods in demand.by_shape.items():
        need, left = session.room.row(shape), len(pods)
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

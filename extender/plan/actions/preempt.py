"""preempt: in one queue the less important make room for the more important.

First between gangs, then inside a gang. Nothing starts here: whoever got room promised starts in
a later cycle, when it is really free.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.plan.plugin import Candidate
from extender.plan.room.state import GangState
from extender.plan.session import Session
from extender.plan.starvation import is_starving_long
from extender.plan.victims.occupants import Occupants, occupants_of
from extender.plan.victims.room_maker import RoomMaker
from extender.plan.victims.volcano_victims import NodeByNode


def preempt(session: Session) -> None:
    """Let starving gangs take the place of others in their queue."""
    starving = starving_gangs(session)
    if not starving:
        return
    occupants = occupants_of(session)
    for gangs in starving:
        if session.rules.gangs_leave_whole:
            _whole_gangs(session, occupants, gangs)
        else:
            _pod_by_pod(session, occupants, gangs)


def starving_gangs(session: Session) -> list[list[GangState]]:
    """List the gangs others may have to leave for, by queue, both in order."""
    by_queue: dict[str, list[GangState]] = {}
    for gang in session.census.contenders.values():
        if gang.is_pending or not gang.gang.waiting or not session.is_starving(gang):
            continue
        if session.opinions.problem_of(gang) is None:
            by_queue.setdefault(gang.queue.name, []).append(gang)
    for name, gangs in by_queue.items():
        gangs.sort(key=session.gang_key)
        if is_starving_long(session, gangs[0]):
            # What the others could free would be kept for this one.
            by_queue[name] = gangs[:1]
    return sorted(by_queue.values(), key=lambda gangs: session.queue_key(gangs[0].queue))


def _whole_gangs(session: Session, occupants: Occupants, gangs: list[GangState]) -> None:
    maker = RoomMaker(session, occupants, "preempt")
    for gang in gangs:
        maker.make_room(gang, _others_in_queue(gang))
    for gang in gangs:
        maker.make_room_inside(gang)


def _others_in_queue(gang: GangState) -> Callable[[GangState], bool]:
    return lambda other: other.queue is gang.queue and other is not gang


def _pod_by_pod(session: Session, occupants: Occupants, gangs: list[GangState]) -> None:
    way = NodeByNode(session, occupants)
    for gang in gangs:
        _between_gangs(session, way, gang)
    for gang in gangs:
        _inside_a_gang(session, way, gang)


def _between_gangs(session: Session, way: NodeByNode, gang: GangState) -> None:
    with session.room.trial(gang) as trial:
        for pod in session.waiting_tasks(gang):
            if not session.is_starving(gang):
                break

            def others(candidate: Candidate, *, empty: bool = session.is_empty(pod.shape)) -> bool:
                same_queue = candidate.gang.queue is gang.queue and candidate.gang is not gang
                return same_queue and _may_be_asked(session, candidate, empty=empty)

            way.preempt(gang, pod, others)
        if session.opinions.is_pipelined(gang):
            trial.keep()


def _inside_a_gang(session: Session, way: NodeByNode, gang: GangState) -> None:
    for pod in session.waiting_tasks(gang):

        def siblings(candidate: Candidate, *, empty: bool = session.is_empty(pod.shape)) -> bool:
            return candidate.gang is gang and _may_be_asked(session, candidate, empty=empty)

        with session.room.trial(gang) as trial:
            if not way.preempt(gang, pod, siblings):
                return
            trial.keep()


def _may_be_asked(session: Session, candidate: Candidate, *, empty: bool) -> bool:
    """Ask whether a pod may be considered; one without requests only displaces its like."""
    return candidate.pod.preemptable and (not empty or session.is_empty(candidate.pod.shape))

"""reclaim: queues that use more than their due give room back to queues that have less."""

from __future__ import annotations

from functools import partial

from extender.plan.actions.preempt import starving_gangs
from extender.plan.plugin import Candidate
from extender.plan.room.state import GangState
from extender.plan.session import Session
from extender.plan.victims.occupants import is_running, occupants_of
from extender.plan.victims.room_maker import RoomMaker
from extender.plan.victims.volcano_victims import NodeByNode


def reclaim(session: Session) -> None:
    """Let starving gangs take room back from other queues."""
    starving = starving_gangs(session)
    if not starving:
        return
    occupants = occupants_of(session)
    maker = RoomMaker(session, occupants, "reclaim")
    way = NodeByNode(session, occupants)
    for gangs in starving:
        if session.opinions.is_overused(gangs[0].queue):
            continue
        for gang in gangs:
            if session.rules.gangs_leave_whole:
                maker.make_room(gang, partial(_may_lose, gang))
            else:
                _pod_by_pod(session, way, gang)


def _pod_by_pod(session: Session, way: NodeByNode, gang: GangState) -> None:
    def others(candidate: Candidate) -> bool:
        asked = is_running(candidate) and candidate.pod.preemptable
        return asked and _may_lose(gang, candidate.gang)

    with session.room.trial(gang) as trial:
        for pod in session.waiting_tasks(gang):
            if not session.is_starving(gang):
                break
            if pod.may_preempt and session.opinions.is_preemptive(gang, pod.shape):
                way.reclaim(gang, pod, others)
        if session.opinions.is_pipelined(gang):
            trial.keep()


def _may_lose(gang: GangState, other: GangState) -> bool:
    return other.queue is not gang.queue and other.queue.queue.reclaimable

"""backfill: members that ask for nothing but a place go wherever there is one."""

from __future__ import annotations

from extender.model.pod import Pod
from extender.model.reason import Problem
from extender.model.resources import Resources
from extender.planner.accounting import without_gated
from extender.planner.session import Session
from extender.planner.state import GangState


def backfill(session: Session) -> None:
    """Place best-effort members of gangs that may start, queue by queue, gang by gang."""
    for gang, pods in in_order(session):
        with session.capacity.trial(gang) as trial:
            for pod in pods:
                if session.opinions.may_allocate(gang, pod.shape):
                    place(session, gang, pod)
            if session.opinions.is_ready(gang) and session.occupied(gang) is None:
                gang.commit()
                trial.keep()


def in_order(session: Session) -> list[tuple[GangState, list[Pod]]]:
    """List the gangs with best-effort members that wait, and those members in task order."""
    gangs = [
        gang
        for gang in session.accounting.contenders.values()
        if not gang.is_pending
        and _has_empty(session, gang)
        and session.opinions.invalid_reason(gang) is None
    ]
    gangs.sort(key=lambda gang: (session.queue_key(gang.queue), session.gang_key(gang)))
    found = []
    for gang in gangs:
        _stop_waiting_for_room(session, gang)
        pods = [pod for pod in session.waiting_tasks(gang) if session.is_empty(pod.shape)]
        if pods:
            found.append((gang, pods))
    return found


def _has_empty(session: Session, gang: GangState) -> bool:
    if len(gang.placed) == len(gang.gang.waiting):
        return False
    return any(session.is_empty(pod.shape) for pod in gang.gang.waiting)


def _stop_waiting_for_room(session: Session, gang: GangState) -> None:
    """Take back what was promised to best-effort members: they need nobody to leave."""
    for pod, row in list(gang.pipelined):
        if session.is_empty(pod.shape):
            counts = not session.rules.members_need_nodes
            session.capacity.unpipeline(gang, pod, row, counts=counts)


def place(session: Session, gang: GangState, pod: Pod) -> None:
    """Give *pod* the best place there is, if there is one."""
    rows = session.places.ranking(pod.shape).best(1)
    if rows:
        session.capacity.place(gang, [pod], rows)


def enqueue(session: Session) -> None:
    """Let pending gangs in, queue by queue; one that must stay out does not stop the others."""
    outside = [gang for gang in session.accounting.contenders.values() if gang.is_pending]
    queues = {gang.queue.name: session.queue_key(gang.queue) for gang in outside}
    for gang in sorted(outside, key=lambda g: (queues[g.queue.name], session.gang_key(g))):
        _let_in(session, gang)


def _let_in(session: Session, gang: GangState) -> None:
    least = gang.gang.group.min_resources
    if least is not None:
        gang.blocked = session.opinions.enqueue_refusal(gang) or _share_is_full(
            session, gang, least
        )
    if gang.blocked is None:
        session.opinions.notify_enqueued(gang)
        if least is not None and gang.share is not None:
            share = session.accounting.shares[gang.share.name]
            share.inqueue = share.inqueue + without_gated(gang.gang, least)
        gang.enqueue()


def _share_is_full(session: Session, gang: GangState, least: Resources) -> Problem | None:
    """Say that its namespace could not hold *least* beside what it was promised already.

    Else gangs that only their namespace keeps out would keep others out of the queue.
    """
    share = gang.share
    if share is None:
        return None
    name = share.lacks(session.accounting.shares[share.name].inqueue + least)
    return share.at_most(name, least.amount(name)) if name else None

"""backfill places members without requests."""

from __future__ import annotations

from extender.model.pod import Pod
from extender.planner.session import Session
from extender.planner.state import GangState


def backfill(session: Session) -> None:
    """Place best-effort members of gangs that may start, queue by queue, gang by gang."""
    for gang, pods in release_best_effort(session):
        with session.capacity.trial(gang) as trial:
            for pod in pods:
                if session.plugins.may_allocate(gang, pod.shape):
                    place(session, gang, pod)
            if session.plugins.is_ready(gang) and session.blocked_by_terminating(gang) is None:
                gang.commit()
                trial.keep()


def release_best_effort(session: Session) -> list[tuple[GangState, list[Pod]]]:
    """Release the reservations of best-effort members: they need no evictions.

    Return their gangs in order, each with its waiting best-effort members in task order.
    """
    gangs = [
        gang
        for gang in session.accounting.contenders.values()
        if not gang.is_pending
        and _has_best_effort(session, gang)
        and session.plugins.invalid_reason(gang) is None
    ]
    gangs.sort(key=lambda gang: (session.queue_key(gang.queue), session.gang_key(gang)))
    found = []
    for gang in gangs:
        for pod, row in list(gang.pipelined):
            if session.is_best_effort(pod.shape):
                counts = not session.rules.members_need_nodes
                session.capacity.unpipeline(gang, pod, row, counts=counts)
        pods = [pod for pod in session.waiting_tasks(gang) if session.is_best_effort(pod.shape)]
        if pods:
            found.append((gang, pods))
    return found


def _has_best_effort(session: Session, gang: GangState) -> bool:
    if len(gang.placed) == len(gang.gang.waiting):
        return False
    return any(session.is_best_effort(pod.shape) for pod in gang.gang.waiting)


def place(session: Session, gang: GangState, pod: Pod) -> None:
    """Place *pod* on the best node, if any takes it."""
    rows = session.nodes.ranking(pod.shape).best(1)
    if rows:
        session.capacity.place(gang, [pod], rows)

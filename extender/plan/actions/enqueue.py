"""enqueue: let gangs into their queues while what they need at least could be held."""

from __future__ import annotations

from extender.plan.room.state import GangState
from extender.plan.session import Session


def enqueue(session: Session) -> None:
    """Let pending gangs in, queue by queue; one that must stay out does not stop the others."""
    outside = [gang for gang in session.census.contenders.values() if gang.is_pending]
    queues = {gang.queue.name: session.queue_key(gang.queue) for gang in outside}
    for gang in sorted(outside, key=lambda g: (queues[g.queue.name], session.gang_key(g))):
        _let_in(session, gang)


def _let_in(session: Session, gang: GangState) -> None:
    if gang.gang.group.min_resources is not None:
        gang.blocked = session.opinions.refusal_to_enqueue(gang)
    if gang.blocked is None:
        session.opinions.tell_enqueued(gang)
        gang.let_in()

"""enqueue: let gangs into their queues while what they need at least could be held."""

from __future__ import annotations

from extender.model.reason import Problem
from extender.model.resources import Resources
from extender.plan.census import without_gated
from extender.plan.room.state import GangState
from extender.plan.session import Session


def enqueue(session: Session) -> None:
    """Let pending gangs in, queue by queue; one that must stay out does not stop the others."""
    outside = [gang for gang in session.census.contenders.values() if gang.is_pending]
    queues = {gang.queue.name: session.queue_key(gang.queue) for gang in outside}
    for gang in sorted(outside, key=lambda g: (queues[g.queue.name], session.gang_key(g))):
        _let_in(session, gang)


def _let_in(session: Session, gang: GangState) -> None:
    least = gang.gang.group.min_resources
    if least is not None:
        gang.blocked = session.opinions.refusal_to_enqueue(gang) or _share_is_full(
            session, gang, least
        )
    if gang.blocked is None:
        session.opinions.tell_enqueued(gang)
        if least is not None and gang.share is not None:
            share = session.census.shares[gang.share.name]
            share.inqueue = share.inqueue + without_gated(gang.gang, least)
        gang.let_in()


def _share_is_full(session: Session, gang: GangState, least: Resources) -> Problem | None:
    """Say that its namespace could not hold *least* beside what it was promised already.

    Else gangs that only their namespace keeps out would keep others out of the queue.
    """
    share = gang.share
    if share is None:
        return None
    name = share.lacks(session.census.shares[share.name].inqueue + least)
    return share.at_most(name, least.amount(name)) if name else None

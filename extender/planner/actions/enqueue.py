"""enqueue admits gangs to their queue; only then may they ask for capacity."""

from __future__ import annotations

from extender.model.reason import Problem
from extender.model.resources import Resources
from extender.planner.accounting import without_gated
from extender.planner.session import Session
from extender.planner.state import GangState


def enqueue(session: Session) -> None:
    """Admit pending gangs, queue by queue; one that must wait does not stop the others."""
    pending = [gang for gang in session.accounting.contenders.values() if gang.is_pending]
    queues = {gang.queue.name: session.queue_key(gang.queue) for gang in pending}
    for gang in sorted(pending, key=lambda g: (queues[g.queue.name], session.gang_key(g))):
        _admit(session, gang)


def _admit(session: Session, gang: GangState) -> None:
    least = gang.gang.group.min_resources
    if least is not None:
        gang.blocked = session.plugins.enqueue_refusal(gang) or _share_is_full(session, gang, least)
    if gang.blocked is None:
        session.plugins.notify_enqueued(gang)
        if least is not None and gang.share is not None:
            share = session.accounting.shares[gang.share.name]
            share.inqueue = share.inqueue + without_gated(gang.gang, least)
        gang.enqueue()


def _share_is_full(session: Session, gang: GangState, least: Resources) -> Problem | None:
    """Return a problem if its namespace could not hold *least* beside what is reserved already.

    Otherwise gangs that only the share keeps out would keep other gangs out of the queue.
    """
    share = gang.share
    if share is None:
        return None
    name = share.lacks(session.accounting.shares[share.name].inqueue + least)
    return share.at_most(name, least.amount(name)) if name else None

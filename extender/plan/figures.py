"""What each queue deserves, uses and wants, for people and metrics."""

from __future__ import annotations

from math import floor

from extender.model.resources import NOTHING, Resources
from extender.plan.arithmetic import Vector
from extender.plan.decision import QueueFigures
from extender.plan.room.state import QueueUse
from extender.plan.session import Session


def queue_figures(session: Session) -> dict[str, QueueFigures]:
    """Draw up the figures of all queues, counting what may start in this cycle as used."""
    started: dict[str, Resources] = {}
    for gang in session.census.contenders.values():
        if gang.committed:
            name = gang.queue.name
            started[name] = started.get(name, NOTHING) + gang.started
    return {
        name: _figures(session, queue, session.census.used[name] + started.get(name, NOTHING))
        for name, queue in sorted(session.queues.items())
    }


def _figures(session: Session, queue: QueueUse, used: Resources) -> QueueFigures:
    due = session.opinions.deserved(queue)
    return QueueFigures(
        name=queue.name,
        weight=queue.queue.weight,
        deserved=_whole(due) if due is not None else NOTHING,
        allocated=used,
        requested=queue.requested,
        share=session.maths.share(used, due) if due is not None else 0.0,
        overused=due is not None
        and any(not session.maths.within({name: used.amount(name)}, due) for name in due),
    )


def _whole(vector: Vector) -> Resources:
    """Cut to whole units; Volcano's way of dividing leaves fractions, and endless amounts."""
    return Resources(
        {name: floor(amount + 0.5) for name, amount in vector.items() if amount != float("inf")}
    )

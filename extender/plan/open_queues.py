"""Queues in which a lone pod may start at once, without waiting for a cycle."""

from __future__ import annotations

from collections.abc import Mapping

from extender.model.gang import GangKey
from extender.model.queue import QueueState as State
from extender.model.reason import Reason
from extender.plan.decision import Verdict
from extender.plan.session import Session
from extender.plan.state import QueueState

#: Reasons that mean: it would take room, if there were some or if it were its turn.
_WANTS_ROOM = frozenset(
    {Reason.NOT_ENOUGH_ROOM, Reason.BEHIND_IN_ORDER, Reason.WAITING_FOR_VICTIMS}
)


def open_queues(session: Session, verdicts: Mapping[GangKey, Verdict]) -> frozenset[str]:
    """Name the queues that are open, within their due, and in which nobody waits for room.

    A queue with a capability is never among them: it is a hard limit, and between two cycles
    nobody counts.
    """
    crowded = {verdict.queue for verdict in verdicts.values() if verdict.reason in _WANTS_ROOM}
    weights = sum(state.queue.weight for state in session.census.busy.values())
    return frozenset(
        name
        for name, state in session.queues.items()
        if state.queue.state is State.OPEN
        and not state.queue.capability
        and name not in crowded
        and (not crowded or _is_below_due(session, state, weights))
    )


def _is_below_due(session: Session, state: QueueState, weights: int) -> bool:
    """Ask whether *state* uses less than its weighted part, whatever the others leave."""
    part = state.queue.weight / max(weights, 1)
    return all(
        state.allocated.amount(name) < amount * part
        for name, amount in session.total.items()
        if amount > 0 and session.maths.counts(name)
    )

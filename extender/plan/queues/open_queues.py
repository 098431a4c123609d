"""Queues in which pods and gangs may start at once, without waiting for a cycle, and how much."""

from __future__ import annotations

from collections.abc import Mapping

from extender.model.gang import GangKey
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.plan.decision import OpenQueue, Verdict
from extender.plan.plugin import View
from extender.plan.queues import limits
from extender.plan.room.state import QueueUse

#: Reasons that mean: it would take room, if there were some or if it were its turn.
_WANTS_ROOM = frozenset(
    {Reason.NOT_ENOUGH_ROOM, Reason.BEHIND_IN_ORDER, Reason.WAITING_FOR_VICTIMS}
)

#: Plugins whose say on who may start is kept without asking them again, while nobody waits:
#: by the amounts given here, by kube-scheduler's own checks, or because they only order.
_ORDERING = {"gang", "priority", "drf", "sla"}
_SPARING = {"conformance", "pdb"}
_PLACING = {"predicates", "nodeorder", "binpack"}
_LIMITING = {"proportion", "capacity"}
#: Whom this one judges does not start without a plan (`promises/arrivals`).
_ADMITTING = {"resourcequota"}
_KEPT = _ORDERING | _SPARING | _PLACING | _LIMITING | _ADMITTING


def open_queues(session: View, verdicts: Mapping[GangKey, Verdict]) -> dict[str, OpenQueue]:
    """Name the queues that are open, with what is left of the due of each.

    While somebody waits for room anywhere, that is the rest of the queue's weighted part; what it
    has used up of one resource closes it to nobody who asks for none of that. None is open while a
    plugin is at work that would have to be asked about every gang.
    """
    plugins = {option.name for tier in session.policy.tiers for option in tier}
    if "allocate" not in session.policy.actions or not plugins <= _KEPT:
        return {}
    crowded = {verdict.queue for verdict in verdicts.values() if verdict.reason in _WANTS_ROOM}
    weights = sum(state.queue.weight for state in session.census.busy.values())
    return {
        name: OpenQueue(
            _rest_of_part(session, state, weights) if crowded else None,
            is_quiet=name not in crowded,
        )
        for name, state in session.queues.items()
        if limits.closed(state) is None
    }


def _rest_of_part(session: View, state: QueueUse, weights: int) -> Resources:
    """Give what *state* has left of its weighted part, whatever the others leave."""
    part = state.queue.weight / max(weights, 1)
    counts = session.maths.counts
    return Resources(
        {
            name: (int(amount * part) if counts(name) else amount) - state.allocated.amount(name)
            for name, amount in session.total.items()
        }
    )

"""Queues in which pods and gangs may start at once, without waiting for a cycle, and how much."""

from __future__ import annotations

from collections.abc import Mapping

from extender.model.gang import GangKey
from extender.model.queue import Queue, QueueState
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.plan.decision import OpenQueue, Verdict
from extender.plan.plugin import View
from extender.plan.queues.ceiling import guaranteed, real_capability
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
_KEPT = _ORDERING | _SPARING | _PLACING | _LIMITING


def open_queues(session: View, verdicts: Mapping[GangKey, Verdict]) -> dict[str, OpenQueue]:
    """Name the queues that are open and within their due, with what is left in each.

    While somebody waits for room anywhere, that is the rest of the queue's weighted part;
    otherwise the rest of what it may use at all, None when nothing limits it. None is open while
    a plugin is at work that would have to be asked about every gang.
    """
    plugins = {option.name for tier in session.policy.tiers for option in tier}
    if "allocate" not in session.policy.actions or not plugins <= _KEPT:
        return {}
    crowded = {verdict.queue for verdict in verdicts.values() if verdict.reason in _WANTS_ROOM}
    guarantees = guaranteed(state.queue for state in session.queues.values())
    weights = sum(state.queue.weight for state in session.census.busy.values())
    found: dict[str, OpenQueue] = {}
    for name, state in session.queues.items():
        queue = state.queue
        if queue.state is not QueueState.OPEN or _has_limited_parent(session, queue):
            continue
        left = None
        if guarantees or queue.capability:
            left = real_capability(queue, session.total, guarantees) - state.allocated
        if crowded:
            rest = _rest_of_part(session, state, weights)
            left = rest if left is None else left.at_most(rest)
        if left is None or all(left.amount(each) > 0 for each in _counted(session)):
            found[name] = OpenQueue(left, is_quiet=name not in crowded)
    return found


def _rest_of_part(session: View, state: QueueUse, weights: int) -> Resources:
    """Give what *state* has left of its weighted part, whatever the others leave."""
    part = state.queue.weight / max(weights, 1)
    counted = frozenset(_counted(session))
    return Resources(
        {
            name: (int(amount * part) if name in counted else amount) - state.allocated.amount(name)
            for name, amount in session.total.items()
        }
    )


def _counted(session: View) -> list[str]:
    total, counts = session.total, session.maths.counts
    return [name for name, amount in total.items() if amount > 0 and counts(name)]


def _has_limited_parent(session: View, queue: Queue) -> bool:
    """Ask whether an ancestor has a limit of its own: only a cycle counts its whole family."""
    seen = {queue.name}
    while queue.parent in session.queues and queue.parent not in seen:
        queue = session.queues[queue.parent].queue
        seen.add(queue.name)
        if queue.capability:
            return True
    return False

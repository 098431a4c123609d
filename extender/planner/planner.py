"""One cycle: from a snapshot of the cluster to what should happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from itertools import chain
from math import floor

import numpy as np

from extender.model.gang import Gang, GangKey
from extender.model.node import Amounts, Mask
from extender.model.pod import Status
from extender.model.queue import share_words
from extender.model.reason import Reason
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser, quota
from extender.planner.accounting import Accounting
from extender.planner.actions import volcano as volcanos
from extender.planner.actions.allocate import allocate, borrow
from extender.planner.actions.backfill import backfill, enqueue
from extender.planner.actions.reserved import use_reserved
from extender.planner.plan import (
    DirectAdmission,
    Eviction,
    GangPlacement,
    HeldCapacity,
    HoldReason,
    Plan,
    QueueFigures,
    ShareFigures,
    Verdict,
)
from extender.planner.plugin import View
from extender.planner.policy import VOLCANO, Policy, Vector
from extender.planner.quota import upwards
from extender.planner.session import Session
from extender.planner.state import QueueUsage
from extender.planner.verdicts import Verdicts
from extender.planner.victims.make_room import preempt, reclaim

#: Members that have a node and are not seen on it yet.
_ON_THEIR_WAY = (Status.ALLOCATED, Status.BINDING)


def unused_capacity(session: Session) -> Resources:
    """Add up what is free on ready nodes, with what may start now counted as used."""
    started = total(
        gang.started for gang in session.accounting.contenders.values() if gang.committed
    )
    return (_free(session, session.accounting.ready_nodes) - started).positive()


def _free(session: Session, nodes: Mask) -> Resources:
    table = session.snapshot.nodes
    free = np.maximum(table.allocatable - table.used, 0)[nodes].sum(axis=0)
    return Resources(zip(table.dimensions, free.tolist(), strict=True))


def held_capacity(session: Session) -> tuple[HeldCapacity, ...]:
    """Say what of the idle room is kept, guarantees first."""
    cordoned = _cordoned(session)
    free = unused_capacity(session) - cordoned.amounts
    found = (
        *_guarantees(session, free),
        *_fences(session),
        *_promised(session),
        *_coming(session),
        cordoned,
    )
    return tuple(each for each in found if each.amounts)


def _guarantees(session: Session, free: Resources) -> Iterator[HeldCapacity]:
    if not any(stake.guarantee for stake in session.limits):
        return
    for name, state in sorted(session.queues.items()):
        if state.quota is not None and state.quota.least:
            left = {n: min(a, free.amount(n)) for n, a in state.quota.kept.items()}
            yield HeldCapacity(HoldReason.GUARANTEED, name, Resources(left).positive())
        for namespace, share in sorted(state.shares.items()):
            left = {n: min(a, free.amount(n)) for n, a in share.kept.items()}
            yield HeldCapacity(
                HoldReason.NAMESPACE_GUARANTEE,
                share_words(name, namespace),
                Resources(left).positive(),
            )


def _fences(session: Session) -> Iterator[HeldCapacity]:
    dimensions = session.snapshot.nodes.dimensions
    for key, fences in sorted(session.fenced.items()):
        lines = (Resources(zip(dimensions, f.kept.tolist(), strict=True)) for f in fences)
        yield HeldCapacity(HoldReason.STARVING, key, _plain(total(lines)))


def _promised(session: Session) -> Iterator[HeldCapacity]:
    for gang in session.accounting.contenders.values():
        if gang.pipelined:
            given = [*gang.placed[gang.committed :], *gang.pipelined]
            yield HeldCapacity(
                HoldReason.RESERVED, gang.key, _plain(total(pod.requests for pod, _ in given))
            )


def _coming(session: Session) -> Iterator[HeldCapacity]:
    for gang in session.accounting.coming:
        pods = (pod for status in _ON_THEIR_WAY for pod in gang.by_status.get(status, ()))
        yield HeldCapacity(
            HoldReason.RELEASING, gang.key, _plain(total(pod.requests for pod in pods))
        )


def _cordoned(session: Session) -> HeldCapacity:
    facts, ready = session.snapshot.nodes.facts, session.accounting.ready_nodes
    closed = facts.memo.recall(
        "cordoned", lambda: np.array([node.unschedulable for node in facts.nodes], dtype=bool)
    )
    nodes = closed & ready
    number = int(np.count_nonzero(nodes))
    where = f"{number} cordoned node{'' if number == 1 else 's'}"
    return HeldCapacity(
        HoldReason.CORDONED, where, _plain(_free(session, nodes)) if number else NOTHING
    )


def _plain(amounts: Resources) -> Resources:
    return amounts.without(PODS).positive() if amounts else NOTHING


#: Reasons that mean: it would take room, if there were some or if it were its turn.
_WANTS_ROOM = frozenset(
    {Reason.INSUFFICIENT_CAPACITY, Reason.BEHIND_IN_ORDER, Reason.WAITING_FOR_VICTIMS}
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


def direct_admission(
    session: View, verdicts: Mapping[GangKey, Verdict]
) -> dict[str, DirectAdmission]:
    """Name the queues that are open, with what is left of the due of each.

    While somebody waits for room anywhere, that is the rest of the queue's weighted part; what it
    has used up of one resource closes it to nobody who asks for none of that. None is open while a
    plugin is at work that would have to be asked about every gang.
    """
    plugins = {option.name for tier in session.policy.tiers for option in tier}
    if "allocate" not in session.policy.actions or not plugins <= _KEPT:
        return {}
    crowded = {verdict.queue for verdict in verdicts.values() if verdict.reason in _WANTS_ROOM}
    weights = sum(state.queue.weight for state in session.accounting.busy.values())
    return {
        name: DirectAdmission(
            _rest_of_part(session, state, weights) if crowded else None,
            is_quiet=name not in crowded,
        )
        for name, state in session.queues.items()
        if quota.closed(state) is None
    }


def _rest_of_part(session: View, state: QueueUsage, weights: int) -> Resources:
    """Give what *state* has left of its weighted part, whatever the others leave."""
    part = state.queue.weight / max(weights, 1)
    counts = session.arithmetic.counts
    return Resources(
        {
            name: (int(amount * part) if counts(name) else amount) - state.allocated.amount(name)
            for name, amount in session.total.items()
        }
    )


_OURS: Mapping[str, Callable[[Session], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "reclaim": reclaim,
    "preempt": preempt,
}
_VOLCANOS = {
    **_OURS,
    "backfill": volcanos.backfill,
    "reclaim": volcanos.reclaim,
    "preempt": volcanos.preempt,
}


def make_plan(
    snapshot: Snapshot,
    policy: Policy = policy_parser.DEFAULT,
    around: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Plan:
    """Count who is there, let the actions decide one after the other, and write it down.

    Each action runs inside `around(its name)`, for whoever wants to time it.
    """
    with closing(Session(Accounting(snapshot), policy)) as session:
        actions = _VOLCANOS if policy.rules is VOLCANO else _OURS
        lender = _lender(policy)
        for place, name in enumerate(policy.actions):
            with around(name):
                actions[name](session)
                if place == lender:
                    borrow(session)
        use_reserved(session)
        return _written_down(session)


def _lender(policy: Policy) -> int | None:
    """Give the place of the action after which room is lent; None when none is.

    Whoever has less than their due has had room handed out and taken back for them by then. But
    nobody should have to leave in favour of a gang that could start in room that is idle, so
    preempt comes after it.
    """
    if "allocate" not in policy.actions or not policy.rules.may_overshoot:
        return None
    return max(at for at, name in enumerate(policy.actions) if name in ("allocate", "reclaim"))


def _written_down(session: Session) -> Plan:
    verdicts = _remarked(Verdicts(session).all(), session.accounting.remarked)
    fences, owed = _kept_room(session)
    return Plan(
        generation=session.snapshot.generation,
        verdicts=verdicts,
        placements=_tickets(session),
        evictions=_evictions(session),
        queues=_queue_figures(session),
        shares=_share_figures(session),
        direct_admission=direct_admission(session, verdicts),
        limits=session.limits,
        total=session.total,
        unused=unused_capacity(session),
        held=held_capacity(session),
        reservations=fences,
        reservations_missing=owed,
        brief_s=session.policy.starvation.backfill_s,
    )


def _remarked(verdicts: dict[GangKey, Verdict], gangs: Iterable[Gang]) -> dict[GangKey, Verdict]:
    """Tell with each verdict what else people should know of its gang."""
    for gang in gangs:
        said = verdicts[gang.key]
        verdicts[gang.key] = replace(said, message=f"{said.message}; {gang.remark}")
    return verdicts


def _tickets(session: Session) -> dict[GangKey, GangPlacement]:
    nodes = session.snapshot.nodes.nodes
    return {
        gang.key: GangPlacement(
            gang=gang.key,
            placements={pod.uid: nodes[row].name for pod, row in gang.placed[: gang.committed]},
            pipelined={pod.uid: nodes[row].name for pod, row in gang.pipelined},
        )
        for gang in session.accounting.contenders.values()
        if gang.committed or gang.pipelined
    }


def _kept_room(session: Session) -> tuple[dict[str, Resources], dict[str, Resources]]:
    """Give what is kept of idle nodes, and what is owed there: the first of what comes free.

    It is kept for the starving, and for those who wait until others have left. What these will
    have of room that others still use is in nobody's way who has a place beside them.
    """
    table, kept, owed = session.snapshot.nodes, dict[str, Resources](), dict[str, Resources]()

    def keep(row: int, idle: Resources, coming: Resources) -> None:
        name = table.nodes[row].name
        kept[name] = kept.get(name, NOTHING) + idle
        if coming:
            owed[name] = owed.get(name, NOTHING) + coming

    for fence in chain.from_iterable(session.fenced.values()):
        keep(fence.row, _amounts(session, fence.kept), _amounts(session, fence.missing))
    for row, amounts in _pipelined(session).items():
        coming = amounts.beyond(_amounts(session, session.capacity.idle[row])).positive()
        keep(row, (amounts - coming).positive(), coming)
    return kept, owed


def _pipelined(session: Session) -> dict[int, Resources]:
    """Sum up what is promised of each node to those who wait until others have left it."""
    rows: dict[int, Resources] = {}
    for gang in session.accounting.contenders.values():
        for pod, row in gang.pipelined:
            rows[row] = rows.get(row, NOTHING) + pod.requests
    return rows


def _amounts(session: Session, amounts: Amounts) -> Resources:
    dimensions = session.snapshot.nodes.dimensions
    return Resources(zip(dimensions, amounts.tolist(), strict=True)).positive()


def _evictions(session: Session) -> tuple[Eviction, ...]:
    nodes = session.snapshot.nodes.nodes
    return tuple(
        Eviction(
            uid=departure.pod.uid,
            namespace=departure.pod.namespace,
            name=departure.pod.name,
            node=nodes[departure.row].name,
            action=departure.action,
            beneficiary=departure.beneficiary.key,
        )
        for departure in session.capacity.departures
    )


def _queue_figures(session: Session) -> dict[str, QueueFigures]:
    """Draw up the figures of all queues, counting what may start in this cycle as used."""
    started: dict[str, Resources] = {}
    for gang in session.accounting.contenders.values():
        if gang.committed:
            name = gang.queue.name
            started[name] = started.get(name, NOTHING) + gang.started
    own = {
        name: used + started.get(name, NOTHING) for name, used in session.accounting.used.items()
    }
    wanted = {name: queue.requested for name, queue in session.queues.items()}
    with_below, wanted_with_below = _families(session, own), _families(session, wanted)
    return {
        name: _figures(session, queue, own[name], with_below[name], wanted_with_below[name])
        for name, queue in sorted(session.queues.items())
    }


def _share_figures(session: Session) -> dict[str, ShareFigures]:
    """Draw up the figures of all shares, counting what may start in this cycle as used."""
    started: dict[str, Resources] = {}
    for gang in session.accounting.contenders.values():
        if gang.committed and gang.share is not None:
            name = gang.share.name
            started[name] = started.get(name, NOTHING) + gang.started
    return {
        name: ShareFigures(
            queue=use.share.queue,
            namespace=use.share.namespace,
            limit=use.share.limit,
            guarantee=use.share.guarantee,
            allocated=use.used + started.get(name, NOTHING),
            requested=use.requested,
        )
        for name, use in session.accounting.shares.items()
    }


def _families(session: Session, amounts: Mapping[str, Resources]) -> dict[str, Resources]:
    """Add to the amounts of every queue those of all below it."""
    added = dict(amounts)
    for name, queue in session.queues.items():
        if amounts[name]:
            for above in upwards(queue.parent):
                added[above.name] = added[above.name] + amounts[name]
    return added


def _figures(
    session: Session, queue: QueueUsage, own: Resources, family: Resources, wanted: Resources
) -> QueueFigures:
    due = session.opinions.deserved(queue) or {}
    # In a tree of dues a parent's is for its whole family; otherwise it is for its own gangs.
    used = family if session.queues_interact else own
    return QueueFigures(
        name=queue.name,
        weight=queue.queue.weight,
        deserved=_whole(due),
        allocated=family,
        own=own,
        requested=wanted,
        borrowed=used.without(PODS).beyond(_whole(due)).positive(),
        share=session.arithmetic.share(used, due),
        overused=any(not session.arithmetic.within({name: used.amount(name)}, due) for name in due),
    )


def _whole(vector: Vector) -> Resources:
    """Cut to whole units; Volcano's way of dividing leaves fractions, and endless amounts."""
    return Resources(
        {name: floor(amount + 0.5) for name, amount in vector.items() if amount != float("inf")}
    )

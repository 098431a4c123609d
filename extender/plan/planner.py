"""One cycle: from a snapshot of the cluster to what should happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from itertools import chain
from math import floor

from extender.model.gang import Gang, GangKey
from extender.model.node import Amounts
from extender.model.resources import NOTHING, PODS, Resources
from extender.model.snapshot import Snapshot
from extender.plan.actions.allocate import allocate, lend
from extender.plan.actions.backfill import backfill
from extender.plan.actions.claims import preempt, reclaim
from extender.plan.actions.enqueue import enqueue
from extender.plan.actions.meanwhile import use_meanwhile
from extender.plan.arithmetic import Vector
from extender.plan.census import Census
from extender.plan.decision import Eviction, Plan, QueueFigures, ShareFigures, Ticket, Verdict
from extender.plan.policy import policies
from extender.plan.policy.options import VOLCANO, Policy
from extender.plan.queues.limits import upwards
from extender.plan.queues.open_queues import open_queues
from extender.plan.room.state import QueueUse
from extender.plan.session import Session
from extender.plan.verdict.kept import idle, kept
from extender.plan.verdict.verdicts import Verdicts
from extender.plan.volcano import actions as volcanos

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
    policy: Policy = policies.DEFAULT,
    around: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Plan:
    """Count who is there, let the actions decide one after the other, and write it down.

    Each action runs inside `around(its name)`, for whoever wants to time it.
    """
    with closing(Session(Census(snapshot), policy)) as session:
        actions = _VOLCANOS if policy.rules is VOLCANO else _OURS
        lender = _lender(policy)
        for place, name in enumerate(policy.actions):
            with around(name):
                actions[name](session)
                if place == lender:
                    lend(session)
        use_meanwhile(session)
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
    verdicts = _remarked(Verdicts(session).all(), session.census.remarked)
    fences, owed = _kept_room(session)
    return Plan(
        generation=session.snapshot.generation,
        verdicts=verdicts,
        tickets=_tickets(session),
        evictions=_evictions(session),
        queues=_queue_figures(session),
        shares=_share_figures(session),
        open_queues=open_queues(session, verdicts),
        stakes=session.stakes,
        total=session.total,
        idle=idle(session),
        kept=kept(session),
        fences=fences,
        owed=owed,
        brief_s=session.policy.starvation.backfill_s,
    )


def _remarked(verdicts: dict[GangKey, Verdict], gangs: Iterable[Gang]) -> dict[GangKey, Verdict]:
    """Tell with each verdict what else people should know of its gang."""
    for gang in gangs:
        said = verdicts[gang.key]
        verdicts[gang.key] = replace(said, message=f"{said.message}; {gang.remark}")
    return verdicts


def _tickets(session: Session) -> dict[GangKey, Ticket]:
    nodes = session.snapshot.nodes.nodes
    return {
        gang.key: Ticket(
            gang=gang.key,
            placements={pod.uid: nodes[row].name for pod, row in gang.placed[: gang.committed]},
            pipelined={pod.uid: nodes[row].name for pod, row in gang.pipelined},
        )
        for gang in session.census.contenders.values()
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
        keep(fence.row, _amounts(session, fence.kept), _amounts(session, fence.owed))
    for row, amounts in _pipelined(session).items():
        coming = amounts.beyond(_amounts(session, session.room.idle[row])).positive()
        keep(row, (amounts - coming).positive(), coming)
    return kept, owed


def _pipelined(session: Session) -> dict[int, Resources]:
    """Sum up what is promised of each node to those who wait until others have left it."""
    rows: dict[int, Resources] = {}
    for gang in session.census.contenders.values():
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
        for departure in session.room.departures
    )


def _queue_figures(session: Session) -> dict[str, QueueFigures]:
    """Draw up the figures of all queues, counting what may start in this cycle as used."""
    started: dict[str, Resources] = {}
    for gang in session.census.contenders.values():
        if gang.committed:
            name = gang.queue.name
            started[name] = started.get(name, NOTHING) + gang.started
    own = {name: used + started.get(name, NOTHING) for name, used in session.census.used.items()}
    wanted = {name: queue.requested for name, queue in session.queues.items()}
    with_below, wanted_with_below = _families(session, own), _families(session, wanted)
    return {
        name: _figures(session, queue, own[name], with_below[name], wanted_with_below[name])
        for name, queue in sorted(session.queues.items())
    }


def _share_figures(session: Session) -> dict[str, ShareFigures]:
    """Draw up the figures of all shares, counting what may start in this cycle as used."""
    started: dict[str, Resources] = {}
    for gang in session.census.contenders.values():
        if gang.committed and gang.share is not None:
            name = gang.share.name
            started[name] = started.get(name, NOTHING) + gang.started
    return {
        name: ShareFigures(
            queue=use.share.queue,
            namespace=use.share.namespace,
            at_most=use.share.most,
            at_least=use.share.least,
            allocated=use.used + started.get(name, NOTHING),
            requested=use.requested,
        )
        for name, use in session.census.shares.items()
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
    session: Session, queue: QueueUse, own: Resources, family: Resources, wanted: Resources
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
        share=session.maths.share(used, due),
        overused=any(not session.maths.within({name: used.amount(name)}, due) for name in due),
    )


def _whole(vector: Vector) -> Resources:
    """Cut to whole units; Volcano's way of dividing leaves fractions, and endless amounts."""
    return Resources(
        {name: floor(amount + 0.5) for name, amount in vector.items() if amount != float("inf")}
    )

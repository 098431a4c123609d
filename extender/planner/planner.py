"""One planning cycle: from a snapshot of the cluster to a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from math import floor

import numpy as np

from extender.model.gang import GangKey
from extender.model.node import Amounts, Mask
from extender.model.pod import Status
from extender.model.queue import share_text
from extender.model.reason import Reason
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.actions import volcano
from extender.planner.actions.allocate import allocate, borrow
from extender.planner.actions.backfill import backfill
from extender.planner.actions.enqueue import enqueue
from extender.planner.actions.reserved import use_held_capacity
from extender.planner.obstacles import counted
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
from extender.planner.state import GangState, QueueUsage
from extender.planner.verdicts import Verdicts
from extender.planner.victims.make_room import preempt, reclaim

#: Members that have a node and are not seen on it yet.
_ON_THEIR_WAY = (Status.ALLOCATED, Status.BINDING)


_ACTIONS: Mapping[str, Callable[[Session], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "reclaim": reclaim,
    "preempt": preempt,
}
_VOLCANO_ACTIONS = {
    **_ACTIONS,
    "backfill": volcano.backfill,
    "reclaim": volcano.reclaim,
    "preempt": volcano.preempt,
}


def make_plan(
    snapshot: Snapshot,
    policy: Policy = policy_parser.DEFAULT,
    around: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Plan:
    """Build the plan for a snapshot: run the actions of the policy one after the other.

    Each action runs inside `around(its name)`, so that the caller can time it. Two steps are in no
    list of actions: capacity is borrowed once gangs within their queues' deserved amounts have been
    placed, and held capacity is used at the end.
    """
    with Session(snapshot, policy) as session:
        actions = _VOLCANO_ACTIONS if policy.rules is VOLCANO else _ACTIONS
        borrows_after = _borrows_after(policy)
        for index, name in enumerate(policy.actions):
            with around(name):
                actions[name](session)
                if index == borrows_after:
                    borrow(session)
        use_held_capacity(session)
        return _plan(session)


def _borrows_after(policy: Policy) -> int | None:
    """Return the index of the action after which capacity is borrowed; None if none is.

    By then, gangs within their queue's deserved amount have been placed and capacity was reclaimed
    for them. But no pod should be evicted for a gang that could start in free capacity, so preempt
    comes later.
    """
    if "allocate" not in policy.actions or not policy.rules.may_overshoot:
        return None
    return max(at for at, name in enumerate(policy.actions) if name in ("allocate", "reclaim"))


def _plan(session: Session) -> Plan:
    verdicts = Verdicts(session).all()
    held_on_nodes, missing = _held_on_nodes(session)
    unused = _unused_capacity(session)
    return Plan(
        generation=session.snapshot.generation,
        verdicts=verdicts,
        placements=_placements(session),
        evictions=_evictions(session),
        queues=_queue_figures(session),
        shares=_share_figures(session),
        direct_admission=_direct_admission(session, verdicts),
        limits=session.limits,
        total=session.total,
        unused=unused,
        held=_held_capacity(session, unused),
        held_on_nodes=held_on_nodes,
        missing_on_nodes=missing,
        brief_s=session.policy.starvation.backfill_s,
    )


def _unused_capacity(session: Session) -> Resources:
    """Return what is free on ready nodes, with what may start now counted as used."""
    started = total(_started(session, lambda gang: gang.queue.name).values())
    return (_free(session, session.accounting.ready_nodes) - started).positive()


def _free(session: Session, nodes: Mask) -> Resources:
    table = session.snapshot.nodes
    free = np.maximum(table.allocatable - table.used, 0)[nodes].sum(axis=0)
    return _amounts(session, free)


def _held_capacity(session: Session, unused: Resources) -> tuple[HeldCapacity, ...]:
    """Return what of the free capacity is held, guarantees first."""
    on_cordoned = _cordoned(session)
    found = (
        *_guarantees(session, unused - on_cordoned.amounts),
        *_held_for_starving(session),
        *_reserved(session),
        *_binding(session),
        on_cordoned,
    )
    return tuple(each for each in found if each.amounts)


def _guarantees(session: Session, free: Resources) -> Iterator[HeldCapacity]:
    if not any(limits.guarantee for limits in session.limits):
        return
    for name, state in sorted(session.queues.items()):
        if state.quota is not None and state.quota.guarantee:
            left = {n: min(a, free.amount(n)) for n, a in state.quota.unused_guarantee.items()}
            yield HeldCapacity(HoldReason.GUARANTEED, name, Resources(left).positive())
        for namespace, share in sorted(state.shares.items()):
            left = {n: min(a, free.amount(n)) for n, a in share.unused_guarantee.items()}
            yield HeldCapacity(
                HoldReason.NAMESPACE_GUARANTEE,
                share_text(name, namespace),
                Resources(left).positive(),
            )


def _held_for_starving(session: Session) -> Iterator[HeldCapacity]:
    for key, holds in sorted(session.holds.items()):
        held = total(_amounts(session, each.kept) for each in holds)
        yield HeldCapacity(HoldReason.STARVING, key, _without_pods(held))


def _reserved(session: Session) -> Iterator[HeldCapacity]:
    for gang in session.accounting.contenders.values():
        if gang.pipelined:
            placed = [*gang.placed[gang.committed :], *gang.pipelined]
            yield HeldCapacity(
                HoldReason.RESERVED,
                gang.key,
                _without_pods(total(pod.requests for pod, _ in placed)),
            )


def _binding(session: Session) -> Iterator[HeldCapacity]:
    for gang in session.accounting.binding:
        pods = (pod for status in _ON_THEIR_WAY for pod in gang.by_status.get(status, ()))
        yield HeldCapacity(
            HoldReason.BINDING, gang.key, _without_pods(total(pod.requests for pod in pods))
        )


def _cordoned(session: Session) -> HeldCapacity:
    nodes = session.snapshot.nodes.facts.cordoned & session.accounting.ready_nodes
    number = int(np.count_nonzero(nodes))
    free = _without_pods(_free(session, nodes)) if number else NOTHING
    return HeldCapacity(HoldReason.CORDONED, counted(number, "cordoned node"), free)


def _without_pods(amounts: Resources) -> Resources:
    return amounts.without(PODS).positive() if amounts else NOTHING


#: Reasons of gangs that would take capacity, if there were some or if others were not first.
_WAITS_FOR_CAPACITY = frozenset(
    {Reason.INSUFFICIENT_CAPACITY, Reason.BEHIND_IN_ORDER, Reason.WAITING_FOR_VICTIMS}
)
#: Plugins whose checks hold without a call while no gang waits: by the amounts published here, by
#: kube-scheduler's own checks, or because they only order.
_ORDERING = {"gang", "priority", "drf", "sla"}
_SPARING = {"conformance", "pdb"}
_PLACING = {"predicates", "nodeorder", "binpack"}
_LIMITING = {"proportion", "capacity"}
#: Pods that this plugin judges do not start without a plan (`reservations/arrivals`).
_ADMITTING = {"resourcequota"}
_ADMITS_DIRECTLY = _ORDERING | _SPARING | _PLACING | _LIMITING | _ADMITTING


def _direct_admission(
    session: View, verdicts: Mapping[GangKey, Verdict]
) -> dict[str, DirectAdmission]:
    """Return the queues that admit pods directly, with what each may still start.

    While any gang waits for capacity, that is the rest of the queue's weighted part. A queue that
    has used up one resource still admits pods that request none of it. No queue admits pods
    directly while a plugin is enabled that must be called for every gang.
    """
    policy = session.policy
    if "allocate" not in policy.actions or not policy.plugins <= _ADMITS_DIRECTLY:
        return {}
    waiting = {
        verdict.queue for verdict in verdicts.values() if verdict.reason in _WAITS_FOR_CAPACITY
    }
    weights = sum(state.queue.weight for state in session.accounting.active.values())
    return {
        name: DirectAdmission(
            _rest_of_weighted_part(session, state, weights) if waiting else None,
            is_quiet=name not in waiting,
        )
        for name, state in session.queues.items()
        if state.closed() is None
    }


def _rest_of_weighted_part(session: View, state: QueueUsage, weights: int) -> Resources:
    """Return what is left of the weighted part of *state*, whatever other queues leave."""
    part = state.queue.weight / max(weights, 1)
    counts = session.arithmetic.counts
    return Resources(
        {
            name: (int(amount * part) if counts(name) else amount) - state.allocated.amount(name)
            for name, amount in session.total.items()
        }
    )


def _placements(session: Session) -> dict[GangKey, GangPlacement]:
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


def _held_on_nodes(session: Session) -> tuple[dict[str, Resources], dict[str, Resources]]:
    """Return what is reserved of each node's free capacity, and what is missing there.

    Capacity is reserved for starving gangs, and for gangs that wait for terminating pods. What the
    latter will use of capacity that is still in use does not keep a pod out which fits beside them.
    """
    table, kept, missing = session.snapshot.nodes, dict[str, Resources](), dict[str, Resources]()

    def keep(row: int, free: Resources, releasing: Resources) -> None:
        name = table.nodes[row].name
        kept[name] = kept.get(name, NOTHING) + free
        if releasing:
            missing[name] = missing.get(name, NOTHING) + releasing

    for hold in chain.from_iterable(session.holds.values()):
        keep(hold.row, _amounts(session, hold.kept), _amounts(session, hold.missing))
    for row, amounts in _pipelined(session).items():
        releasing = amounts.beyond(_amounts(session, session.capacity.free[row])).positive()
        keep(row, (amounts - releasing).positive(), releasing)
    return kept, missing


def _pipelined(session: Session) -> dict[int, Resources]:
    """Return, by row, what is reserved for gangs that wait for terminating pods."""
    rows: dict[int, Resources] = {}
    for gang in session.accounting.contenders.values():
        for pod, row in gang.pipelined:
            rows[row] = rows.get(row, NOTHING) + pod.requests
    return rows


def _amounts(session: Session, amounts: Amounts) -> Resources:
    return session.snapshot.nodes.resources(amounts).positive()


def _evictions(session: Session) -> tuple[Eviction, ...]:
    nodes = session.snapshot.nodes.nodes
    return tuple(
        Eviction(
            uid=eviction.pod.uid,
            namespace=eviction.pod.namespace,
            name=eviction.pod.name,
            node=nodes[eviction.row].name,
            action=eviction.action,
            beneficiary=eviction.beneficiary.key,
        )
        for eviction in session.capacity.evictions
    )


def _queue_figures(session: Session) -> dict[str, QueueFigures]:
    """Return the figures of all queues, with what may start in this cycle counted as used."""
    started = _started(session, lambda gang: gang.queue.name)
    own = {
        name: used + started.get(name, NOTHING) for name, used in session.accounting.used.items()
    }
    wanted = {name: queue.requested for name, queue in session.queues.items()}
    with_children = _with_children(session, own)
    wanted = _with_children(session, wanted)
    return {
        name: _figures(session, queue, own[name], with_children[name], wanted[name])
        for name, queue in sorted(session.queues.items())
    }


def _started(session: Session, name_of: Callable[[GangState], str]) -> dict[str, Resources]:
    """Return the requests of all members that may start now, by a name of their gang."""
    started: dict[str, Resources] = {}
    for gang in session.accounting.contenders.values():
        if gang.committed:
            name = name_of(gang)
            started[name] = started.get(name, NOTHING) + gang.started
    return started


def _share_figures(session: Session) -> dict[str, ShareFigures]:
    """Return the figures of all shares, with what may start in this cycle counted as used."""
    started = _started(session, lambda gang: gang.share.name if gang.share else "")
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


def _with_children(session: Session, amounts: Mapping[str, Resources]) -> dict[str, Resources]:
    """Add to the amounts of every queue those of all queues below it."""
    added = dict(amounts)
    for name, queue in session.queues.items():
        if amounts[name]:
            for above in upwards(queue.parent):
                added[above.name] = added[above.name] + amounts[name]
    return added


def _figures(
    session: Session, queue: QueueUsage, own: Resources, family: Resources, wanted: Resources
) -> QueueFigures:
    deserved = session.plugins.deserved(queue) or {}
    # In a tree a parent deserves for its whole family; otherwise for its own gangs.
    used = family if session.queues_interact else own
    return QueueFigures(
        name=queue.name,
        weight=queue.queue.weight,
        deserved=_whole(deserved),
        allocated=family,
        own=own,
        requested=wanted,
        borrowed=used.without(PODS).beyond(_whole(deserved)).positive(),
        share=session.arithmetic.dominant_share(used, deserved),
        overused=any(
            not session.arithmetic.within({name: used.amount(name)}, deserved) for name in deserved
        ),
    )


def _whole(vector: Vector) -> Resources:
    """Round to whole units: Volcano's division leaves fractions and infinite amounts."""
    return Resources(
        {name: floor(amount + 0.5) for name, amount in vector.items() if amount != float("inf")}
    )

"""Room that stands idle on purpose: how much, for whom, and why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from extender.model.node import Mask
from extender.model.pod import Status
from extender.model.queue import share_words
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.plan.decision import Kept, Why
from extender.plan.session import Session

#: Members that have a node and are not seen on it yet.
_ON_THEIR_WAY = (Status.ALLOCATED, Status.BINDING)


def idle(session: Session) -> Resources:
    """Add up what is free on ready nodes, with what may start now counted as used."""
    started = total(gang.started for gang in session.census.contenders.values() if gang.committed)
    return (_free(session, session.census.ready_nodes) - started).positive()


def _free(session: Session, nodes: Mask) -> Resources:
    table = session.snapshot.nodes
    free = np.maximum(table.allocatable - table.used, 0)[nodes].sum(axis=0)
    return Resources(zip(table.dimensions, free.tolist(), strict=True))


def kept(session: Session) -> tuple[Kept, ...]:
    """Say what of the idle room is kept, guarantees first."""
    cordoned = _cordoned(session)
    free = idle(session) - cordoned.amounts
    found = (
        *_guarantees(session, free),
        *_fences(session),
        *_promised(session),
        *_coming(session),
        cordoned,
    )
    return tuple(each for each in found if each.amounts)


def _guarantees(session: Session, free: Resources) -> Iterator[Kept]:
    if not any(stake.least for stake in session.stakes):
        return
    for name, state in sorted(session.queues.items()):
        if state.quota is not None and state.quota.least:
            left = {n: min(a, free.amount(n)) for n, a in state.quota.kept.items()}
            yield Kept(Why.GUARANTEED, name, Resources(left).positive())
        for namespace, share in sorted(state.shares.items()):
            left = {n: min(a, free.amount(n)) for n, a in share.kept.items()}
            yield Kept(Why.AT_LEAST, share_words(name, namespace), Resources(left).positive())


def _fences(session: Session) -> Iterator[Kept]:
    dimensions = session.snapshot.nodes.dimensions
    for key, fences in sorted(session.fenced.items()):
        lines = (Resources(zip(dimensions, f.kept.tolist(), strict=True)) for f in fences)
        yield Kept(Why.STARVING, key, _plain(total(lines)))


def _promised(session: Session) -> Iterator[Kept]:
    for gang in session.census.contenders.values():
        if gang.pipelined:
            given = [*gang.placed[gang.committed :], *gang.pipelined]
            yield Kept(Why.PROMISED, gang.key, _plain(total(pod.requests for pod, _ in given)))


def _coming(session: Session) -> Iterator[Kept]:
    for gang in session.census.coming:
        pods = (pod for status in _ON_THEIR_WAY for pod in gang.by_status.get(status, ()))
        yield Kept(Why.COMING, gang.key, _plain(total(pod.requests for pod in pods)))


def _cordoned(session: Session) -> Kept:
    facts, ready = session.snapshot.nodes.facts, session.census.ready_nodes
    closed = facts.memo.recall(
        "cordoned", lambda: np.array([node.unschedulable for node in facts.nodes], dtype=bool)
    )
    nodes = closed & ready
    number = int(np.count_nonzero(nodes))
    where = f"{number} cordoned node{'' if number == 1 else 's'}"
    return Kept(Why.CORDONED, where, _plain(_free(session, nodes)) if number else NOTHING)


def _plain(amounts: Resources) -> Resources:
    return amounts.without(PODS).positive() if amounts else NOTHING

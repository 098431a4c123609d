"""One cycle: from a snapshot of the cluster to what should happen."""

from __future__ import annotations

import numpy as np

from extender.model.gang import Gang, Phase
from extender.model.node import Amounts, NodeTable
from extender.model.pod import Pod, PodUid
from extender.model.queue import DEFAULT_QUEUE
from extender.model.reason import Reason
from extender.model.snapshot import Snapshot
from extender.plan import policy as policies
from extender.plan.decision import Plan, Standing, Ticket, Verdict
from extender.plan.policy import Policy


def make_plan(snapshot: Snapshot, policy: Policy = policies.DEFAULT) -> Plan:
    """Decide who may start, first come, first served."""
    room = snapshot.nodes.allocatable - snapshot.nodes.used
    verdicts, tickets = {}, {}
    for gang in sorted(
        snapshot.gangs.values(), key=lambda g: (-g.priority, g.group.created, g.key)
    ):
        verdict, ticket = _judge(gang, snapshot, room)
        verdicts[gang.key] = verdict
        if ticket is not None:
            tickets[gang.key] = ticket
    waits = any(verdict.standing is Standing.WAITING for verdict in verdicts.values())
    return Plan(
        generation=snapshot.generation,
        verdicts=dict(sorted(verdicts.items())),
        tickets=dict(sorted(tickets.items())),
        open_queues=frozenset() if waits else frozenset({DEFAULT_QUEUE, *snapshot.queues}),
    )


def _judge(gang: Gang, snapshot: Snapshot, room: Amounts) -> tuple[Verdict, Ticket | None]:
    if gang.problem is not None:
        return _verdict(gang, Standing.INVALID, gang.problem.reason, gang.problem.message), None
    if gang.backing_off_until > snapshot.now:
        return _verdict(gang, Standing.WAITING, Reason.BACKING_OFF, "tried again later"), None
    if gang.queue != DEFAULT_QUEUE and gang.queue not in snapshot.queues:
        message = f"queue {gang.queue} does not exist"
        return _verdict(gang, Standing.WAITING, Reason.QUEUE_NOT_FOUND, message), None
    missing = gang.group.min_member - gang.ready
    if len(gang.waiting) < missing:
        message = f"has {gang.ready + len(gang.waiting)} of {gang.group.min_member} members"
        return _verdict(gang, Standing.WAITING, Reason.NOT_ENOUGH_MEMBERS, message), None
    placements = _place(gang.waiting, snapshot.nodes, room, missing)
    if placements is None:
        message = f"needs room for {missing} members"
        return _verdict(gang, Standing.WAITING, Reason.NOT_ENOUGH_ROOM, message), None
    ticket = Ticket(gang=gang.key, placements=placements) if placements else None
    if gang.seated >= gang.group.min_member:
        return _verdict(gang, Standing.RUNNING, Reason.RUNNING, "runs"), ticket
    return _verdict(gang, Standing.ADMITTED, Reason.ADMITTED, "may start"), ticket


def _place(
    pods: tuple[Pod, ...], table: NodeTable, room: Amounts, needed: int
) -> dict[PodUid, str] | None:
    placed: dict[PodUid, str] = {}
    trial = room.copy()
    for pod in pods:
        need = np.array([pod.requests.amount(name) for name in table.dimensions], dtype=np.int64)
        fits = np.flatnonzero((trial >= need).all(axis=1))
        if len(fits) == 0:
            break
        trial[fits[0]] -= need
        placed[pod.uid] = table.nodes[fits[0]].name
    if len(placed) < needed:
        return None
    room[:] = trial
    return placed


def _verdict(gang: Gang, standing: Standing, reason: Reason, message: str) -> Verdict:
    return Verdict(
        gang=gang.key,
        queue=gang.queue,
        standing=standing,
        reason=reason,
        message=message,
        phase=Phase.RUNNING if standing is Standing.RUNNING else Phase.INQUEUE,
        min_member=gang.group.min_member,
        members=len(gang.pods),
    )

"""May this bind call come in, and may it go on waiting? Judged from the mirror alone.

The second is asked on every change, and of all members before a commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from extender.holds.machine import quorum
from extender.holds.machine.assembly import Hold
from extender.holds.machine.cause import Cause
from extender.holds.machine.messages import Facts
from extender.model.gang import GangKey, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, Status
from extender.plan.room.node_match import takes
from extender.ports import BindOrder

#: The API server has not shown these on any node, whatever we have planned for them.
UNSEATED_SET = frozenset({Status.PENDING, Status.PIPELINED, Status.ALLOCATED, Status.BINDING})


class Refuse(msgspec.Struct, frozen=True):
    """Answer with an error at once."""

    cause: Cause
    gang: GangKey | None = None


class Present(msgspec.Struct, frozen=True):
    """The API server has shown the pod on that very node: answer with success at once."""


class BindNow(msgspec.Struct, frozen=True):
    """There is nothing to wait for."""

    gang: GangKey | None = None
    role: str = ""


class Wait(msgspec.Struct, frozen=True):
    """Hold it until its gang can start; who *follows*, until those who were sent have done so."""

    group: PodGroup
    role: str
    follows: bool = False


Entry: TypeAlias = Refuse | Present | BindNow | Wait


def judge(order: BindOrder, facts: Facts) -> Entry:
    """Judge an arriving call."""
    pod = facts.arriving(order.uid)
    gang = facts.gang_of(order.uid)
    if pod is None or pod.status is Status.RELEASING:
        return Refuse(Cause.POD_GONE, gang)
    if pod.status not in UNSEATED_SET:
        return Present() if pod.node == order.node else Refuse(Cause.POD_ELSEWHERE, gang)
    if gang is None:
        return BindNow()
    return _judge_member(pod, gang, facts)


def _judge_member(pod: Pod, gang: GangKey, facts: Facts) -> Entry:
    group = facts.group(gang)
    if group is None:
        return Refuse(Cause.GROUP_GONE, gang)
    if group.problem:
        return Refuse(Cause.GROUP_UNUSABLE, gang)
    if group.min_member <= 1 and not group.role_minima:
        return BindNow()  # it promises nothing that a single bind could break
    if facts.may_lose(pod.uid):
        return Refuse(Cause.POD_GRANTED, gang)
    if facts.seated(gang) >= group.min_member and quorum.is_satisfied(
        group, quorum.seats(group, facts)
    ):
        if facts.may_lose_all(gang):
            return Refuse(Cause.GANG_GRANTED, gang)
        return BindNow(gang, pod.role)
    return Wait(group, pod.role)


def objection(hold: Hold, facts: Facts) -> Cause | None:
    """Say why a held pod may wait no longer; BOUND when it is on its node already."""
    pod = facts.arriving(hold.uid)  # our watch may be behind kube-scheduler's
    if pod is None or pod.status is Status.RELEASING:
        return Cause.POD_GONE
    if pod.status not in UNSEATED_SET:
        return Cause.BOUND if pod.node == hold.node else Cause.POD_ELSEWHERE
    if pod.gated or facts.gang_of(hold.uid) != hold.gang:
        return Cause.POD_CHANGED
    if facts.may_lose(hold.uid):
        return Cause.POD_GRANTED  # whoever counted on it would start and lose it at once
    return None if _will_take(facts.node(hold.node), pod) else Cause.NODE_LOST


def crowded_out(holds: Iterable[Hold], facts: Facts) -> Iterator[Hold]:
    """Give the holds whose node has no room any more for all of them that want to go there."""
    by_node: defaultdict[str, list[Hold]] = defaultdict(list)
    for hold in holds:
        by_node[hold.order.node].append(hold)
    for node, there in by_node.items():
        if not facts.fits(node, [hold.uid for hold in there]):
            yield from there


def group_objection(group: PodGroup | None, uid: str) -> Cause | None:
    """Say why an assembly of the PodGroup *uid* cannot go on with *group*."""
    if group is None:
        return Cause.GROUP_GONE
    if group.uid != uid:
        return Cause.GROUP_REPLACED
    return Cause.GROUP_UNUSABLE if group.problem else None


def _will_take(node: Node | None, pod: Pod) -> bool:
    """Ask whether a node still stands for a pod; the API server would bind to any name."""
    return node is not None and takes(node, pod.shape)

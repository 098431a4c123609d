"""May this bind call come in, and must it wait? Judged from the mirror alone."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from extender.holds.machine import quorum
from extender.holds.machine.cause import Cause
from extender.holds.machine.facts import Facts
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import Pod, Status
from extender.ports import BindOrder

#: The API server has not shown these on any node, whatever we have planned for them.
UNSEATED_SET = frozenset({Status.PENDING, Status.PIPELINED, Status.ALLOCATED, Status.BINDING})


class Refuse(msgspec.Struct, frozen=True):
    """Answer with an error at once."""

    cause: Cause
    gang: GangKey | None = None


class Present(msgspec.Struct, frozen=True):
    """The API server has shown the pod on that very node: answer with success at once."""

    gang: GangKey | None = None


class BindNow(msgspec.Struct, frozen=True):
    """There is nothing to wait for."""

    gang: GangKey | None = None
    role: str = ""


class Wait(msgspec.Struct, frozen=True):
    """Hold it until its gang can start."""

    group: PodGroup
    role: str


Entry: TypeAlias = Refuse | Present | BindNow | Wait


def judge(order: BindOrder, facts: Facts) -> Entry:
    """Judge an arriving call."""
    pod = facts.arriving(order.uid)
    gang = facts.gang_of(order.uid)
    if pod is None or pod.status is Status.RELEASING:
        return Refuse(Cause.POD_GONE, gang)
    if pod.status not in UNSEATED_SET:
        return Present(gang) if pod.node == order.node else Refuse(Cause.POD_ELSEWHERE, gang)
    if gang is None:
        return BindNow()
    return _judge_member(pod, gang, facts)


def _judge_member(pod: Pod, gang: GangKey, facts: Facts) -> Entry:
    group = facts.group(gang)
    if group is None:
        return Refuse(Cause.GROUP_GONE, gang)
    if group.problem:
        return Refuse(Cause.GROUP_UNUSABLE, gang)
    if group.min_member <= 1 and not quorum.role_minima(group):
        return BindNow()  # it promises nothing that a single bind could break
    if facts.seated(gang) >= group.min_member and quorum.is_satisfied(
        group, quorum.seats(group, facts)
    ):
        return BindNow(gang, pod.role)
    return Wait(group, pod.role)

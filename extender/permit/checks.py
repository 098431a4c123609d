"""Are there enough members, in total and of each role?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from operator import attrgetter
from typing import TypeAlias

import msgspec

from extender.model.gang import GangKey, PodGroup
from extender.model.matching import accepts
from extender.model.node import Node
from extender.model.pod import Pod, PodUid, Status
from extender.permit.messages import Cause, Facts
from extender.permit.states import GangAttempt, ScheduledCounts, WaitingBind
from extender.ports import BindOrder

_PROMISE = attrgetter("uid", "min_member", "min_by_role", "problem")


def is_same_request(one: PodGroup | None, other: PodGroup | None) -> bool:
    """Return whether nothing changed that a gang is judged by; most changes are of status only."""
    if one is None or other is None:
        return one is other
    return _PROMISE(one) == _PROMISE(other)


def scheduled_counts(group: PodGroup, facts: Facts) -> ScheduledCounts:
    """Count the members on a node."""
    key = group.key
    return ScheduledCounts(
        facts.seated(key),
        {role: facts.seated_in_role(key, role) for role in group.role_minima},
    )


def is_satisfied(group: PodGroup, seated: ScheduledCounts) -> bool:
    """Return whether the gang runs already, so that further members need not wait."""
    return _are_enough(group, (), seated)


def is_reached(group: PodGroup, holds: Collection[WaitingBind], seated: ScheduledCounts) -> bool:
    """Return whether seated and held members together are enough; none of *holds* may be seated."""
    return _are_enough(group, [hold.role for hold in holds], seated)


#: A PodGroup as somebody showed it, and who sits already by its roles.
Demand: TypeAlias = tuple[PodGroup, ScheduledCounts]


def needed(demands: Iterable[Demand], holds: Collection[WaitingBind]) -> tuple[WaitingBind, ...]:
    """Return those of *holds* who make the gang whole, by all of *demands*."""
    found: dict[PodUid, WaitingBind] = {}
    for group, seated in demands:
        found |= {hold.uid: hold for hold in _needed(group, holds, seated)}
    return tuple(found.values())


def _needed(
    group: PodGroup, holds: Iterable[WaitingBind], seated: ScheduledCounts
) -> list[WaitingBind]:
    missing = {
        role: max(0, least - seated.by_role[role]) for role, least in group.role_minima.items()
    }
    needed: list[WaitingBind] = []
    others: list[WaitingBind] = []
    for hold in holds:
        is_missing = missing.get(hold.role, 0) > 0
        if is_missing:
            missing[hold.role] -= 1
        (needed if is_missing else others).append(hold)
    free = max(0, group.min_member - seated.total - len(needed))
    return [*needed, *others[:free]]


def is_complete(assembly: GangAttempt, stayed: Iterable[PodUid]) -> bool:
    """Return whether those of the bound who *stayed* are enough beside who was there before."""
    roles = [assembly.bound[uid] for uid in stayed]
    return _are_enough(assembly.group, roles, assembly.scheduled_before)


def _are_enough(group: PodGroup, coming: Collection[str], seated: ScheduledCounts) -> bool:
    if seated.total + len(coming) < group.min_member:
        return False
    roles = Counter(coming if group.role_minima else ())
    return all(
        seated.by_role[role] + roles[role] >= least for role, least in group.role_minima.items()
    )


def is_within_reach(assembly: GangAttempt, facts: Facts) -> bool:
    """Return whether the members that exist could still be enough."""
    hopeful = [pod.role for pod in facts.pods_of(assembly.key) if may_come(pod, assembly)]
    nobody = ScheduledCounts(0, dict.fromkeys(assembly.group.role_minima, 0))
    return _are_enough(assembly.group, hopeful, nobody)


def may_come(pod: Pod, assembly: GangAttempt) -> bool:
    """Return whether a member is seated, or may yet come to the barrier."""
    if pod.status is Status.FAILED or pod.status is Status.RELEASING or pod.gated:
        return False
    return pod.uid not in assembly.stuck


def waits_for_victims(pod: Pod, facts: Facts) -> bool:
    """Return whether kube-scheduler did find a node for a pod, and only waits for others to leave it.

    It nominates the pod there in the same write that says it fits no node now. A nomination to the
    reserved node is our own, written to wake the pod; so is one that comes later.
    """
    return bool(pod.nominated) and pod.nominated != facts.reserved_node(pod.uid)


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
        return Refuse(Cause.POD_PREEMPTED, gang)
    if facts.seated(gang) >= group.min_member and is_satisfied(
        group, scheduled_counts(group, facts)
    ):
        if facts.may_lose_all(gang):
            return Refuse(Cause.GANG_PREEMPTED, gang)
        return BindNow(gang, pod.role)
    return Wait(group, pod.role)


def objection(hold: WaitingBind, facts: Facts) -> Cause | None:
    """Return why a held pod may wait no longer; BOUND when it is on its node already."""
    pod = facts.arriving(hold.uid)  # our watch may be behind kube-scheduler's
    if pod is None or pod.status is Status.RELEASING:
        return Cause.POD_GONE
    if pod.status not in UNSEATED_SET:
        return Cause.BOUND if pod.node == hold.node else Cause.POD_ELSEWHERE
    if pod.gated or facts.gang_of(hold.uid) != hold.gang:
        return Cause.POD_CHANGED
    if facts.may_lose(hold.uid):
        return Cause.POD_PREEMPTED  # whoever counted on it would start and lose it at once
    return None if _will_take(facts.node(hold.node), pod) else Cause.NODE_LOST


def displaced(holds: Iterable[WaitingBind], facts: Facts) -> Iterator[WaitingBind]:
    """Return the holds whose node has no room any more for all of them that want to go there."""
    by_node: defaultdict[str, list[WaitingBind]] = defaultdict(list)
    for hold in holds:
        by_node[hold.order.node].append(hold)
    for node, there in by_node.items():
        if not facts.fits(node, [hold.uid for hold in there]):
            yield from there


def group_objection(group: PodGroup | None, uid: str) -> Cause | None:
    """Return why an assembly of the PodGroup *uid* cannot go on with *group*."""
    if group is None:
        return Cause.GROUP_GONE
    if group.uid != uid:
        return Cause.GROUP_REPLACED
    return Cause.GROUP_UNUSABLE if group.problem else None


def _will_take(node: Node | None, pod: Pod) -> bool:
    """Return whether a node still stands for a pod; the API server would bind to any name."""
    return node is not None and accepts(node, pod.shape)

"""Pure checks: whether enough members are there, and whether a bind may wait or be sent."""

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

_REQUEST = attrgetter("uid", "min_member", "min_by_role", "problem")


def is_same_request(one: PodGroup | None, other: PodGroup | None) -> bool:
    """Return whether all that a gang is checked by is unchanged; most changes affect its status."""
    if one is None or other is None:
        return one is other
    return _REQUEST(one) == _REQUEST(other)


def scheduled_counts(group: PodGroup, facts: Facts) -> ScheduledCounts:
    """Count the scheduled members."""
    key = group.key
    return ScheduledCounts(
        facts.scheduled(key),
        {role: facts.scheduled_in_role(key, role) for role in group.role_minima},
    )


def is_satisfied(group: PodGroup, scheduled: ScheduledCounts) -> bool:
    """Return whether the gang already runs, so that further members need not wait."""
    return _are_enough(group, (), scheduled)


def is_reached(group: PodGroup, binds: Collection[WaitingBind], scheduled: ScheduledCounts) -> bool:
    """Return whether scheduled members and *binds* are enough; none of *binds* may be scheduled."""
    return _are_enough(group, [bind.role for bind in binds], scheduled)


#: A PodGroup from one source, and the scheduled members of its roles.
Demand: TypeAlias = tuple[PodGroup, ScheduledCounts]


def needed(demands: Iterable[Demand], binds: Collection[WaitingBind]) -> tuple[WaitingBind, ...]:
    """Return those of *binds* that complete the gang, by all of *demands*."""
    found: dict[PodUid, WaitingBind] = {}
    for group, scheduled in demands:
        found |= {bind.uid: bind for bind in _needed(group, binds, scheduled)}
    return tuple(found.values())


def _needed(
    group: PodGroup, binds: Iterable[WaitingBind], scheduled: ScheduledCounts
) -> list[WaitingBind]:
    missing = {
        role: max(0, least - scheduled.by_role[role]) for role, least in group.role_minima.items()
    }
    needed: list[WaitingBind] = []
    others: list[WaitingBind] = []
    for bind in binds:
        is_missing = missing.get(bind.role, 0) > 0
        if is_missing:
            missing[bind.role] -= 1
        (needed if is_missing else others).append(bind)
    free = max(0, group.min_member - scheduled.total - len(needed))
    return [*needed, *others[:free]]


def is_complete(attempt: GangAttempt, stayed: Iterable[PodUid]) -> bool:
    """Return whether the bound members that *stayed* are enough besides the earlier ones."""
    roles = [attempt.bound[uid] for uid in stayed]
    return _are_enough(attempt.group, roles, attempt.scheduled_before)


def _are_enough(group: PodGroup, coming: Collection[str], scheduled: ScheduledCounts) -> bool:
    if scheduled.total + len(coming) < group.min_member:
        return False
    roles = Counter(coming if group.role_minima else ())
    return all(
        scheduled.by_role[role] + roles[role] >= least for role, least in group.role_minima.items()
    )


def is_within_reach(attempt: GangAttempt, facts: Facts) -> bool:
    """Return whether the existing members could still be enough."""
    roles = [pod.role for pod in facts.pods_of(attempt.key) if may_come(pod, attempt)]
    none_scheduled = ScheduledCounts(0, dict.fromkeys(attempt.group.role_minima, 0))
    return _are_enough(attempt.group, roles, none_scheduled)


def may_come(pod: Pod, attempt: GangAttempt) -> bool:
    """Return whether a member is scheduled, or may still come to bind."""
    if pod.status is Status.FAILED or pod.status is Status.RELEASING or pod.gated:
        return False
    return pod.uid not in attempt.stuck


def waits_for_victims(pod: Pod, facts: Facts) -> bool:
    """Return whether kube-scheduler found a node for a pod, and waits for its victims.

    It nominates the pod there in the same write that says it fits no node now. A nomination to the
    reserved node is our own, written to wake the pod; so is one that comes later.
    """
    return bool(pod.nominated) and pod.nominated != facts.reserved_node(pod.uid)


#: The API server has not shown pods of these states on a node, whatever the plan says.
UNSCHEDULED_SET = frozenset({Status.PENDING, Status.ALLOCATED, Status.BINDING})


class Refuse(msgspec.Struct, frozen=True):
    """Answer with an error at once."""

    cause: Cause
    gang: GangKey | None = None


class Present(msgspec.Struct, frozen=True):
    """The API server has shown the pod on that node: answer with success at once."""


class BindNow(msgspec.Struct, frozen=True):
    """Bind at once; there is nothing to wait for."""

    gang: GangKey | None = None
    role: str = ""


class Wait(msgspec.Struct, frozen=True):
    """Wait until the gang can start; one that *follows* waits for the outcome of the others."""

    group: PodGroup
    role: str
    follows: bool = False


Entry: TypeAlias = Refuse | Present | BindNow | Wait


def judge(order: BindOrder, facts: Facts) -> Entry:
    """Check an arriving call."""
    pod = facts.pod_or_filtered(order.uid)
    gang = facts.gang_of(order.uid)
    if pod is None or pod.status is Status.RELEASING:
        return Refuse(Cause.POD_GONE, gang)
    if pod.status not in UNSCHEDULED_SET:
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
        return BindNow()  # a single bind cannot break its guarantees
    if facts.may_lose(pod.uid):
        return Refuse(Cause.POD_PREEMPTED, gang)
    if facts.scheduled(gang) >= group.min_member and is_satisfied(
        group, scheduled_counts(group, facts)
    ):
        if facts.may_lose_all(gang):
            return Refuse(Cause.GANG_PREEMPTED, gang)
        return BindNow(gang, pod.role)
    return Wait(group, pod.role)


def cause_to_refuse(bind: WaitingBind, facts: Facts) -> Cause | None:
    """Return why a waiting bind must end; BOUND when its pod is on its node already."""
    pod = facts.pod_or_filtered(bind.uid)  # our watch may be behind that of kube-scheduler
    if pod is None or pod.status is Status.RELEASING:
        return Cause.POD_GONE
    if pod.status not in UNSCHEDULED_SET:
        return Cause.BOUND if pod.node == bind.node else Cause.POD_ELSEWHERE
    if pod.gated or facts.gang_of(bind.uid) != bind.gang:
        return Cause.POD_CHANGED
    if facts.may_lose(bind.uid):
        return Cause.POD_PREEMPTED  # a gang that counts on it would start and lose it at once
    return None if _accepts(facts.node(bind.node), pod) else Cause.NODE_LOST


def displaced(binds: Iterable[WaitingBind], facts: Facts) -> Iterator[WaitingBind]:
    """Return the binds whose node has no longer enough free capacity for all of them."""
    by_node: defaultdict[str, list[WaitingBind]] = defaultdict(list)
    for bind in binds:
        by_node[bind.order.node].append(bind)
    for node, wanted in by_node.items():
        if not facts.fits(node, [bind.uid for bind in wanted]):
            yield from wanted


def cause_to_refuse_group(group: PodGroup | None, uid: str) -> Cause | None:
    """Return why an attempt of the PodGroup *uid* cannot continue with *group*."""
    if group is None:
        return Cause.GROUP_GONE
    if group.uid != uid:
        return Cause.GROUP_REPLACED
    return Cause.GROUP_UNUSABLE if group.problem else None


def _accepts(node: Node | None, pod: Pod) -> bool:
    """Return whether a node still accepts a pod; the API server would bind to any name."""
    return node is not None and accepts(node, pod.shape)

"""Gangs for the planner, rebuilt only where something changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

from extender.cache.members import GangMembers
from extender.cache.queue_policy import QueueResolver
from extender.cache.reservation_table import Reservation
from extender.model.gang import Gang, GangKey, PodGroup
from extender.model.pod import ALLOCATED_SET, FINISHED_SET, Pod, PodUid, Status
from extender.model.reason import Problem, Reason

_MOST_STALE = 1_000


class Gangs:
    """The last published mapping, and the gangs to rebuild for the next one."""

    def __init__(self) -> None:
        self._published: dict[GangKey, Gang] = {}
        self._stale: set[GangKey] = set()
        #: With more stale gangs than this, those that no longer exist are dropped.
        self._most_stale = _MOST_STALE

    def touch(self, keys: Iterable[GangKey]) -> None:
        """Mark these gangs for a rebuild."""
        self._stale.update(keys)

    def touch_all(self) -> None:
        """Mark every gang for a rebuild: a policy on which all depend changed."""
        self._stale.update(self._published)

    def touch_namespace(self, namespace: str) -> None:
        """Mark the gangs of one namespace for a rebuild."""
        prefix = f"{namespace}/"
        self._stale.update(key for key in self._published if key.startswith(prefix))

    @property
    def stale(self) -> set[GangKey]:
        """Return the gangs that will be rebuilt."""
        return self._stale

    def tidy(self, is_there: Callable[[GangKey], bool]) -> None:
        """Forget gangs that came and went since `publish`, which a standby does not call."""
        if len(self._stale) <= self._most_stale:
            return
        self._stale = {key for key in self._stale if key in self._published or is_there(key)}
        self._most_stale = max(_MOST_STALE, 2 * len(self._stale))

    def publish(self, build: Callable[[GangKey], Gang | None]) -> Mapping[GangKey, Gang]:
        """Return all gangs, sorted by key; unchanged ones are shared with the last mapping."""
        if not self._stale:
            return self._published
        stale, self._stale = self._stale, set()
        gangs = dict(self._published)
        grown = False
        for key in stale:
            gang = build(key)
            if gang is None:
                gangs.pop(key, None)
                continue
            grown = grown or key not in gangs
            gangs[key] = gang
        self._published = {key: gangs[key] for key in sorted(gangs)} if grown else gangs
        return self._published


def assemble(
    key: GangKey,
    written: PodGroup | None,
    members: GangMembers | None,
    reservations: dict[PodUid, Reservation],
    policy: QueueResolver,
    backing_off_until: float,
    rejected: Set[str] = frozenset(),
) -> Gang | None:
    """Build a gang of a PodGroup, members and reservations; None when there is nothing to plan."""
    pods = _members(members, reservations)
    if members is not None:
        pods = _with_own_shapes(pods, members, rejected)
    group = written or (members.implicit_group() if members and members.pods else None)
    if group is None:
        if not pods:
            return None
        group = _missing(key, pods, is_seen=members is not None)
    if written is None and all(pod.status in FINISHED_SET for pod in pods):
        return None
    if members is None and written is None:
        # Only filter has seen its pods so far; it admitted them in the queue of the reservation.
        queue, misplaced = next(iter(reservations.values())).queue, None
    else:
        started_in = members.started_in if members else ""
        queue, misplaced = policy.resolve(group.namespace, group.queue, started_in)
    is_exempt = group.exempt or (bool(pods) and all(pod.is_exempt for pod in pods))
    if is_exempt or any(pod.status in ALLOCATED_SET for pod in pods):
        queue = policy.accounting_queue(group.namespace, queue)
    rank = policy.rank(group, pods)
    if not rank.may_preempt:
        pods = tuple(map(_without_preemption, pods))
    return Gang(
        group=group,
        pods=pods,
        queue=queue,
        priority=rank.value,
        problem=None if is_exempt else _problem(group, members) or misplaced,
        remark="; ".join(
            filter(None, (rank.remark, group.remark, members.remark if members else ""))
        ),
        backing_off_until=backing_off_until,
    )


def _members(
    members: GangMembers | None, reservations: dict[PodUid, Reservation]
) -> tuple[Pod, ...]:
    if not reservations:
        pods = [members.pods[uid] for uid in members.in_order()] if members else []
    else:
        pods = _with_reservations(members or GangMembers(), reservations)
    if members is not None and members.is_native:
        # kube-scheduler itself plans its pending members.
        pods = [pod for pod in pods if pod.status is not Status.PENDING]
    return tuple(pods)


def _with_own_shapes(
    pods: tuple[Pod, ...], members: GangMembers, rejected: Set[str]
) -> tuple[Pod, ...]:
    """Give the pending pods of a gang with rejected nodes shapes of their own.

    The planner checks nodes by shape; a node that is rejected for this gang must stay available
    to other gangs of the same shape.
    """
    if not rejected:
        members.own_shapes = {}
        return pods
    for pod in pods:
        if pod.status is Status.PENDING and pod.shape not in members.own_shapes:
            members.own_shapes[pod.shape] = replace(pod.shape)
    own = members.own_shapes
    return tuple(
        replace(pod, shape=own[pod.shape]) if pod.status is Status.PENDING else pod for pod in pods
    )


def _with_reservations(members: GangMembers, reservations: dict[PodUid, Reservation]) -> list[Pod]:
    """Show pods on their reserved nodes; kube-scheduler may have seen some before our watch."""
    uids = members.in_order()
    if not reservations.keys() <= members.pods.keys():
        uids = tuple(sorted(members.pods.keys() | reservations.keys()))
    shown: dict[PodUid, tuple[Pod, Pod]] = {}
    pods: list[Pod] = []
    for uid in uids:
        reservation, pod = reservations.get(uid), members.pods.get(uid)
        if reservation is not None:
            before = members.shown.get(uid)
            shown[uid] = _with_reservation(pod or reservation.pod, reservation, before)
            pods.append(shown[uid][1])
        elif pod is not None:
            pods.append(pod)
    members.shown = shown
    return pods


def _with_reservation(
    pod: Pod, reservation: Reservation, before: tuple[Pod, Pod] | None
) -> tuple[Pod, Pod]:
    """Pair *pod* with the pod that the planner sees: on its reserved node."""
    status = pod.status if pod.status is Status.RELEASING else reservation.status
    if before is not None and before[0] is pod:
        shown = before[1]
        if shown.status is status and shown.node == reservation.node:
            return before
    # Field by field, because `replace` takes three times as long and there may be thousands.
    return pod, Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        shape=pod.shape,
        status=status,
        node=reservation.node,
        role=pod.role,
        priority=pod.priority,
        task_priority=pod.task_priority,
        priority_class=pod.priority_class,
        created=pod.created,
        leaves_by=pod.leaves_by,
        gated=pod.gated,
        preemptable=pod.preemptable,
        may_preempt=pod.may_preempt,
        ours=pod.ours,
        scheduler=pod.scheduler,
        exempt=pod.exempt,
        nominated=pod.nominated,
        started_in=pod.started_in,
        terminating=pod.terminating,
        labels=pod.labels,
        lasts_s=pod.lasts_s,
        deadline_s=pod.deadline_s,
        grace_s=pod.grace_s,
        refusal=pod.refusal,
    )


def _without_preemption(pod: Pod) -> Pod:
    is_unaffected = pod.status is not Status.PENDING or not pod.may_preempt
    return pod if is_unaffected else replace(pod, may_preempt=False)


def _missing(key: GangKey, pods: Iterable[Pod], *, is_seen: bool) -> PodGroup:
    """Return a stand-in for a missing PodGroup, which may still come if only filter saw the gang.

    It is as old as its oldest pod, so that deleting a PodGroup does not move a gang forward.
    """
    namespace, _, name = key.partition("/")
    mend = "create it, or set gang-extender.io/min-member on its pods"
    problem = f"PodGroup {key} does not exist; {mend}" if is_seen else ""
    created = min((pod.created for pod in pods), default=0.0)
    return PodGroup(namespace=namespace, name=name, created=created, problem=problem)


def _problem(group: PodGroup, members: GangMembers | None) -> Problem | None:
    message = group.problem or (members.problem if members else "")
    return Problem(Reason.POD_GROUP_MISSING, message) if message else None

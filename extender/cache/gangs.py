"""Gangs as the plan sees them, rebuilt only where something changed."""

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
    """The last published mapping and what has to be rebuilt before the next one."""

    def __init__(self) -> None:
        self._published: dict[GangKey, Gang] = {}
        self._stale: set[GangKey] = set()
        #: How many may be stale before those are looked for of whom nothing is left.
        self._most_stale = _MOST_STALE

    def touch(self, keys: Iterable[GangKey]) -> None:
        """Have these rebuilt."""
        self._stale.update(keys)

    def touch_all(self) -> None:
        """Have every gang rebuilt: a policy they all depend on changed."""
        self._stale.update(self._published)

    def touch_namespace(self, namespace: str) -> None:
        """Have the gangs of one namespace rebuilt."""
        prefix = f"{namespace}/"
        self._stale.update(key for key in self._published if key.startswith(prefix))

    @property
    def stale(self) -> set[GangKey]:
        """Name the gangs that will be rebuilt."""
        return self._stale

    def tidy(self, is_there: Callable[[GangKey], bool]) -> None:
        """Forget who came and went since the last answer; a standby gives none for days."""
        if len(self._stale) <= self._most_stale:
            return
        self._stale = {key for key in self._stale if key in self._published or is_there(key)}
        self._most_stale = max(_MOST_STALE, 2 * len(self._stale))

    def publish(self, build: Callable[[GangKey], Gang | None]) -> Mapping[GangKey, Gang]:
        """Give all gangs, sorted by key; what did not change is shared with the last answer."""
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
    roster: GangMembers | None,
    promises: dict[PodUid, Reservation],
    policy: QueueResolver,
    backing_off_until: float,
    misfits: Set[str] = frozenset(),
) -> Gang | None:
    """Join a group with its members and its promises; None when there is nothing to plan."""
    pods = _members(roster, promises)
    if roster is not None:
        pods = _in_own_shapes(pods, roster, misfits)
    group = written or (roster.made_since() if roster and roster.pods else None)
    if group is None:
        if not pods:
            return None
        group = _missing(key, pods, is_seen=roster is not None)
    if written is None and all(pod.status in FINISHED_SET for pod in pods):
        return None
    if roster is None and written is None:
        # Only filter has seen its pods so far; it was let into the queue that was promised.
        queue, misplaced = next(iter(promises.values())).queue, None
    else:
        started_in = roster.started_in if roster else ""
        queue, misplaced = policy.resolve(group.namespace, group.queue, started_in)
    is_exempt = group.exempt or (bool(pods) and all(pod.is_exempt for pod in pods))
    if is_exempt or any(pod.status in ALLOCATED_SET for pod in pods):
        queue = policy.accounting_queue(group.namespace, queue)
    rank = policy.rank(group, pods)
    if not rank.may_preempt:
        pods = tuple(map(_without_claims, pods))
    return Gang(
        group=group,
        pods=pods,
        queue=queue,
        priority=rank.value,
        problem=None if is_exempt else _problem(group, roster) or misplaced,
        remark="; ".join(
            filter(None, (rank.remark, group.remark, roster.remark if roster else ""))
        ),
        backing_off_until=backing_off_until,
    )


def _members(roster: GangMembers | None, promises: dict[PodUid, Reservation]) -> tuple[Pod, ...]:
    if not promises:
        pods = [roster.pods[uid] for uid in roster.in_order()] if roster else []
    else:
        pods = _with_promises(roster or GangMembers(), promises)
    if roster is not None and roster.is_native:
        # Those that wait are kube-scheduler's own business.
        pods = [pod for pod in pods if pod.status is not Status.PENDING]
    return tuple(pods)


def _in_own_shapes(
    pods: tuple[Pod, ...], roster: GangMembers, misfits: Set[str]
) -> tuple[Pod, ...]:
    """Tell the waiting pods of a gang that does not fit somewhere from others of their shape.

    The plan asks about nodes by shape; what kube-scheduler found wrong with this gang must bar
    its nodes to nobody else.
    """
    if not misfits:
        roster.own_shapes = {}
        return pods
    for pod in pods:
        if pod.status is Status.PENDING and pod.shape not in roster.own_shapes:
            roster.own_shapes[pod.shape] = replace(pod.shape)
    own = roster.own_shapes
    return tuple(
        replace(pod, shape=own[pod.shape]) if pod.status is Status.PENDING else pod for pod in pods
    )


def _with_promises(roster: GangMembers, promises: dict[PodUid, Reservation]) -> list[Pod]:
    """Show promised pods where they will be; kube-scheduler may have seen some before our watch."""
    uids = roster.in_order()
    if not promises.keys() <= roster.pods.keys():
        uids = tuple(sorted(roster.pods.keys() | promises.keys()))
    shown: dict[PodUid, tuple[Pod, Pod]] = {}
    pods: list[Pod] = []
    for uid in uids:
        promise, pod = promises.get(uid), roster.pods.get(uid)
        if promise is not None:
            shown[uid] = _promised(pod or promise.pod, promise, roster.shown.get(uid))
            pods.append(shown[uid][1])
        elif pod is not None:
            pods.append(pod)
    roster.shown = shown
    return pods


def _promised(pod: Pod, promise: Reservation, before: tuple[Pod, Pod] | None) -> tuple[Pod, Pod]:
    """Pair *pod* with what the plan sees: the pod on the node it was promised."""
    status = pod.status if pod.status is Status.RELEASING else promise.status
    if before is not None and before[0] is pod:
        shown = before[1]
        if shown.status is status and shown.node == promise.node:
            return before
    # Field by field, because `replace` takes three times as long and there may be thousands.
    return pod, Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        shape=pod.shape,
        status=status,
        node=promise.node,
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


def _without_claims(pod: Pod) -> Pod:
    is_free = pod.status is not Status.PENDING or not pod.may_preempt
    return pod if is_free else replace(pod, may_preempt=False)


def _missing(key: GangKey, pods: Iterable[Pod], *, is_seen: bool) -> PodGroup:
    """Stand in for a group nobody wrote; of a gang that only filter has seen it may still come.

    It is as old as its oldest pod: nobody gets in front of others by deleting a PodGroup.
    """
    namespace, _, name = key.partition("/")
    mend = "create it, or set gang-extender.io/min-member on its pods"
    problem = f"PodGroup {key} does not exist; {mend}" if is_seen else ""
    created = min((pod.created for pod in pods), default=0.0)
    return PodGroup(namespace=namespace, name=name, created=created, problem=problem)


def _problem(group: PodGroup, roster: GangMembers | None) -> Problem | None:
    message = group.problem or (roster.problem if roster else "")
    return Problem(Reason.POD_GROUP_MISSING, message) if message else None

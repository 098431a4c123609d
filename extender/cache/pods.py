"""Every known pod, with its gang and the capacity it uses.

Changes are published in a fixed order: the pod, its usage, the end of its reservation, its place in
the count of scheduled members. So a reader without a lock may count the usage of a pod twice for a
moment, but never misses it. It may miss a scheduled member for a moment, but never counts it twice.

The capacity of a deleted pod counts as releasing, but not for ever. A finalizer, or a kubelet that
is gone, may keep a pod in Terminating for good, and a gang must not wait for its capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from extender.cache.budget_gangs import AffectedPods
from extender.cache.changes import ChangeSet, SeenPod
from extender.cache.gang_history import RejectedNodes
from extender.cache.gangs import Gangs
from extender.cache.members import GangMembers
from extender.cache.nodes import NodeUsage
from extender.cache.reservation_table import ReservationTable
from extender.model.gang import GangKey, Membership
from extender.model.pod import FINISHED_SET, Pod, PodUid, Status

#: So long after the end of its grace period a pod is still expected to terminate.
STUCK_S = 60.0
#: The longest grace period of a pod that is waited for.
LONGEST_GRACE_S = 1800.0


class Pods:
    """One thread writes at a time; reads take no lock."""

    def __init__(
        self,
        usage: NodeUsage,
        gangs: Gangs,
        reservations: ReservationTable,
        rejected: RejectedNodes,
        expected_until: Callable[[Pod], float],
        membership: Callable[[Pod, Membership], Membership] | None = None,
    ) -> None:
        """*membership* replaces the membership that a pod declares, where others may define it."""
        self._usage = usage
        self._gangs = gangs
        self._reservations = reservations
        self._rejected_nodes = rejected
        self._pods: dict[PodUid, Pod] = {}
        self._memberships: dict[PodUid, Membership] = {}
        self._members: dict[GangKey, GangMembers] = {}
        #: Pods of other schedulers that name a gang, each with that gang.
        self._foreign: dict[PodUid, GangKey] = {}
        self._foreign_members: Counter[GangKey] = Counter()
        self._membership = membership
        #: What pods declare themselves, where *membership* replaced it.
        self._declared: dict[PodUid, Membership] = {}
        #: Pods by namespace; kept only where *membership* may replace what they declare.
        self._in_namespace: dict[str, set[PodUid]] = {}
        #: Returns until when, in monotonic seconds, a deleted pod is expected to terminate.
        self._expected_until = expected_until
        self._terminating: dict[PodUid, float] = {}
        #: Deleted pods that are not expected to terminate any more; replaced as a whole.
        self.stuck: frozenset[PodUid] = frozenset()

    def get(self, uid: PodUid) -> Pod | None:
        """Return a pod as last seen."""
        return self._pods.get(uid)

    def seen(self, uid: PodUid) -> tuple[Pod, Membership] | None:
        """Return a pod of ours with its membership."""
        pod, membership = self._pods.get(uid), self._memberships.get(uid)
        return (pod, membership) if pod is not None and membership is not None else None

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the gang of a pod; foreign pods have none."""
        membership = self._memberships.get(uid)
        return membership.key if membership else None

    def members(self, key: GangKey) -> GangMembers | None:
        """Return the members of a gang."""
        return self._members.get(key)

    def belongs_to_other_scheduler(self, key: GangKey) -> bool:
        """Return whether a gang has pods and all of them belong to other schedulers."""
        return key not in self._members and self._foreign_members[key] > 0

    def mark_stuck(self, now: float) -> None:
        """Mark pods as stuck that should have terminated by *now* (monotonic)."""
        overdue = [uid for uid, until in self._terminating.items() if until <= now]
        for uid in overdue:
            del self._terminating[uid]
            self._usage.forget(self._pods[uid].node, self._pods[uid].shape)
        if overdue:
            self.stuck = self.stuck.union(overdue)

    def keys(self, dialect: str | None) -> list[tuple[str, str]]:
        """Return the key of every pod; pods have one dialect only."""
        return [(uid, "") for uid in self._pods]

    def regroup(self, affected: AffectedPods, changes: ChangeSet) -> None:
        """Resolve the membership of the *affected* pods anew."""
        for uid in tuple(self._in_namespace.get(affected.namespace, ())):
            if affected.includes(self._pods[uid].labels):
                declared = self._declared.get(uid) or self._memberships[uid]
                self.put(uid, SeenPod(self._pods[uid], declared), "", changes)

    def put(self, key: str, seen: SeenPod, dialect: str, changes: ChangeSet) -> None:
        """Add a pod or replace its state."""
        pod, membership = seen.pod, seen.membership
        if self._membership is not None and pod.ours:
            membership = self._resolve_membership(pod, membership, self._membership)
        else:
            self._forget_declared(pod)
        if not pod.ours and pod.status in FINISHED_SET:
            self.drop(key, dialect, changes)
            return
        is_foreign = not pod.ours and membership.named
        self._note_foreign(pod.uid, membership.key if is_foreign else None, changes)
        old = self._pods.get(pod.uid)
        same_gang = self._memberships.get(pod.uid) == (membership if pod.ours else None)
        if old is not None and old == pod and same_gang:
            self._note_status(old, pod, changes)
            return
        self._pods[pod.uid] = pod
        self._update_usage(old, pod)
        if pod.node or pod.status in FINISHED_SET:
            self._reservations.pod_scheduled(pod.uid)
        elif pod.status is Status.RELEASING or self._has_moved(pod, membership):
            self._reservations.pod_deleting(pod.uid)
        self._update_members(old, pod, membership, same_gang)
        changes.changed = True
        if pod.ours:
            changes.pods.append((pod.uid, pod))

    def drop(self, key: str, dialect: str | None, changes: ChangeSet) -> None:
        """Forget a pod that is gone."""
        uid = PodUid(key)
        old = self._pods.pop(uid, None)
        self._reservations.pod_scheduled(uid)
        if old is None:
            return
        self._note_foreign(uid, None, changes)
        self._update_usage(old, None)
        self._forget_declared(old)
        self._remove_member(old)
        changes.changed = True
        if old.ours:
            changes.pods.append((uid, None))

    def _note_foreign(self, uid: PodUid, key: GangKey | None, changes: ChangeSet) -> None:
        """Record which gang a pod of another scheduler names; None for none."""
        before = self._foreign.get(uid)
        if before == key:
            return
        # It may decide which scheduler a PodGroup belongs to, even if the pod itself is unchanged.
        changes.changed = True
        if before is not None:
            del self._foreign[uid]
            self._foreign_members[before] -= 1
            if not self._foreign_members[before]:
                del self._foreign_members[before]
            self._gangs.touch((before,))
        if key is not None:
            self._foreign[uid] = key
            self._foreign_members[key] += 1
            self._gangs.touch((key,))

    def _note_status(self, old: Pod, pod: Pod, changes: ChangeSet) -> None:
        """Pass on what kube-scheduler wrote about a pod, or its wake-up; the plan does not change.

        The time when it began is stored too: the kubelet reports it before the containers run.
        """
        is_news = (old.refusal, old.woken_by) != (pod.refusal, pod.woken_by)
        if not pod.ours or not (is_news or old.began != pod.began):
            return
        self._pods[pod.uid] = pod
        self._members[self._memberships[pod.uid].key].update(old, pod)
        if is_news:
            changes.pods.append((pod.uid, pod))

    def _update_usage(self, old: Pod | None, new: Pod | None) -> None:
        before, after = self._usage_of(old), self._usage_of(new)
        if after is not None and after[2] and new is not None:
            until = self._expected_until(new)
            self._terminating[new.uid] = min(until, self._terminating.get(new.uid, until))
        if before != after:
            # Add first: a reader in between sees too little free capacity, never too much.
            if after is not None and new is not None:
                self._usage.add_pod(new.node, new.shape, releasing=after[2])
            if before is not None and old is not None:
                self._usage.remove_pod(old.node, old.shape, releasing=before[2])
        if after is None and old is not None:
            self._stop_expecting(old.uid)

    def _stop_expecting(self, uid: PodUid) -> None:
        """Record that a pod uses no capacity: it has ended, though a finalizer may keep it."""
        self._terminating.pop(uid, None)
        if uid in self.stuck:
            self.stuck = self.stuck - {uid}

    def _update_members(
        self, old: Pod | None, pod: Pod, membership: Membership, same_gang: bool
    ) -> None:
        if old is not None and same_gang:
            if pod.ours:
                self._members[membership.key].update(old, pod)
                self._gangs.touch((membership.key,))
            return
        if old is not None:
            self._remove_member(old)
        if pod.ours:
            members = self._members.get(membership.key) or GangMembers()
            members.put(pod, membership)
            # In this order: a reader that sees the gang of a pod must find that gang.
            self._members[membership.key] = members
            self._memberships[pod.uid] = membership
            self._gangs.touch((membership.key,))

    def _resolve_membership(
        self, pod: Pod, declared: Membership, ask: Callable[[Pod, Membership], Membership]
    ) -> Membership:
        """Return the membership of *pod*, and remember what the pod itself declares."""
        self._in_namespace.setdefault(pod.namespace, set()).add(pod.uid)
        membership = ask(pod, declared)
        if membership is declared:
            self._declared.pop(pod.uid, None)
        else:
            self._declared[pod.uid] = declared
        return membership

    def _forget_declared(self, pod: Pod) -> None:
        self._declared.pop(pod.uid, None)
        uids = self._in_namespace.get(pod.namespace)
        if uids is not None:
            uids.discard(pod.uid)
            if not uids:
                del self._in_namespace[pod.namespace]

    def _has_moved(self, pod: Pod, membership: Membership) -> bool:
        """Return whether a pod has left the gang in which filter or the cache saw it before."""
        before, reservation = self._memberships.get(pod.uid), self._reservations.of(pod.uid)
        has_other_reservation = reservation is not None and reservation.gang != membership.key
        return has_other_reservation or (before is not None and before != membership)

    def _remove_member(self, old: Pod) -> None:
        membership = self._memberships.pop(old.uid, None)
        if membership is None:
            return
        members = self._members[membership.key]
        members.drop(old, membership)
        if not members.pods:
            del self._members[membership.key]
            self._rejected_nodes.forget(membership.key)
        self._gangs.touch((membership.key,))

    def _usage_of(self, pod: Pod | None) -> tuple[str, int, bool] | None:
        """Return the node and shape of a pod, and whether it is terminating; None without usage."""
        if pod is None or not pod.node or pod.status in FINISHED_SET:
            return None
        is_terminating = pod.status is Status.RELEASING and pod.uid not in self.stuck
        return (pod.node, id(pod.shape), is_terminating)

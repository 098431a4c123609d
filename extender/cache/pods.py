"""Every pod we have heard of, with its gang and the room it takes up.

Changes are published in a fixed order: the pod, then its room, then the end of its promise, then
its seat. A reader without a lock may so count a pod's room twice for a moment but never miss it,
and may miss a seat for a moment but never count it twice.

Room of a pod that was deleted is on its way. Not for ever: a finalizer, or a kubelet that is gone,
may keep a pod in Terminating for good, and whoever waits for its room keeps idle room waiting too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from extender.cache.budget_gangs import Moved
from extender.cache.changes import ChangeSet, SeenPod
from extender.cache.gang_history import RejectedNodes
from extender.cache.gangs import Gangs
from extender.cache.members import GangMembers
from extender.cache.nodes import NodeUsage
from extender.cache.reservation_table import ReservationTable
from extender.model.gang import GangKey, Membership
from extender.model.pod import FINISHED_SET, Pod, PodUid, Status

#: So long after the end of its grace a pod is still expected to go.
STUCK_S = 60.0
#: Whatever grace a pod claims for itself, nobody waits for its room longer than this.
LONGEST_GRACE_S = 1800.0


class Pods:
    """One thread writes at a time; reads take no lock."""

    def __init__(
        self,
        rooms: NodeUsage,
        gangs: Gangs,
        inflight: ReservationTable,
        misfits: RejectedNodes,
        expected_until: Callable[[Pod], float],
        membership: Callable[[Pod, Membership], Membership] | None = None,
    ) -> None:
        """Where others than a pod itself say what it is a member of, *membership* asks them."""
        self._rooms = rooms
        self._gangs = gangs
        self._inflight = inflight
        self._misfits = misfits
        self._pods: dict[PodUid, Pod] = {}
        self._memberships: dict[PodUid, Membership] = {}
        self._rosters: dict[GangKey, GangMembers] = {}
        #: Pods of other schedulers that name a gang, and which.
        self._strangers: dict[PodUid, GangKey] = {}
        self._named_by_strangers: Counter[GangKey] = Counter()
        self._membership = membership
        #: What pods say themselves, of those that others made members of something else.
        self._declared: dict[PodUid, Membership] = {}
        #: By namespace; kept only where others may say.
        self._near: dict[str, set[PodUid]] = {}
        #: Says until when, in monotonic seconds, it is believed that a deleted pod goes.
        self._expected_until = expected_until
        self._leaving: dict[PodUid, float] = {}
        #: Those of whom it is believed no more; replaced as a whole.
        self.stuck: frozenset[PodUid] = frozenset()

    def get(self, uid: PodUid) -> Pod | None:
        """Give a pod as last seen."""
        return self._pods.get(uid)

    def seen(self, uid: PodUid) -> tuple[Pod, Membership] | None:
        """Give a pod of ours with its membership."""
        pod, membership = self._pods.get(uid), self._memberships.get(uid)
        return (pod, membership) if pod is not None and membership is not None else None

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Name the gang of a pod; foreign pods have none."""
        membership = self._memberships.get(uid)
        return membership.key if membership else None

    def members(self, key: GangKey) -> GangMembers | None:
        """Give the members of a gang."""
        return self._rosters.get(key)

    def belongs_to_other_scheduler(self, key: GangKey) -> bool:
        """Ask whether all pods of a gang, and there are some, belong to other schedulers."""
        return key not in self._rosters and self._named_by_strangers[key] > 0

    def give_up(self, now: float) -> None:
        """Expect those no more, at the monotonic moment *now*, who should have left long ago."""
        overdue = [uid for uid, until in self._leaving.items() if until <= now]
        for uid in overdue:
            del self._leaving[uid]
            self._rooms.forget(self._pods[uid].node, self._pods[uid].shape)
        if overdue:
            self.stuck = self.stuck.union(overdue)

    def told(self, dialect: str | None) -> list[tuple[str, str]]:
        """Name every pod; they come in one dialect only."""
        return [(uid, "") for uid in self._pods]

    def regroup(self, moved: Moved, news: ChangeSet) -> None:
        """Ask anew what the pods that are *moved* are members of."""
        for uid in tuple(self._near.get(moved.namespace, ())):
            if moved.has(self._pods[uid].labels):
                said = self._declared.get(uid) or self._memberships[uid]
                self.put(uid, SeenPod(self._pods[uid], said), "", news)

    def put(self, key: str, seen: SeenPod, dialect: str, news: ChangeSet) -> None:
        """Take in a pod as it is now."""
        pod, membership = seen.pod, seen.membership
        if self._membership is not None and pod.ours:
            membership = self._joined(pod, membership, self._membership)
        else:
            self._ask_no_more(pod)
        if not pod.ours and pod.status in FINISHED_SET:
            self.drop(key, dialect, news)
            return
        is_strange = not pod.ours and membership.named
        self._note_stranger(pod.uid, membership.key if is_strange else None, news)
        old = self._pods.get(pod.uid)
        same_gang = self._memberships.get(pod.uid) == (membership if pod.ours else None)
        if old is not None and old == pod and same_gang:
            self._note_refusal(old, pod, news)
            return
        self._pods[pod.uid] = pod
        self._account(old, pod)
        if pod.node or pod.status in FINISHED_SET:
            self._inflight.pod_scheduled(pod.uid)
        elif pod.status is Status.RELEASING or self._has_moved(pod, membership):
            self._inflight.pod_deleting(pod.uid)
        self._enrol(old, pod, membership, same_gang)
        news.changed = True
        if pod.ours:
            news.pods.append((pod.uid, pod))

    def drop(self, key: str, dialect: str | None, news: ChangeSet) -> None:
        """Forget a pod that is gone."""
        uid = PodUid(key)
        old = self._pods.pop(uid, None)
        self._inflight.pod_scheduled(uid)
        if old is None:
            return
        self._note_stranger(uid, None, news)
        self._account(old, None)
        self._ask_no_more(old)
        self._leave(old)
        news.changed = True
        if old.ours:
            news.pods.append((uid, None))

    def _note_stranger(self, uid: PodUid, key: GangKey | None, news: ChangeSet) -> None:
        """Remember which gang a pod of another scheduler names; None for none."""
        before = self._strangers.get(uid)
        if before == key:
            return
        # Whose a PodGroup is may depend on it, even where the pod itself is as it was.
        news.changed = True
        if before is not None:
            del self._strangers[uid]
            self._named_by_strangers[before] -= 1
            if not self._named_by_strangers[before]:
                del self._named_by_strangers[before]
            self._gangs.touch((before,))
        if key is not None:
            self._strangers[uid] = key
            self._named_by_strangers[key] += 1
            self._gangs.touch((key,))

    def _note_refusal(self, old: Pod, pod: Pod, news: ChangeSet) -> None:
        """Pass on what kube-scheduler said of a pod, or who woke it: nothing to plan anew for.

        When it began is kept for whoever asks: the kubelet says so before its containers run.
        """
        is_news = (old.refusal, old.woken_by) != (pod.refusal, pod.woken_by)
        if not pod.ours or not (is_news or old.began != pod.began):
            return
        self._pods[pod.uid] = pod
        self._rosters[self._memberships[pod.uid].key].update(old, pod)
        if is_news:
            news.pods.append((pod.uid, pod))

    def _account(self, old: Pod | None, new: Pod | None) -> None:
        before, after = self._occupancy(old), self._occupancy(new)
        if after is not None and after[2] and new is not None:
            until = self._expected_until(new)
            self._leaving[new.uid] = min(until, self._leaving.get(new.uid, until))
        if before != after:
            # Taking up comes first: a reader in between sees too little room, never too much.
            if after is not None and new is not None:
                self._rooms.add_pod(new.node, new.shape, releasing=after[2])
            if before is not None and old is not None:
                self._rooms.remove_pod(old.node, old.shape, releasing=before[2])
        if after is None and old is not None:
            self._expect_no_more(old.uid)

    def _expect_no_more(self, uid: PodUid) -> None:
        """Hear that a pod has no room to give up: it has ended, though a finalizer may keep it."""
        self._leaving.pop(uid, None)
        if uid in self.stuck:
            self.stuck = self.stuck - {uid}

    def _enrol(self, old: Pod | None, pod: Pod, membership: Membership, same_gang: bool) -> None:
        if old is not None and same_gang:
            if pod.ours:
                self._rosters[membership.key].update(old, pod)
                self._gangs.touch((membership.key,))
            return
        if old is not None:
            self._leave(old)
        if pod.ours:
            roster = self._rosters.get(membership.key) or GangMembers()
            roster.put(pod, membership)
            # In this order: whoever is told which gang a pod is in, must find that gang.
            self._rosters[membership.key] = roster
            self._memberships[pod.uid] = membership
            self._gangs.touch((membership.key,))

    def _joined(
        self, pod: Pod, said: Membership, ask: Callable[[Pod, Membership], Membership]
    ) -> Membership:
        """Give what *pod* is a member of, and remember what it says itself."""
        self._near.setdefault(pod.namespace, set()).add(pod.uid)
        membership = ask(pod, said)
        if membership is said:
            self._declared.pop(pod.uid, None)
        else:
            self._declared[pod.uid] = said
        return membership

    def _ask_no_more(self, pod: Pod) -> None:
        self._declared.pop(pod.uid, None)
        near = self._near.get(pod.namespace)
        if near is not None:
            near.discard(pod.uid)
            if not near:
                del self._near[pod.namespace]

    def _has_moved(self, pod: Pod, membership: Membership) -> bool:
        """Ask whether a pod has left the gang that filter, or we, saw it in before."""
        before, promise = self._memberships.get(pod.uid), self._inflight.of(pod.uid)
        is_promised = promise is not None and promise.gang != membership.key
        return is_promised or (before is not None and before != membership)

    def _leave(self, old: Pod) -> None:
        membership = self._memberships.pop(old.uid, None)
        if membership is None:
            return
        roster = self._rosters[membership.key]
        roster.drop(old, membership)
        if not roster.pods:
            del self._rosters[membership.key]
            self._misfits.forget(membership.key)
        self._gangs.touch((membership.key,))

    def _occupancy(self, pod: Pod | None) -> tuple[str, int, bool] | None:
        """Tell where a pod takes up room, as what shape, and whether it is on its way out."""
        if pod is None or not pod.node or pod.status in FINISHED_SET:
            return None
        is_leaving = pod.status is Status.RELEASING and pod.uid not in self.stuck
        return (pod.node, id(pod.shape), is_leaving)

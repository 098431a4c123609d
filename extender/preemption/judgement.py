"""May kube-scheduler evict these pods for that one? Judged node by node; no node left is a veto.

kube-scheduler chooses victims by priority alone, one pod at a time. It knows neither gangs nor
queues, so its choice may free one node for a gang that needs ten, leave another gang torn, or
take from a queue what is its due. A node stays a candidate only with all of its victims, except
those that are leaving anyway: why it needs each of them (room, ports, affinity) only it knows.
Whoever asks is judged beside all that others were granted and have not been seen to take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeAlias

from extender.cache.cluster import Cluster
from extender.cache.inflight import Stage
from extender.model.gang import GangKey, Membership
from extender.model.pod import Pod, PodUid, Status
from extender.model.queue import share_name
from extender.model.reason import Problem
from extender.model.resources import NOTHING, Resources
from extender.plan.decision import Plan, QueueFigures
from extender.preemption.grants import Displaced, Grants

#: Says which ceiling or guarantee so much more of a namespace in a queue would break.
Objection: TypeAlias = Callable[[str, str, Resources], Problem | None]


class Preemption:
    """Judges kube-scheduler's choice by gangs and queues."""

    def __init__(self, cluster: Cluster, plan: Callable[[], Plan], objection: Objection) -> None:
        self._cluster = cluster
        self._inflight = cluster.inflight
        self._plan = plan
        self._objection = objection
        self._grants = Grants(cluster, plan)

    def judge(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]], now: float
    ) -> dict[str, Sequence[str]]:
        """Keep the nodes whose victims may go."""
        self._grants.look(pod.uid, now)
        queue, problem = self._queue_of(member.key, pod.namespace, member.queue)
        is_new = not pod.asks_nobody and not member.native and self._inflight.of(pod.uid) is None
        if is_new and (problem is not None or self._is_hopeless(member, queue)):
            return {}
        kept: dict[str, list[Displaced]] = {}
        for node, uids in victims.items():
            if not pod.asks_nobody and node in self._cluster.foreign:
                continue  # whoever leaves there makes no room that the pod may use
            staying = [PodUid(uid) for uid in uids if not self._is_leaving(PodUid(uid))]
            candidates = [self._victim(uid) for uid in staying]
            # Without any victim the node would be an error in kube-scheduler's eyes; and where
            # all are leaving, waiting is enough.
            is_in_vain = is_new and self._has_all_it_may(pod, queue, candidates)
            if staying and not is_in_vain and not self._objects(pod, queue, candidates):
                kept[node] = candidates
        self._grants.note(pod, queue if pod.ours else "", kept, now)
        return {node: [each.uid for each in going] for node, going in kept.items()}

    def may_take(self, uid: PodUid, now: float) -> bool:
        """Ask whether somebody was allowed to have *uid* evicted, and it may be happening."""
        return self._grants.may_take(uid, now)

    def may_leave(self, gang: GangKey, role: str | None, beside: Set[PodUid], now: float) -> int:
        """Count who of a gang may be leaving beside those; from any thread."""
        return self._grants.seats(gang, role, beside, now)

    def may_end(self, gang: GangKey, now: float) -> bool:
        """Ask the same of all of a gang that are on nodes; a part of it must leave it whole."""
        standing = self._cluster.on_nodes(gang)
        # Where nobody stands, nobody is counted on: it starts anew, with all it needs.
        return any(not standing - choice for choice in self._grants.choices(gang, now) if standing)

    def _is_hopeless(self, member: Membership, queue: str) -> bool:
        """Ask whether one freed node is of no use to a pod without a place: filter would refuse it.

        Its gang does not run, or nobody starts in its queue, or it cannot be read.
        """
        if member.problem or self._cluster.is_closed(queue):
            return True
        return member.named and not self._runs(member.key)

    def _has_all_it_may(self, pod: Pod, queue: str, victims: Sequence[Displaced]) -> bool:
        """Ask whether its queue could not have it when those have left, who may be nobody's."""
        back = sum((each.gives for each in victims), NOTHING)
        needs = pod.requests.beyond(back).positive()
        if not needs:
            return False
        more = needs + self._grants.more_in(queue, only_unpromised=True)
        return self._objection(queue, pod.namespace, more) is not None

    def _runs(self, key: GangKey) -> bool:
        group = self._cluster.group(key)
        if group is None or group.problem:
            return False
        return self._cluster.seated(key) >= group.min_member

    def _is_leaving(self, uid: PodUid) -> bool:
        seen = self._cluster.pod(uid)
        return seen is not None and seen.status is Status.RELEASING

    def _victim(self, uid: PodUid) -> Displaced:
        """Say what leaves with a pod; with one that is not ours, nothing that we count.

        One whose bind is still held has no seat: its gang has not started. One that was bound has,
        though our watch may be behind kube-scheduler's and not show it yet.
        """
        promise, seen = self._inflight.of(uid), self._cluster.pod(uid)
        gang = self._cluster.gang_of(uid)
        seat = seen if seen is not None and seen.node else None
        if promise is not None:
            seat = promise.pod if promise.stage is Stage.BOUND else None
        if seen is None or gang is None or not seen.ours:
            return Displaced(uid, gang, seat)
        queue = self._counted_in(gang, seen.namespace)
        return Displaced(uid, gang, seat, queue, share_name(queue, seen.namespace), seen.requests)

    def _objects(self, pod: Pod, queue: str, victims: Sequence[Displaced]) -> bool:
        if any(self._is_committing(each.uid) for each in victims):
            return True
        if pod.is_exempt:
            return False  # it waits for nobody: gangs come second
        return (
            any(self._is_spared(each.uid) for each in victims)
            or self._tears_a_gang(victims)
            or self._breaks_a_due(pod, queue, victims)
            or self._breaks_a_share(pod, queue, victims)
        )

    def _is_committing(self, uid: PodUid) -> bool:
        """Ask whether its binding is on its way: what was sent cannot be called back.

        Nor can what nobody knows of; kube-scheduler would not count it there if it had failed.
        """
        promise = self._inflight.of(uid)
        return promise is not None and promise.stage in (Stage.COMMITTING, Stage.DOUBTED)

    def _is_spared(self, uid: PodUid) -> bool:
        """Ask whether its author marked it as no victim of anybody."""
        seen = self._cluster.pod(uid)
        return seen is not None and seen.ours and not seen.preemptable

    def _tears_a_gang(self, victims: Sequence[Displaced]) -> bool:
        """Ask whether some gang would run on below its minimum."""
        leaving: dict[GangKey, dict[PodUid, Pod]] = {}
        for each in victims:
            if each.gang is not None and each.seat is not None:
                leaving.setdefault(each.gang, {})[each.uid] = each.seat
        return any(self._is_torn(key, pods) for key, pods in leaving.items())

    def _is_torn(self, key: GangKey, leaving: Mapping[PodUid, Pod]) -> bool:
        """Ask it of those who leave and of whoever was granted before and may leave as well.

        That others may take the rest does not make it whole: they may take somebody else.
        """
        group = self._cluster.group(key)
        if group is None or not self._goes_on(key, leaving.keys()):
            return False
        all_of_it = len(leaving) + self._grants.seats(key, None, leaving.keys())
        if self._cluster.seated(key) - all_of_it < group.min_member:
            return True
        roles, minima = Counter(pod.role for pod in leaving.values()), group.role_minima
        return any(
            self._cluster.seated_in_role(key, role)
            - count
            - self._grants.seats(key, role, leaving.keys())
            < minima[role]
            for role, count in roles.items()
            if role in minima
        )

    def _goes_on(self, key: GangKey, leaving: Set[PodUid]) -> bool:
        """Ask whether anybody of a gang is still on a node when those have left."""
        return bool(self._cluster.on_nodes(key) - leaving)

    def _breaks_a_due(self, pod: Pod, ours: str, victims: Sequence[Displaced]) -> bool:
        """Ask whether another queue would lose what is its due, or to one that has its own.

        Inside one queue priority decides, as kube-scheduler has it.
        """
        taken: dict[str, Resources] = {}
        for each in victims:
            if each.queue and each.queue != ours:
                taken[each.queue] = taken.get(each.queue, NOTHING) + each.gives
        if not taken:
            return False
        more = pod.requests + self._grants.more_in(ours)
        if not _stays_within_due(self._plan().queues.get(ours), more):
            return True
        return any(not self._can_spare(name, lost) for name, lost in taken.items())

    def _breaks_a_share(self, pod: Pod, queue: str, victims: Sequence[Displaced]) -> bool:
        """Ask whether a namespace would have less of a queue than at least, for another one."""
        shares = self._plan().shares
        ours = share_name(queue, pod.namespace)
        taken: dict[str, Resources] = {}
        for each in victims:
            if each.share != ours and each.share in shares:
                taken[each.share] = taken.get(each.share, NOTHING) + each.gives
        return any(
            lost.amount(each) > 0
            and shares[name].allocated.amount(each)
            - lost.amount(each)
            - self._grants.taken(name).amount(each)
            < least
            for name, lost in taken.items()
            for each, least in shares[name].at_least.items()
        )

    def _can_spare(self, name: str, lost: Resources) -> bool:
        """Ask whether a queue has so much of some resource that it keeps its due without *lost*."""
        queue, figures = self._cluster.queue(name), self._plan().queues.get(name)
        if figures is None or (queue is not None and not queue.reclaimable):
            return False
        has, due = figures.own - self._grants.taken(name), figures.deserved
        counted = [name for name in lost if name in due]
        return not counted or any(
            has.amount(each) > due.amount(each) <= has.amount(each) - lost[each] for each in counted
        )

    def _queue_of(self, key: GangKey, namespace: str, named: str) -> tuple[str, Problem | None]:
        group = self._cluster.group(key)
        return self._cluster.queue_of(key, namespace, group.queue if group else named)

    def _counted_in(self, key: GangKey, namespace: str) -> str:
        group = self._cluster.group(key)
        return self._cluster.counted_in(key, namespace, group.queue if group else "")


def _stays_within_due(queue: QueueFigures | None, more: Resources) -> bool:
    if queue is None:
        return False
    return all(
        queue.own.amount(name) + amount <= queue.deserved.amount(name)
        for name, amount in more.items()
        if name in queue.deserved
    )

"""May kube-scheduler evict these pods for that one? Judged node by node; no node left is a veto.

kube-scheduler chooses victims by priority alone, one pod at a time. It knows neither gangs nor
queues, so its choice may free one node for a gang that needs ten, leave another gang torn, or
take from a queue what is its due. A node stays a candidate only with all of its victims, except
those that are leaving anyway: why it needs each of them (room, ports, affinity) only it knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from extender.cache.cluster import Cluster
from extender.cache.inflight import Stage
from extender.model.gang import GangKey, Membership
from extender.model.pod import SEATED_SET, Pod, PodUid, Status
from extender.model.queue import share_name
from extender.model.resources import NOTHING, Resources
from extender.plan.decision import Plan, QueueFigures


class Preemption:
    """Judges kube-scheduler's choice by gangs and queues."""

    def __init__(self, cluster: Cluster, plan: Callable[[], Plan]) -> None:
        self._cluster = cluster
        self._inflight = cluster.inflight
        self._plan = plan

    def judge(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> dict[str, Sequence[str]]:
        """Keep the nodes whose victims may go."""
        if not pod.is_exempt and self._is_hopeless(pod, member):
            return {}
        kept: dict[str, Sequence[str]] = {}
        for node, uids in victims.items():
            if not pod.asks_nobody and node in self._cluster.foreign:
                continue  # whoever leaves there makes no room that the pod may use
            staying = [PodUid(uid) for uid in uids if not self._is_leaving(PodUid(uid))]
            # Without any victim the node would be an error in kube-scheduler's eyes; and where
            # all are leaving, waiting is enough.
            if staying and not self._objects(pod, member, staying):
                kept[node] = staying
        return kept

    def _is_hopeless(self, pod: Pod, member: Membership) -> bool:
        """Ask whether one freed node is of no use: the gang holds no ticket and does not run."""
        if not pod.ours or member.native or not member.named:
            return False
        return self._inflight.of(pod.uid) is None and not self._runs(member.key)

    def _runs(self, key: GangKey) -> bool:
        group = self._cluster.group(key)
        return group is not None and self._cluster.seated(key) >= group.min_member

    def _is_leaving(self, uid: PodUid) -> bool:
        seen = self._cluster.pod(uid)
        return seen is not None and seen.status is Status.RELEASING

    def _objects(self, pod: Pod, member: Membership, victims: Sequence[PodUid]) -> bool:
        if any(self._is_committing(uid) for uid in victims):
            return True
        if pod.is_exempt:
            return False  # it waits for nobody: gangs come second
        return (
            self._tears_a_gang(victims)
            or self._breaks_a_due(pod, member, victims)
            or self._breaks_a_share(pod, member, victims)
        )

    def _is_committing(self, uid: PodUid) -> bool:
        """Ask whether its binding is on its way: what was sent cannot be called back."""
        reservation = self._inflight.of(uid)
        return reservation is not None and reservation.stage is Stage.COMMITTING

    def _tears_a_gang(self, victims: Sequence[PodUid]) -> bool:
        """Ask whether some gang would run on below its minimum.

        A victim whose bind is still held tears nothing: its gang has not started. One that was
        bound counts, though our watch may be behind kube-scheduler's and not show it yet.
        """
        leaving: dict[GangKey, list[Pod]] = {}
        for uid in victims:
            promise, pod = self._inflight.of(uid), self._cluster.pod(uid)
            if promise is not None:
                pod = promise.pod if promise.stage is Stage.BOUND else None
            elif pod is not None and not pod.node:
                pod = None
            key = self._cluster.gang_of(uid)
            if key is not None and pod is not None:
                leaving.setdefault(key, []).append(pod)
        return any(self._is_torn(key, pods) for key, pods in leaving.items())

    def _is_torn(self, key: GangKey, leaving: Sequence[Pod]) -> bool:
        group = self._cluster.group(key)
        if group is None or not self._goes_on(key, {pod.uid for pod in leaving}):
            return False
        if self._cluster.seated(key) - len(leaving) < group.min_member:
            return True
        roles, minima = Counter(pod.role for pod in leaving), group.role_minima
        return any(
            self._cluster.seated_in_role(key, role) - count < minima.get(role, 0)
            for role, count in roles.items()
        )

    def _goes_on(self, key: GangKey, leaving: Set[PodUid]) -> bool:
        """Ask whether anybody of a gang is still on a node when those have left."""
        on_nodes = {pod.uid for pod in self._cluster.pods_of(key) if pod.status in SEATED_SET}
        bound = {p.pod.uid for p in self._inflight.of_gang(key) if p.stage is Stage.BOUND}
        return bool((on_nodes | bound) - leaving)

    def _breaks_a_due(self, pod: Pod, member: Membership, victims: Sequence[PodUid]) -> bool:
        """Ask whether another queue would lose what is its due, or to one that has its own.

        Inside one queue priority decides, as kube-scheduler has it.
        """
        ours = self._queue_of(member.key, pod.namespace, member.queue)
        taken: dict[str, Resources] = {}
        for uid in victims:
            victim, key = self._cluster.pod(uid), self._cluster.gang_of(uid)
            if victim is None or key is None or not victim.ours:
                continue
            queue = self._counted_in(key, victim.namespace)
            if queue != ours:
                taken[queue] = taken.get(queue, NOTHING) + victim.requests
        if not taken:
            return False
        if not _stays_within_due(self._plan().queues.get(ours), pod.requests):
            return True
        return any(not self._can_spare(name, lost) for name, lost in taken.items())

    def _breaks_a_share(self, pod: Pod, member: Membership, victims: Sequence[PodUid]) -> bool:
        """Ask whether a namespace would have less of a queue than at least, for another one."""
        shares = self._plan().shares
        if not shares:
            return False
        ours = share_name(self._queue_of(member.key, pod.namespace, member.queue), pod.namespace)
        taken: dict[str, Resources] = {}
        for uid in victims:
            victim, key = self._cluster.pod(uid), self._cluster.gang_of(uid)
            if victim is None or key is None or not victim.ours:
                continue
            name = share_name(self._counted_in(key, victim.namespace), victim.namespace)
            if name != ours and name in shares:
                taken[name] = taken.get(name, NOTHING) + victim.requests
        return any(
            lost.amount(each) > 0 and shares[name].allocated.amount(each) - lost[each] < least
            for name, lost in taken.items()
            for each, least in shares[name].at_least.items()
        )

    def _can_spare(self, name: str, lost: Resources) -> bool:
        """Ask whether a queue has so much of some resource that it keeps its due without *lost*."""
        queue, figures = self._cluster.queue(name), self._plan().queues.get(name)
        if figures is None or (queue is not None and not queue.reclaimable):
            return False
        has, due = figures.own, figures.deserved
        counted = [name for name in lost if name in due]
        return not counted or any(
            has.amount(each) > due.amount(each) <= has.amount(each) - lost[each] for each in counted
        )

    def _queue_of(self, key: GangKey, namespace: str, named: str) -> str:
        group = self._cluster.group(key)
        return self._cluster.queue_of(key, namespace, group.queue if group else named)[0]

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

"""The barrier beside the mirror: facts to judge by, and news to hear."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Protocol

from extender.cache.cluster import Cluster
from extender.clock import LoopTimer
from extender.model.gang import GangKey
from extender.model.pod import Pod, PodUid, Shape
from extender.permit.machine import StateMachine
from extender.permit.messages import Cause
from extender.permit.runner import Observer, PermitRunner
from extender.permit.timeouts import Timeouts
from extender.ports import Clock, ClusterPorts
from extender.reservations.ledger import Ledger


class Evictions(Protocol):
    """What kube-scheduler was allowed to take."""

    def may_lose(self, uid: PodUid) -> bool:
        """Return whether it was allowed to evict a pod, and may be about to."""

    def may_lose_all(self, gang: GangKey) -> bool:
        """Return the same of all of a gang that are on nodes."""


class CacheFacts:
    """What the book asks (`Facts`), answered without a lock."""

    def __init__(self, cluster: Cluster, ledger: Ledger, evictions: Evictions) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self.pod = cluster.pod
        self.group = cluster.group
        self.pods_of = cluster.pods_of
        self.seated = cluster.scheduled
        self.seated_in_role = cluster.scheduled_in_role
        self.node = cluster.node
        self.may_bind = ledger.may_bind
        self.may_lose = evictions.may_lose
        self.may_lose_all = evictions.may_lose_all

    def arriving(self, uid: PodUid) -> Pod | None:
        """Return a pod as last seen, or as filter was shown it before the watch showed it to us."""
        # Filter's first: it is forgotten once the watch shows the pod, so one of both is there.
        passer = self._ledger.filter_results.filtered(uid)
        return self._cluster.pod(uid) or (passer.pod if passer else None)

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the gang of a pod; None for one that is bound without asking any gang."""
        pod = self.arriving(uid)
        if pod is None or pod.uses_no_resources:
            return None
        passer = self._ledger.filter_results.filtered(uid)
        if passer and not passer.membership.named and self._cluster.seen(uid) is None:
            return None  # an ordinary pod's shadow gang appears after its pod
        return self._ledger.gang_of(uid)

    def reserved_node(self, uid: PodUid) -> str | None:
        """Return the node on which room is kept for this pod, None without any."""
        place = self._ledger.reserved_node(uid)
        return place.node if place else None

    def has_passed(self, uid: PodUid) -> bool:
        """Return whether filter let a pod pass.

        Of a gang that kube-scheduler itself assembles it is not asked: that one may have passed
        another extender, which led before us, and to refuse one member would tear it.
        """
        return self._ledger.filter_results.has_passed(uid) or self._ledger.is_native(uid)

    def has_room(self, uid: PodUid, node: str) -> bool:
        """Return whether a node has room for a pod; of a gang kube-scheduler itself assembles, it has.

        To refuse one member of such a gang would tear it. Who is on a node needs no room any more.
        """
        pod = self._cluster.pod(uid)
        is_seated = pod is not None and bool(pod.node)
        return is_seated or self._ledger.is_native(uid) or self.fits(node, (uid,))

    def fits(self, node: str, pods: Iterable[PodUid]) -> bool:
        """Return whether a node has room for *pods* beside all that is there or on its way there.

        Only what they ask for counts, and tickets of others do not: those have not come yet.
        """
        room = self._cluster.free(node)
        if room is None:
            return False
        wanted: dict[str, int] = {}
        last: Shape | None = None
        for uid in pods:
            place = self._ledger.reserved_node(uid)
            counted = place is not None and place.node == node and not place.is_unassumed
            pod = place.pod if place else self.arriving(uid)
            if counted and pod and pod.shape is last:
                continue  # nearly always: one of many alike, whose room is subtracted already
            last = pod.shape if pod else None
            for name, amount in pod.requests.items() if pod else ():
                if amount > 0:
                    wanted[name] = wanted.get(name, 0) + (0 if counted else amount)
        return all(amount <= room.amount(name) for name, amount in wanted.items())


def permit_runner(
    cluster: Cluster,
    ledger: Ledger,
    evictions: Evictions,
    ports: ClusterPorts,
    limits: Timeouts,
    timer: LoopTimer,
    clock: Clock,
    observer: Observer,
    *,
    is_closed: bool,
) -> PermitRunner:
    """Put the barrier up where it hears what changes; if it *is_closed*, it is opened by a term."""
    barrier = PermitRunner(
        StateMachine(
            CacheFacts(cluster, ledger, evictions),
            limits,
            chance=random.random,
            closed=Cause.LEASE_LOST if is_closed else None,
        ),
        binder=ports.binder,
        groups=ports.groups,
        inflight=ledger,
        undo=ports.undo,
        timer=timer,
        clock=clock,
        observer=observer,
    )
    listen(cluster, ledger, barrier)
    return barrier


def listen(cluster: Cluster, ledger: Ledger, barrier: PermitRunner) -> None:
    """Let *ledger* and *barrier* hear what changes in the cluster."""

    def hear_pod(uid: PodUid, pod: Pod | None) -> None:
        ledger.pod_changed(uid, pod)
        gang = cluster.gang_of(uid)
        barrier.pod_changed(uid, gang)
        if pod is not None and pod.refusal and not pod.is_woken and gang is not None:
            barrier.sibling_unschedulable(uid, gang)

    cluster.watch_pods(hear_pod)
    ledger.on_released(barrier.withdrawn)
    cluster.on_group(barrier.group_changed)
    cluster.partial_gangs.on_found(barrier.found_partial)
    cluster.on_node(lambda name, _: barrier.node_changed(name))

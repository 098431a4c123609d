"""The barrier's view of the mirror: facts to judge by, room in flight to keep, news to hear."""

from __future__ import annotations

from collections.abc import Iterable

from extender.cache.cluster import Cluster
from extender.cache.inflight import Stage
from extender.cache.passers import Passers
from extender.holds.barrier import Barrier
from extender.model.gang import GangKey
from extender.model.pod import Pod, PodUid
from extender.ports import Clock


class MirrorFacts:
    """What the book asks (`Facts`), answered without a lock."""

    def __init__(self, cluster: Cluster, passers: Passers) -> None:
        self._cluster = cluster
        self._passers = passers
        self.pod = cluster.pod
        self.group = cluster.group
        self.pods_of = cluster.pods_of
        self.seated = cluster.seated
        self.seated_in_role = cluster.seated_in_role
        self.node = cluster.node

    def arriving(self, uid: PodUid) -> Pod | None:
        """Give a pod as last seen, or as filter was shown it before the watch showed it to us."""
        pod = self._cluster.pod(uid)
        if pod is not None:
            return pod
        passer = self._passers.get(uid)
        # It is forgotten when the watch shows the pod, perhaps between the two looks.
        return passer.pod if passer else self._cluster.pod(uid)

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Name the gang of a pod; None for one that is bound without asking any gang."""
        pod = self.arriving(uid)
        if pod is None or not pod.ours or pod.is_critical:
            return None
        passer = self._passers.get(uid)
        if self._cluster.pod(uid) is None and passer and not passer.membership.named:
            return None  # an ordinary pod's shadow gang appears with its pod
        return _gang_of(uid, self._cluster, self._passers)

    def reserved_node(self, uid: PodUid) -> str | None:
        """Give the node on which room is kept for this pod, None without any."""
        reservation = self._cluster.inflight.of(uid)
        return reservation.node if reservation else None

    def fits(self, node: str, pods: Iterable[PodUid]) -> bool:
        """Ask whether a node has room for *pods* beside all that is there or on its way there.

        Only what they ask for counts, and tickets of others do not: those have not come yet.
        """
        room = self._cluster.room(node)
        if room is None:
            return False
        wanted: dict[str, int] = {}
        for uid in pods:
            place = self._cluster.inflight.of(uid)
            counted = place is not None and place.node == node and place.stage >= Stage.HELD
            pod = place.pod if place else self.arriving(uid)
            for name, amount in pod.requests.items() if pod else ():
                if amount > 0:
                    wanted[name] = wanted.get(name, 0) + (0 if counted else amount)
        return all(amount <= room.amount(name) for name, amount in wanted.items())


class Promises:
    """Where the barrier keeps room for pods on their way (`InFlight`)."""

    def __init__(self, cluster: Cluster, passers: Passers, clock: Clock) -> None:
        self._cluster = cluster
        self._inflight = cluster.inflight
        self._passers = passers
        self._clock = clock

    def held(self, uid: PodUid, node: str) -> None:
        """Keep room for a pod whose bind waits."""
        self._inflight.advance(uid, Stage.HELD, node)

    def committing(self, uid: PodUid, node: str) -> None:
        """Keep room for a pod whose binding is being sent; an ordinary one had none until now."""
        if self._inflight.advance(uid, Stage.COMMITTING, node):
            return
        passer = self._passers.get(uid)
        pod = self._cluster.pod(uid) or (passer.pod if passer else None)
        gang = _gang_of(uid, self._cluster, self._passers)
        if pod is not None and gang is not None:
            now = self._clock.monotonic()
            self._inflight.reserve(pod, gang, node, now, stage=Stage.COMMITTING)

    def bound(self, uid: PodUid, node: str) -> None:
        """Keep room for a bound pod until the mirror shows it."""
        self._inflight.advance(uid, Stage.BOUND, node)

    def keep(self, uid: PodUid, node: str) -> None:
        """Let a pod whose binding failed keep its room as a ticket."""
        self._inflight.step_back(uid, node)

    def release(self, uid: PodUid) -> None:
        """Give the room of a pod back."""
        self._inflight.release(uid)

    def back_off(self, gang: GangKey, until: float) -> None:
        """Do not try the gang before *until* (seconds since the epoch)."""
        self._inflight.back_off(gang, until)


def listen(cluster: Cluster, passers: Passers, barrier: Barrier) -> None:
    """Let *barrier* hear what changes in the cluster."""

    def hear_pod(uid: PodUid, pod: Pod | None) -> None:
        passers.forget(uid)  # from now on the watch knows better, also that it is gone
        gang = cluster.gang_of(uid)
        barrier.pod_changed(uid, gang)
        if pod is not None and pod.refusal and gang is not None:
            barrier.sibling_unschedulable(uid, gang)

    cluster.watch_pods(hear_pod)
    cluster.on_group(barrier.group_changed)
    cluster.on_node(lambda name, _: barrier.node_changed(name))


def _gang_of(uid: PodUid, cluster: Cluster, passers: Passers) -> GangKey | None:
    gang = cluster.gang_of(uid)
    if gang is not None:
        return gang
    passer = passers.get(uid)
    if passer is None:
        return cluster.gang_of(uid)  # shown by the watch, and so forgotten, between the two looks
    return passer.membership.key if passer.pod.ours else None

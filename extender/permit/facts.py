"""The facts about pods, gangs and nodes that the state machine decides by, from the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from extender.cache.cluster import Cluster
from extender.model.gang import GangKey
from extender.model.pod import PodUid, Shape
from extender.reservations.ledger import Ledger


class CacheFacts:
    """Provides the facts of the state machine (`Facts`), without a lock."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        *,
        may_lose: Callable[[PodUid], bool],
        may_lose_all: Callable[[GangKey], bool],
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self.pod = cluster.pod
        self.pod_or_filtered = ledger.pod_or_filtered
        self.group = cluster.group
        self.pods_of = cluster.pods_of
        self.scheduled = cluster.scheduled
        self.scheduled_in_role = cluster.scheduled_in_role
        self.node = cluster.node
        self.may_bind = ledger.may_bind
        self.may_lose = may_lose
        self.may_lose_all = may_lose_all

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the gang of a pod; None for one that is bound without a gang."""
        pod = self.pod_or_filtered(uid)
        if pod is None or pod.is_unmanaged:
            return None
        filtered = self._ledger.filtered(uid)
        if filtered and not filtered.membership.named and self._cluster.seen(uid) is None:
            return None  # the implicit PodGroup of a single pod appears after the pod
        return self._ledger.gang_of(uid)

    def reserved_node(self, uid: PodUid) -> str | None:
        """Return the node that is reserved for this pod; None without any."""
        reservation = self._ledger.reservation_on_node(uid)
        return reservation.node if reservation else None

    def has_passed(self, uid: PodUid) -> bool:
        """Return whether filter admitted a pod.

        For a gang that kube-scheduler itself assembles it is always true: an earlier leader may
        have admitted the pod, and refusing one member would split the gang.
        """
        return self._ledger.has_passed(uid) or self._ledger.is_native(uid)

    def has_capacity(self, uid: PodUid, node: str) -> bool:
        """Return whether a node has free capacity for a pod.

        For a gang that kube-scheduler itself assembles it is always true: refusing one member
        would split the gang. A pod that is on a node needs no capacity any more.
        """
        pod = self._cluster.pod(uid)
        is_scheduled = pod is not None and bool(pod.node)
        return is_scheduled or self._ledger.is_native(uid) or self.fits(node, (uid,))

    def fits(self, node: str, pods: Iterable[PodUid]) -> bool:
        """Return whether *pods* fit on a node besides all pods that are there or on the way there.

        Only the resources that they request count. Reservations of pods that kube-scheduler has
        not assumed do not count: those pods have not come yet.
        """
        free = self._cluster.free(node)
        if free is None:
            return False
        wanted: dict[str, int] = {}
        last: Shape | None = None
        for uid in pods:
            reservation = self._ledger.reservation_on_node(uid)
            counted = (
                reservation is not None
                and reservation.node == node
                and not reservation.is_unassumed
            )
            pod = reservation.pod if reservation else self.pod_or_filtered(uid)
            if counted and pod and pod.shape is last:
                continue  # nearly always: one of many alike, already subtracted
            last = pod.shape if pod else None
            for name, amount in pod.requests.items() if pod else ():
                if amount > 0:
                    wanted[name] = wanted.get(name, 0) + (0 if counted else amount)
        return all(amount <= free.amount(name) for name, amount in wanted.items())

"""Probes kube-scheduler when its liveness is unknown, because no capacity is reserved meanwhile.

kube-scheduler retries an unschedulable pod only when something changes. So after a restart of the
extender, or in a quiet cluster, a healthy kube-scheduler may not call for minutes. A probe finds
out whether it would: the extender wakes one pod after the other, with pauses, without a
reservation. For a pod that filter refused, any change of the pod is enough. For a pod that fits no
node, a nomination is set and cleared. A pod that is refused again loses nothing. A pod with a
reservation, or of a gang that has one, is left to the ledger.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.cache.cluster import Cluster
from extender.model.pod import WOKEN, Pod
from extender.ports import WakeOrder

LOOK_S = 0.5
#: So much of the last condition is kept next to `WOKEN`; people may have to read it for long.
_KEPT_CHARACTERS = 200


class SchedulerProbe:
    """Probes the kube-scheduler of every name that shows no sign of life while pods wait for it."""

    def __init__(
        self,
        cluster: Cluster,
        wake: Callable[[list[WakeOrder]], None],
        why_not_ready: Callable[[], list[str]],
    ) -> None:
        self._cluster = cluster
        self._wake = wake
        #: A standby sends no probes, and decides nothing.
        self._why_not_ready = why_not_ready

    def probe(self) -> bool:
        """Update the liveness of each scheduler, and probe where due; always return False."""
        if self._why_not_ready():
            return False
        liveness = self._cluster.liveness
        liveness.update()
        for name in liveness.names:
            pod = liveness.choose_for_probe(name, self._has_no_reservation)
            if pod is not None:
                self._wake([self._wake_order(pod)])
        return False

    def _has_no_reservation(self, pod: Pod) -> bool:
        gang = self._cluster.gang_of(pod.uid)
        is_reserved = gang is not None and bool(self._cluster.reservations.of_gang(gang))
        return not is_reserved and not pod.nominated

    def _wake_order(self, pod: Pod) -> WakeOrder:
        message = pod.refusal.removesuffix(WOKEN)[:_KEPT_CHARACTERS]
        # If no node has free capacity for the pod, any node may be nominated for a moment.
        node = self._cluster.any_node() if pod.lacks_capacity else ""
        return WakeOrder(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=node,
            refusal=f"{message}{WOKEN}" if message else "",
            briefly=bool(node),
        )

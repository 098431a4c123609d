"""Calling for kube-scheduler where nobody knows whether it comes: no room is kept meanwhile.

A pod that is parked is looked at again only when something happens to it, so after a restart of
ours, or in a quiet cluster, a kube-scheduler that is well may ask nothing for minutes. Whether it
would come is found out by waking one pod after the other, with pauses, for nothing in particular:
by any change where we refused the pod, by a nomination that is taken back where all nodes are full.
Who is answered with a refusal has lost nothing; who has a place, or a sibling that has one, is left
to the ledger.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.cache.cluster import Cluster
from extender.model.pod import WOKEN, Pod
from extender.ports import WakeOrder

LOOK_S = 0.5
#: So much of its last word is kept beside `CALLED`; people may have to read it for long.
_KEPT_WORDS = 200


class SchedulerProbe:
    """Calls for the kube-scheduler of every name that gives no sign while pods wait for it."""

    def __init__(
        self,
        cluster: Cluster,
        wake: Callable[[list[WakeOrder]], None],
        readiness: Callable[[], list[str]],
    ) -> None:
        self._cluster = cluster
        self._wake = wake
        #: A standby calls for nobody, and concludes nothing.
        self._readiness = readiness

    def probe(self) -> bool:
        """Conclude who is silent and call where it is time; there is never more to do at once."""
        if self._readiness():
            return False
        hearing = self._cluster.hearing
        hearing.update()
        for name in hearing.names:
            pod = hearing.due_for_probe(name, self._has_no_part_in_promises)
            if pod is not None:
                self._wake([self._call(pod)])
        return False

    def _has_no_part_in_promises(self, pod: Pod) -> bool:
        gang = self._cluster.gang_of(pod.uid)
        is_promised = gang is not None and bool(self._cluster.reservations.of_gang(gang))
        return not is_promised and not pod.nominated

    def _call(self, pod: Pod) -> WakeOrder:
        said = pod.refusal.removesuffix(WOKEN)[:_KEPT_WORDS]
        # Where no node has room for the pod, it does not matter which one is named for a moment.
        node = self._cluster.any_node() if pod.lacks_capacity else ""
        return WakeOrder(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=node,
            refusal=f"{said}{WOKEN}" if said else "",
            briefly=bool(node),
        )

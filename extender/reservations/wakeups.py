"""Wakes pods that have a reservation and do not come to filter.

kube-scheduler does not know that a gang was admitted. A pod in its unschedulable queue comes only
when it is nominated to its node. A pod may be refused and reserved in the same moment, and a
wake-up may be lost on its way. So no order of events is assumed: an unschedulable pod with a
reservation is checked again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Reservation, Stage
from extender.model.gang import Membership
from extender.model.pod import Pod, PodUid
from extender.ports import WakeOrder

#: More pods than kube-scheduler has between filter and bind, or unschedulable and not yet shown.
REMEMBERED = 20_000
#: The most pods that the watch has shown to be gone: some seconds' worth, by far.
_MOST_GONE = 20_000


class FilteredPod(NamedTuple):
    """A pod as kube-scheduler showed it to filter."""

    pod: Pod
    membership: Membership


class FilterResults:
    """The last filter results; each operation is one step of a dict, so no lock is needed.

    To find the oldest entry with an iterator would be two steps, and the watch removes entries
    meanwhile.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._filtered: dict[PodUid, FilteredPod] = {}
        #: Pods that may come to bind: filter admitted them, and they are not known to have a node.
        self._awaiting_bind: dict[PodUid, None] = {}
        #: Numbers results and wake-ups, so that of two the later one is known.
        self.sequence = count(1)
        #: Pods that the watch has shown to be gone; kube-scheduler may not know it yet.
        self._gone: dict[PodUid, None] = {}
        #: The sequence number of the last refusal of each pod.
        self._refused: dict[PodUid, int] = {}

    def __len__(self) -> int:
        """Return the number of admitted pods that are remembered as filter saw them."""
        return len(self._filtered)

    def passed(self, pod: Pod, membership: Membership) -> None:
        """Record that filter admitted *pod*."""
        self._refused.pop(pod.uid, None)
        _remember(self._filtered, pod.uid, FilteredPod(pod, membership), self._remembered)
        _remember(self._awaiting_bind, pod.uid, None, 10 * self._remembered)

    def refused(self, uid: PodUid) -> None:
        """Record that filter refused a pod."""
        self._awaiting_bind.pop(uid, None)
        _remember(self._refused, uid, next(self.sequence), 10 * self._remembered)

    def filtered(self, uid: PodUid) -> FilteredPod | None:
        """Return an admitted pod as filter last saw it."""
        return self._filtered.get(uid)

    def has_passed(self, uid: PodUid) -> bool:
        """Return whether filter last admitted a pod, and it has not been seen on a node since."""
        return uid in self._awaiting_bind

    def refused_at(self, uid: PodUid) -> int | None:
        """Return the sequence number of the last refusal; None when admitted since, or unknown."""
        return self._refused.get(uid)

    def seen(self, uid: PodUid, pod: Pod | None) -> None:
        """Called with the state of a pod in the watch, which is newer; None when it is gone."""
        if pod is not None:
            self._gone.pop(uid, None)
        else:
            _remember(self._gone, uid, None, _MOST_GONE)
        self._filtered.pop(uid, None)
        if pod is None or pod.node:
            self._refused.pop(uid, None)
            self._awaiting_bind.pop(uid, None)

    def is_gone(self, uid: PodUid) -> bool:
        """Return whether the watch has shown that a pod is gone, before kube-scheduler perhaps."""
        return uid in self._gone


def _remember(remembered: dict[PodUid, Any], uid: PodUid, value: object, most: int) -> None:
    """Add an entry as the newest; above *most*, drop the oldest twentieth."""
    remembered.pop(uid, None)
    remembered[uid] = value
    if len(remembered) > most:
        for oldest in list(remembered)[: max(1, len(remembered) // 20)]:
            remembered.pop(oldest, None)


#: A woken pod that has not come to filter after so long is woken again.
AGAIN_S = 3.0
#: A reserved pod that comes without a wake-up has come by then; otherwise kube-scheduler forgot it.
#: Version 1.28 does so when its call got no answer, and writes no condition about it that is read.
NOT_WOKEN_S = 9.0
#: How long a nomination may take to reach kube-scheduler and bring the pod back to filter.
ARRIVES_S = 1.0


class _Woken(NamedTuple):
    node: str
    at: float
    #: Before or after a filter result? See `FilterResults.sequence`.
    number: int


class WakeUps:
    """Sends wake-ups and remembers them while the reservation lasts."""

    def __init__(
        self,
        cluster: Cluster,
        results: FilterResults,
        send: Callable[[list[WakeOrder]], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._results = results
        self._send = send
        #: kube-scheduler works through its queue: the pod may still come.
        self._is_busy = is_busy
        self._woken: dict[PodUid, _Woken] = {}

    def wake(self, reservations: Iterable[Reservation], now: float) -> None:
        """Nominate pods to their reserved nodes."""
        woken, number = list(reservations), next(self._results.sequence)
        self._woken.update((each.uid, _Woken(each.node, now, number)) for each in woken)
        self._send_orders(woken)

    def clear_nominations(self, reservations: Iterable[Reservation]) -> None:
        """Clear the nominations of pods whose reservations are released."""
        self._send_orders(
            each._replace(node="")
            for each in reservations
            if self._woken.pop(each.uid, None) is not None
        )

    def _send_orders(self, reservations: Iterable[Reservation]) -> None:
        orders = [
            WakeOrder(
                uid=each.uid,
                namespace=each.pod.namespace,
                name=each.pod.name,
                gang=each.gang,
                node=each.node,
            )
            for each in reservations
        ]
        if orders:
            self._send(orders)

    def wake_due(self, reservations: Iterable[Reservation], now: float) -> None:
        """Wake pods in the unschedulable queue of kube-scheduler; it retries all others itself."""
        self.wake([each for each in reservations if self.is_due(each, now)], now)

    def _is_unschedulable(self, reservation: Reservation) -> bool:
        """Return whether a pod is in the unschedulable queue, now or since before our start.

        A pod that it never looked at has no condition of this kind; kube-scheduler retries it
        itself.
        """
        if self._results.refused_at(reservation.uid) is not None:
            return True
        pod = self._cluster.pod(reservation.uid) or reservation.pod
        return bool(pod.refusal) and self._results.filtered(reservation.uid) is None

    def is_due(self, reservation: Reservation, now: float) -> bool:
        """Return whether a reserved pod must be woken, perhaps once more."""
        if reservation.stage is not Stage.RESERVED or reservation.pod.is_placeholder:
            return False
        woken = self._woken.get(reservation.uid)
        if woken is None:
            is_late = now - reservation.since_monotonic > NOT_WOKEN_S and not self._is_busy()
            return is_late or self._is_unschedulable(reservation)
        refused_at = self._results.refused_at(reservation.uid)
        if refused_at is not None and refused_at > woken.number:
            return True
        return now - woken.at > AGAIN_S and not self._is_busy()

    def has_woken(self, uid: PodUid) -> bool:
        """Return whether a pod was woken for its reservation."""
        return uid in self._woken

    def was_nominated(self, reservation: Reservation, now: float) -> bool:
        """Return whether kube-scheduler must have checked the reserved node by now."""
        woken = self._woken.get(reservation.uid)
        return woken is not None and woken.node == reservation.node and now - woken.at > ARRIVES_S

    def pod_filtered(self, uid: PodUid, now: float) -> None:
        """Record that a pod came to filter; its nomination stands until it is cleared."""
        if uid in self._woken:
            self._woken[uid] = _Woken("", now, next(self._results.sequence))

    def forget(self, uid: PodUid) -> None:
        """Forget a pod without a reservation."""
        self._woken.pop(uid, None)

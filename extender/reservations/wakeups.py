"""Who has a place and did not come: woken at once when parked, and again when overslept.

kube-scheduler does not know that a gang was admitted; a parked pod comes only when somebody
nominates it to its node. A pod may be refused and promised a place in the same moment, and a
wake-up may be lost on its way, so nobody relies on one order: whoever is parked and has a place
is looked at every second.
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

#: More than kube-scheduler has between filter and bind, or parked and not yet shown to us.
REMEMBERED = 20_000
#: And so many of whom the watch has shown that they are gone: some seconds' worth, by far.
_MOST_GONE = 20_000


class FilteredPod(NamedTuple):
    """A pod as kube-scheduler showed it to filter."""

    pod: Pod
    membership: Membership


class FilterResults:
    """The last answers; each operation is one step of a dict, so nobody locks.

    To look for the oldest with an iterator would be two, and the watch takes entries out meanwhile.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._passed: dict[PodUid, FilteredPod] = {}
        #: Who may come to bind: it passed, and is not known to have a node.
        self._may_come: dict[PodUid, None] = {}
        #: Numbers answers and wake-ups, so that of two the later one is known.
        self.moments = count(1)
        #: Whom the watch has shown for the last time; kube-scheduler may not have heard of it yet.
        self._gone: dict[PodUid, None] = {}
        #: The moment at which each was refused last.
        self._refused: dict[PodUid, int] = {}

    def passed(self, pod: Pod, membership: Membership) -> None:
        """Remember that *pod* was let pass."""
        self._refused.pop(pod.uid, None)
        self._passed.pop(pod.uid, None)
        self._passed[pod.uid] = FilteredPod(pod, membership)
        if len(self._passed) > self._remembered:
            _forget_some(self._passed)
        self._may_come.pop(pod.uid, None)
        self._may_come[pod.uid] = None
        if len(self._may_come) > 10 * self._remembered:
            _forget_some(self._may_come)

    def refused(self, uid: PodUid) -> None:
        """Remember that a pod was refused."""
        self._may_come.pop(uid, None)
        self._refused.pop(uid, None)
        self._refused[uid] = next(self.moments)
        if len(self._refused) > 10 * self._remembered:
            _forget_some(self._refused)

    def filtered(self, uid: PodUid) -> FilteredPod | None:
        """Return a pod that passed as filter last saw it."""
        return self._passed.get(uid)

    def has_passed(self, uid: PodUid) -> bool:
        """Return whether filter last let a pod pass, and nobody has seen it on a node since."""
        return uid in self._may_come

    def refused_at(self, uid: PodUid) -> int | None:
        """Return when a pod was refused; None when it passed since, or was never asked about."""
        return self._refused.get(uid)

    def seen(self, uid: PodUid, pod: Pod | None) -> None:
        """Hear what the watch says of a pod: it knows better now, also that it is gone."""
        if pod is not None:
            self._gone.pop(uid, None)
        else:
            self._gone[uid] = None
            if len(self._gone) > _MOST_GONE:
                _forget_some(self._gone)
        self._passed.pop(uid, None)
        if pod is None or pod.node:
            self._refused.pop(uid, None)
            self._may_come.pop(uid, None)

    def is_gone(self, uid: PodUid) -> bool:
        """Return whether the watch has shown that a pod is there no longer; perhaps only we know."""
        return uid in self._gone


def _forget_some(remembered: dict[PodUid, Any]) -> None:
    """Drop the oldest twentieth, so that it is looked for seldom."""
    for uid in list(remembered)[: max(1, len(remembered) // 20)]:
        remembered.pop(uid, None)


#: A woken pod that has not come to filter by then is woken again.
AGAIN_S = 3.0
#: Who has a place and comes by himself is here by then; else kube-scheduler sleeps on him. One of
#: 1.28 does when nobody answered its call, and says so in no condition that we read.
NOT_WOKEN_S = 9.0
#: How long a nomination may take to reach kube-scheduler and bring the pod back to filter.
ARRIVES_S = 1.0


class _Woken(NamedTuple):
    node: str
    at: float
    #: Before or after an answer? See `Answers.moments`.
    moment: int


class WakeUps:
    """Sends wake-ups and remembers them as long as the promise lasts."""

    def __init__(
        self,
        cluster: Cluster,
        answers: FilterResults,
        send: Callable[[list[WakeOrder]], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._answers = answers
        self._send = send
        #: kube-scheduler is working through its queue: a pod's turn may yet come.
        self._is_busy = is_busy
        self._woken: dict[PodUid, _Woken] = {}

    def wake(self, promises: Iterable[Reservation], now: float) -> None:
        """Nominate pods to the nodes they were promised."""
        woken, moment = list(promises), next(self._answers.moments)
        self._woken.update((each.uid, _Woken(each.node, now, moment)) for each in woken)
        self._order(woken)

    def take_back(self, promises: Iterable[Reservation]) -> None:
        """Take back what pods were nominated to: their places are given back too."""
        self._order(
            each._replace(node="")
            for each in promises
            if self._woken.pop(each.uid, None) is not None
        )

    def _order(self, promises: Iterable[Reservation]) -> None:
        orders = [
            WakeOrder(
                uid=each.uid,
                namespace=each.pod.namespace,
                name=each.pod.name,
                gang=each.gang,
                node=each.node,
            )
            for each in promises
        ]
        if orders:
            self._send(orders)

    def wake_due(self, promises: Iterable[Reservation], now: float) -> None:
        """Wake those whom kube-scheduler has put aside; the others come by themselves."""
        self.wake([each for each in promises if self.is_due(each, now)], now)

    def _is_parked(self, promise: Reservation) -> bool:
        """Return whether kube-scheduler has put a pod aside, now or before our time.

        One it never looked at has no condition that says so; it comes by itself.
        """
        if self._answers.refused_at(promise.uid) is not None:
            return True
        pod = self._cluster.pod(promise.uid) or promise.pod
        return bool(pod.refusal) and self._answers.filtered(promise.uid) is None

    def is_due(self, promise: Reservation, now: float) -> bool:
        """Return whether a pod that has a place must be woken, perhaps once more."""
        if promise.stage is not Stage.RESERVED or promise.pod.is_placeholder:
            return False
        woken = self._woken.get(promise.uid)
        if woken is None:
            overslept = now - promise.since_monotonic > NOT_WOKEN_S and not self._is_busy()
            return overslept or self._is_parked(promise)
        refused_at = self._answers.refused_at(promise.uid)
        if refused_at is not None and refused_at > woken.moment:
            return True
        return now - woken.at > AGAIN_S and not self._is_busy()

    def has_woken(self, uid: PodUid) -> bool:
        """Return whether a pod was woken for the place it has."""
        return uid in self._woken

    def was_nominated(self, promise: Reservation, now: float) -> bool:
        """Return whether kube-scheduler must have looked at the promised node by now."""
        woken = self._woken.get(promise.uid)
        return woken is not None and woken.node == promise.node and now - woken.at > ARRIVES_S

    def came(self, uid: PodUid, now: float) -> None:
        """Record that a pod came to filter; its nomination stands until it is taken back."""
        if uid in self._woken:
            self._woken[uid] = _Woken("", now, next(self._answers.moments))

    def forget(self, uid: PodUid) -> None:
        """Drop what is remembered of a pod without a promise."""
        self._woken.pop(uid, None)

"""Who has a place and did not come: woken at once when parked, and again when overslept.

kube-scheduler does not know that a gang was admitted; a parked pod comes only when somebody
nominates it to its node. A pod may be refused and promised a place in the same moment, and a
wake-up may be lost on its way, so nobody relies on one order: whoever is parked and has a place
is looked at every second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from extender.cache.cluster import Cluster
from extender.cache.inflight import Promise, Stage
from extender.model.pod import PodUid
from extender.ports import WakeOrder
from extender.promises.answers import Answers

#: A woken pod that has not come to filter by then is woken again.
AGAIN_S = 3.0
#: Who has a place and comes by himself is here by then; else kube-scheduler sleeps on him. One of
#: 1.28 does when nobody answered its call, and says so in no condition that we read.
OVERSLEPT_S = 9.0
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
        answers: Answers,
        send: Callable[[list[WakeOrder]], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._answers = answers
        self._send = send
        #: kube-scheduler is working through its queue: a pod's turn may yet come.
        self._is_busy = is_busy
        self._woken: dict[PodUid, _Woken] = {}

    def wake(self, promises: Iterable[Promise], now: float) -> None:
        """Nominate pods to the nodes they were promised."""
        woken, moment = list(promises), next(self._answers.moments)
        self._woken.update((each.uid, _Woken(each.node, now, moment)) for each in woken)
        self._order(woken)

    def take_back(self, promises: Iterable[Promise]) -> None:
        """Take back what pods were nominated to: their places are given back too."""
        self._order(
            each._replace(node="")
            for each in promises
            if self._woken.pop(each.uid, None) is not None
        )

    def _order(self, promises: Iterable[Promise]) -> None:
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

    def wake_due(self, promises: Iterable[Promise], now: float) -> None:
        """Wake those whom kube-scheduler has put aside; the others come by themselves."""
        self.wake([each for each in promises if self.is_due(each, now)], now)

    def _is_parked(self, promise: Promise) -> bool:
        """Ask whether kube-scheduler has put a pod aside, now or before our time.

        One it never looked at has no condition that says so; it comes by itself.
        """
        if self._answers.refused_at(promise.uid) is not None:
            return True
        pod = self._cluster.pod(promise.uid) or promise.pod
        return bool(pod.refusal) and self._answers.passer(promise.uid) is None

    def is_due(self, promise: Promise, now: float) -> bool:
        """Ask whether a pod that has a place must be woken, perhaps once more."""
        if promise.stage is not Stage.TICKETED or promise.pod.is_placeholder:
            return False
        woken = self._woken.get(promise.uid)
        if woken is None:
            overslept = now - promise.since_monotonic > OVERSLEPT_S and not self._is_busy()
            return overslept or self._is_parked(promise)
        refused_at = self._answers.refused_at(promise.uid)
        if refused_at is not None and refused_at > woken.moment:
            return True
        return now - woken.at > AGAIN_S and not self._is_busy()

    def has_woken(self, uid: PodUid) -> bool:
        """Ask whether a pod was woken for the place it has."""
        return uid in self._woken

    def was_nominated(self, promise: Promise, now: float) -> bool:
        """Ask whether kube-scheduler must have looked at the promised node by now."""
        woken = self._woken.get(promise.uid)
        return woken is not None and woken.node == promise.node and now - woken.at > ARRIVES_S

    def came(self, uid: PodUid, now: float) -> None:
        """Hear that a pod came to filter; its nomination stands until it is taken back."""
        if uid in self._woken:
            self._woken[uid] = _Woken("", now, next(self._answers.moments))

    def forget(self, uid: PodUid) -> None:
        """Drop what is remembered of a pod without a promise."""
        self._woken.pop(uid, None)

"""Pods that passed filter a moment ago: their bind may come before the watch shows them."""

from __future__ import annotations

from typing import NamedTuple

from extender.model.membership import Membership
from extender.model.pod import Pod, PodUid

#: Longer than kube-scheduler takes from filter to bind without volumes to provision.
REMEMBERED = 20_000


class Passer(NamedTuple):
    """A pod as kube-scheduler showed it to filter."""

    pod: Pod
    membership: Membership


class Passers:
    """The last so many of them; each operation is one step of a dict, so nobody locks."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._by_uid: dict[PodUid, Passer] = {}

    def note(self, pod: Pod, membership: Membership) -> None:
        """Remember *pod*, and forget the oldest when there are too many."""
        self._by_uid.pop(pod.uid, None)
        self._by_uid[pod.uid] = Passer(pod, membership)
        if len(self._by_uid) > self._remembered:
            self._by_uid.pop(next(iter(self._by_uid)), None)

    def get(self, uid: PodUid) -> Passer | None:
        """Give the pod as filter last saw it."""
        return self._by_uid.get(uid)

    def forget(self, uid: PodUid) -> None:
        """Drop a pod whose bind was answered."""
        self._by_uid.pop(uid, None)

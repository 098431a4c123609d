"""What filter answered, for as long as nobody else knows.

A pod that passed may come to bind before the watch has shown it to us, and one that never passed
must not; one that was refused is parked in kube-scheduler until somebody wakes it.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from extender.model.gang import Membership
from extender.model.pod import Pod, PodUid

#: More than kube-scheduler has between filter and bind, or parked and not yet shown to us.
REMEMBERED = 20_000
#: And so many of whom the watch has shown that they are gone: some seconds' worth, by far.
_MOST_GONE = 20_000


class Passer(NamedTuple):
    """A pod as kube-scheduler showed it to filter."""

    pod: Pod
    membership: Membership


class Answers:
    """The last answers; each operation is one step of a dict, so nobody locks.

    To look for the oldest with an iterator would be two, and the watch takes entries out meanwhile.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._passed: dict[PodUid, Passer] = {}
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
        self._passed[pod.uid] = Passer(pod, membership)
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

    def passer(self, uid: PodUid) -> Passer | None:
        """Give a pod that passed as filter last saw it."""
        return self._passed.get(uid)

    def has_passed(self, uid: PodUid) -> bool:
        """Ask whether filter last let a pod pass, and nobody has seen it on a node since."""
        return uid in self._may_come

    def refused_at(self, uid: PodUid) -> int | None:
        """Tell when a pod was refused; None when it passed since, or was never asked about."""
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
        """Ask whether the watch has shown that a pod is there no longer; perhaps only we know."""
        return uid in self._gone


def _forget_some(remembered: dict[PodUid, Any]) -> None:
    """Drop the oldest twentieth, so that it is looked for seldom."""
    for uid in list(remembered)[: max(1, len(remembered) // 20)]:
        remembered.pop(uid, None)

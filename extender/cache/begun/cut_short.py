"""Gangs that we, or whoever led before us, began to bind and did not finish.

Such a gang holds room that is of no use without the rest, and it is not to blame: it goes before
everybody. So nobody may come to look like one by himself. Whoever loses a member while we watch, or
asks for more members than it was started with, or brings others than were there, runs with too few,
but was not cut short. We know of two ways only:

    a commit of ours   the barrier says that it ended with too few
    our beginning      it has too few when we begin to lead, or in the moments after, when what
                       was sent before us arrives; and nobody has told yet that it runs

Nothing is written for it: what the second way rests on, the API server shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from extender.model.gang import UNTOLD, Gang, GangKey, PodGroup
from extender.model.pod import SEATED_SET, VALID_SET, Pod, PodUid

#: So long after our beginning a binding may arrive that was sent before it.
ARRIVES_S = 15.0
#: What it has is not taken back at once by those whose due it is, or it would never be completed;
#: but not for ever, for it may never find room.
SPARED_S = 60.0
_WHY = "the rest of its gang is being bound"
_NOBODY: frozenset[GangKey] = frozenset()


class _Begun(NamedTuple):
    """What was begun: another PodGroup, another minimum or other members are another gang."""

    uid: str
    min_member: int
    members: frozenset[PodUid]
    #: Until when, in monotonic seconds, nobody of it is asked to leave.
    spared_until: float

    @classmethod
    def of(cls, group: PodGroup, pods: Iterable[Pod], now: float) -> _Begun:
        members = frozenset(pod.uid for pod in pods)
        return cls(group.uid, group.min_member, members, now + SPARED_S)

    def is_still(self, gang: Gang | None) -> bool:
        """Ask whether *gang* is what was begun, and could be completed by those who were there."""
        if gang is None or not gang.is_torn:
            return False
        group = gang.group
        if (group.uid, group.min_member) != (self.uid, self.min_member):
            return False
        left = sum(pod.uid in self.members and pod.status in VALID_SET for pod in gang.pods)
        return left >= self.min_member


class CutShort:
    """Told by the event loop, looked at by whoever takes a snapshot."""

    def __init__(self) -> None:
        #: Replaced as a whole.
        self._known: Mapping[GangKey, _Begun] = {}
        #: A term begins with the next look; whoever only reads what was saved has none.
        self._begins = False
        #: Until when, in monotonic seconds, those count that have too few.
        self._begins_until = float("-inf")
        self._tell: Callable[[GangKey], None] = lambda _: None

    def on_found(self, tell: Callable[[GangKey], None]) -> None:
        """Tell whom our beginning shows, once each."""
        self._tell = tell

    def forget(self) -> None:
        """Begin anew: a term has begun, or is over."""
        self._known, self._begins = {}, True

    def failed(self, group: PodGroup, pods: Iterable[Pod], now: float) -> None:
        """Hear that a commit of ours has ended, and too few of *pods* are bound."""
        self._known = {**self._known, group.key: _Begun.of(group, pods, now)}

    def among(self, gangs: Mapping[GangKey, Gang], now: float) -> frozenset[GangKey]:
        """Name those of *gangs* that were cut short and still have too few members."""
        if self._begins:
            self._begins, self._begins_until = False, now + ARRIVES_S
        if not self._known and now > self._begins_until:
            return _NOBODY
        known = self._known
        found = {key: begun for key, begun in known.items() if begun.is_still(gangs.get(key))}
        begun_before: dict[GangKey, _Begun] = {}
        if now <= self._begins_until:
            begun_before = {
                key: begun
                for key, gang in gangs.items()
                if key not in found and gang.is_torn and gang.group.phase in UNTOLD
                if (begun := _Begun.of(gang.group, gang.pods, now)).is_still(gang)
            }
            found |= begun_before
        if self._known is known:  # else the loop has told us of another one, or to begin anew
            self._known = found
            for key in begun_before:
                self._tell(key)
        return frozenset(found)

    def spared(self, gangs: Mapping[GangKey, Gang], now: float) -> dict[PodUid, str]:
        """Name the pods of those that are not to be asked to leave, each with the reason."""
        return {
            pod.uid: _WHY
            for key, begun in self._known.items()
            if now < begun.spared_until and key in gangs
            for pod in gangs[key].pods
            if pod.status in SEATED_SET
        }

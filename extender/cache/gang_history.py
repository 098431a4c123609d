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

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import NamedTuple, Protocol, TypeAlias

from extender.model.gang import UNSPECIFIED, Gang, GangKey, PodGroup
from extender.model.pod import SCHEDULED_SET, VALID_SET, Pod, PodUid

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
        if gang is None or not gang.is_below_minimum:
            return False
        group = gang.group
        if (group.uid, group.min_member) != (self.uid, self.min_member):
            return False
        left = sum(pod.uid in self.members and pod.status in VALID_SET for pod in gang.pods)
        return left >= self.min_member


class PartialGangs:
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
                if key not in found and gang.is_below_minimum and gang.group.phase in UNSPECIFIED
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
            if pod.status in SCHEDULED_SET
        }


#: It offered other nodes; perhaps ours was only full for a moment.
PASSED_OVER_S = 30.0
#: It found no node at all; longer than the gang's own pauses, so that the next try is another.
FITS_NOWHERE_S = 300.0
#: Pairs of a gang and a node.
MOST = 20_000
_NONE: frozenset[str] = frozenset()


class RejectedNodes:
    """Pairs of a gang and a node; any thread may note one.

    Where they are too many, the namespace with the most loses some, those of the gang it has had
    the longest first: nobody makes others forget.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        #: Until when each node counts, by namespace and gang.
        self._until: dict[str, dict[GangKey, dict[str, float]]] = {}
        #: How many pairs there are, by namespace and in all.
        self._counts: dict[str, int] = {}
        self._total = 0
        #: The nodes by gang; what is over is among them until somebody asks for all.
        self._nodes: dict[GangKey, frozenset[str]] = {}

    def note(self, gang: GangKey, node: str, for_s: float) -> None:
        """Remember for a while that kube-scheduler would not have *gang* on *node*."""
        self.note_all(gang, (node,), for_s)

    def note_all(self, gang: GangKey, nodes: Collection[str], for_s: float) -> None:
        """Remember the same of several nodes, which may be thousands: the event loop waits.

        So what is known of others is left as it is, until somebody asks for all.
        """
        until = self._monotonic() + for_s
        with self._lock:
            known = self._until.get(_namespace(gang), {}).get(gang, {})
            self._keep(gang, {**known, **dict.fromkeys(nodes, until)})
            while (excess := self._total - MOST) > 0:
                self._lose(excess)

    def forget(self, gang: GangKey) -> None:
        """Drop what was remembered of a gang that is gone."""
        if gang in self._nodes:
            with self._lock:
                self._keep(gang, {})

    def of(self, gang: GangKey) -> Set[str]:
        """Give the nodes to leave alone for *gang*, as last sorted; usually none."""
        return self._nodes.get(gang, _NONE)

    def by_gang(self) -> Mapping[GangKey, frozenset[str]]:
        """Give the nodes to leave alone, by gang; usually nothing."""
        if not self._nodes:
            return {}
        with self._lock:
            self._expire()
            return dict(self._nodes)

    def _keep(self, gang: GangKey, known: dict[str, float]) -> None:
        """Remember this of a gang and nothing else."""
        namespace = _namespace(gang)
        gangs = self._until.setdefault(namespace, {})
        more = len(known) - len(gangs.get(gang, ()))
        self._total += more
        self._counts[namespace] = self._counts.get(namespace, 0) + more
        if known:
            gangs[gang], self._nodes[gang] = known, frozenset(known)
        else:
            gangs.pop(gang, None)
            self._nodes.pop(gang, None)
        if not gangs:
            del self._until[namespace], self._counts[namespace]

    def _lose(self, excess: int) -> None:
        namespace = max(self._counts, key=self._counts.__getitem__)
        gang, known = next(iter(self._until[namespace].items()))
        self._keep(gang, dict(islice(known.items(), excess, None)))

    def _expire(self) -> None:
        now = self._monotonic()
        over = [
            (gang, known)
            for gangs in self._until.values()
            for gang, known in gangs.items()
            if min(known.values()) <= now
        ]
        for gang, known in over:
            self._keep(gang, {node: until for node, until in known.items() if until > now})


def _namespace(gang: GangKey) -> str:
    return gang.partition("/")[0]


#: Counts who of a gang, or of one role in it, may be leaving beside those, unseen.
Granted: TypeAlias = Callable[[GangKey, str | None, Set[PodUid]], int]


class PodLookup(Protocol):
    """How things are in this moment, which a plan may not have seen."""

    def pods_of(self, key: GangKey) -> Sequence[Pod]:
        """Give the pods of a gang."""

    def on_nodes(self, key: GangKey) -> Set[PodUid]:
        """Name who of a gang is on a node, or on the way there."""


class PendingEvictions:
    """Written by the one who evicts, read from any thread: it is replaced as a whole."""

    def __init__(self, meanwhile: PodLookup) -> None:
        self.meanwhile = meanwhile
        #: Told by whoever lets kube-scheduler evict.
        self.granted: Granted = lambda gang, role, beside: 0
        self._asked: Mapping[GangKey, Set[PodUid]] = {}

    def includes(self, pods: Mapping[PodUid, GangKey]) -> None:
        """Hear who has been asked and has not left, each with its gang; nobody else has."""
        asked: dict[GangKey, set[PodUid]] = {}
        for uid, gang in pods.items():
            asked.setdefault(gang, set()).add(uid)
        self._asked = asked

    def pods(self, gang: GangKey, pods: Mapping[PodUid, Pod]) -> list[Pod]:
        """Give those of a gang who were asked and seem to stay; nearly always nobody."""
        asked = (pods.get(uid) for uid in self._asked.get(gang, ()))
        return [pod for pod in asked if pod is not None and pod.status in SCHEDULED_SET]

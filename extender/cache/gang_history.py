"""What happened to a gang before: partial gangs, rejected nodes, pending evictions.

A partial gang is one whose bindings this replica, or the leader before it, did not complete. Its
capacity is of no use without the rest, and the gang did not cause this. So it goes first. No other
gang must be able to look like one. A gang that loses a member, raises its minimum or replaces
members while this replica watches also runs below its minimum, but it is not partial. There are two
ways to become partial:

    a failed commit    the state machine reports that the commit ended below the minimum
    a new term         the gang is below its minimum when this replica begins to lead, or up to
                       `ARRIVES_S` later, and its status does not say yet that it runs

Nothing is stored for this: the second way relies on what the API server shows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import NamedTuple, Protocol, TypeAlias

from extender.model.gang import UNSPECIFIED, Gang, GangKey, PodGroup
from extender.model.pod import SCHEDULED_SET, VALID_SET, Pod, PodUid

#: So long after the begin of a term, a binding that was sent before it may still arrive.
ARRIVES_S = 15.0
#: For so long, queues below their deserved share do not reclaim its capacity. Otherwise the gang
#: could never be completed. Not for ever, because it may never find free capacity.
SPARED_S = 60.0
_WHY = "the rest of its gang is being bound"
_NO_GANGS: frozenset[GangKey] = frozenset()


class _PartialGang(NamedTuple):
    """A gang as it became partial; another PodGroup, minimum or members make it another one."""

    uid: str
    min_member: int
    members: frozenset[PodUid]
    #: Until then, in monotonic seconds, none of its pods is evicted.
    spared_until: float

    @classmethod
    def of(cls, group: PodGroup, pods: Iterable[Pod], now: float) -> _PartialGang:
        members = frozenset(pod.uid for pod in pods)
        return cls(group.uid, group.min_member, members, now + SPARED_S)

    def matches(self, gang: Gang | None) -> bool:
        """Return whether *gang* is this one and its members of then can still complete it."""
        if gang is None or not gang.is_below_minimum:
            return False
        group = gang.group
        if (group.uid, group.min_member) != (self.uid, self.min_member):
            return False
        left = sum(pod.uid in self.members and pod.status in VALID_SET for pod in gang.pods)
        return left >= self.min_member


class PartialGangs:
    """Written by the event loop, read for every snapshot."""

    def __init__(self) -> None:
        #: Replaced as a whole.
        self._known: Mapping[GangKey, _PartialGang] = {}
        #: A term begins with the next snapshot; a replica that only reads a saved cluster has none.
        self._is_new_term = False
        #: Until then, in monotonic seconds, any gang below its minimum is partial.
        self._discover_until = float("-inf")
        #: Gangs that were found partial and not reported yet.
        self._unreported: list[GangKey] = []
        self._notify: Callable[[GangKey], None] = lambda _: None

    def on_found(self, listener: Callable[[GangKey], None]) -> None:
        """Call *listener* once for each gang that is found partial at the begin of a term."""
        self._notify = listener

    def forget(self) -> None:
        """Begin anew, because a term has begun or ended."""
        self._known, self._is_new_term = {}, True

    def failed(self, group: PodGroup, pods: Iterable[Pod], now: float) -> None:
        """Record that a commit has ended and fewer *pods* than the minimum are bound."""
        self._known = {**self._known, group.key: _PartialGang.of(group, pods, now)}

    def update(self, gangs: Mapping[GangKey, Gang], now: float) -> frozenset[GangKey]:
        """Keep the partial gangs that are still below their minimum; return their keys.

        At the begin of a term this finds the gangs that an earlier leader left partial.
        """
        if self._is_new_term:
            self._is_new_term, self._discover_until = False, now + ARRIVES_S
        if not self._known and now > self._discover_until:
            return _NO_GANGS
        known = self._known
        found = {key: partial for key, partial in known.items() if partial.matches(gangs.get(key))}
        partial_before: dict[GangKey, _PartialGang] = {}
        if now <= self._discover_until:
            partial_before = {
                key: partial
                for key, gang in gangs.items()
                if key not in found and gang.is_below_minimum and gang.group.phase in UNSPECIFIED
                if (partial := _PartialGang.of(gang.group, gang.pods, now)).matches(gang)
            }
            found |= partial_before
        if self._known is known:  # else the event loop has changed it meanwhile
            self._known = found
            self._unreported += partial_before
        return frozenset(found)

    def report(self) -> None:
        """Pass the gangs that were found on to the listener; the cache calls it without a lock."""
        found, self._unreported = self._unreported, []
        for key in found:
            self._notify(key)

    def protected(self, gangs: Mapping[GangKey, Gang], now: float) -> dict[PodUid, str]:
        """Return the pods of partial gangs that must not be evicted yet, each with the reason."""
        return {
            pod.uid: _WHY
            for key, partial in self._known.items()
            if now < partial.spared_until and key in gangs
            for pod in gangs[key].pods
            if pod.status in SCHEDULED_SET
        }


#: kube-scheduler preferred other nodes; the reserved one may have been full for a moment.
NOT_CHOSEN_S = 30.0
#: kube-scheduler found no node; longer than the backoff of a gang, so that the next try differs.
FITS_NOWHERE_S = 300.0
#: Most pairs of a gang and a node.
MAX_PAIRS = 20_000
_NONE: frozenset[str] = frozenset()


class RejectedNodes:
    """Pairs of a gang and a node that kube-scheduler rejected; any thread may add one.

    Above the limit, the namespace with the most pairs loses some, first those of its oldest gang.
    So one namespace cannot displace the pairs of another.
    """

    def __init__(self, monotonic: Callable[[], float], max_pairs: int = MAX_PAIRS) -> None:
        self._monotonic = monotonic
        self._max_pairs = max_pairs
        self._lock = threading.Lock()
        #: When each node expires, by namespace and gang.
        self._until: dict[str, dict[GangKey, dict[str, float]]] = {}
        #: How many pairs there are, by namespace and in all.
        self._counts: dict[str, int] = {}
        self._total = 0
        #: The nodes by gang; expired ones are included until the next `expire`.
        self._nodes: dict[GangKey, frozenset[str]] = {}

    def note(self, gang: GangKey, node: str, for_s: float) -> None:
        """Remember for *for_s* that kube-scheduler rejected *node* for *gang*."""
        self.note_all(gang, (node,), for_s)

    def note_all(self, gang: GangKey, nodes: Collection[str], for_s: float) -> None:
        """Remember the same of several nodes, perhaps thousands, while the event loop waits.

        So expired pairs of other gangs stay until the next `expire`.
        """
        until = self._monotonic() + for_s
        with self._lock:
            known = self._until.get(_namespace(gang), {}).get(gang, {})
            self._keep(gang, {**known, **dict.fromkeys(nodes, until)})
            while (excess := self._total - self._max_pairs) > 0:
                self._lose(excess)

    def forget(self, gang: GangKey) -> None:
        """Forget the nodes of a gang that is gone."""
        if gang in self._nodes:
            with self._lock:
                self._keep(gang, {})

    def of(self, gang: GangKey) -> Set[str]:
        """Return the rejected nodes of *gang*; usually none. Expired ones may be among them."""
        return self._nodes.get(gang, _NONE)

    def expire(self) -> Mapping[GangKey, frozenset[str]]:
        """Forget expired nodes; return the others by gang, usually none."""
        if not self._nodes:
            return {}
        with self._lock:
            self._expire()
            return dict(self._nodes)

    def _keep(self, gang: GangKey, known: dict[str, float]) -> None:
        """Replace what is remembered of a gang."""
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
        expired_gangs = [
            (gang, known)
            for gangs in self._until.values()
            for gang, known in gangs.items()
            if min(known.values()) <= now
        ]
        for gang, known in expired_gangs:
            self._keep(gang, {node: until for node, until in known.items() if until > now})


def _namespace(gang: GangKey) -> str:
    return gang.partition("/")[0]


#: Counts the pods of a gang, or of one role of it, that kube-scheduler may be evicting although the
#: watch does not show it yet; the given pods are not counted.
Granted: TypeAlias = Callable[[GangKey, str | None, Set[PodUid]], int]


class PodLookup(Protocol):
    """Current facts that are newer than the snapshot of a plan: `Cluster`."""

    def pods_of(self, key: GangKey) -> Sequence[Pod]:
        """Return the pods of a gang."""

    def on_nodes(self, key: GangKey) -> Set[PodUid]:
        """Return the members of a gang that are on a node, or on the way there."""


class PendingEvictions:
    """Written by the thread that evicts, read by any thread: the mapping is replaced as a whole."""

    def __init__(self, meanwhile: PodLookup) -> None:
        self.meanwhile = meanwhile
        #: Set by the part that lets kube-scheduler preempt.
        self.granted: Granted = lambda gang, role, beside: 0
        self._requested: Mapping[GangKey, Set[PodUid]] = {}

    def replace(self, pods: Mapping[PodUid, GangKey]) -> None:
        """Replace the pods with a pending eviction, each with its gang."""
        requested: dict[GangKey, set[PodUid]] = {}
        for uid, gang in pods.items():
            requested.setdefault(gang, set()).add(uid)
        self._requested = requested

    def pods(self, gang: GangKey, pods: Mapping[PodUid, Pod]) -> list[Pod]:
        """Return the pods of *gang* with a pending eviction that still run; nearly always none."""
        requested = (pods.get(uid) for uid in self._requested.get(gang, ()))
        return [pod for pod in requested if pod is not None and pod.status in SCHEDULED_SET]

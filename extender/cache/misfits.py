"""Where kube-scheduler would not have a gang though we saw room: remembered for a while.

It checks more than we do (volumes, affinity between pods, topology, other extenders). Without a
memory the next plan would choose the same node again, for ever. With one that never forgets, a
node whose volume was attached elsewhere for a minute would be lost for good. What it found wrong
with one gang says nothing of any other, so it is remembered by gang and forgotten with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Set

from cachetools import TLRUCache

from extender.model.gang import GangKey

#: It offered other nodes; perhaps ours was only full for a moment.
PASSED_OVER_S = 30.0
#: It found no node at all; longer than the gang's own pauses, so that the next try is another.
FITS_NOWHERE_S = 300.0
MOST = 20_000
_NONE: frozenset[str] = frozenset()


class Misfits:
    """Pairs of a gang and a node; any thread may note one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._pairs: TLRUCache[tuple[GangKey, str], float] = TLRUCache(
            MOST, ttu=lambda _, for_s, now: now + for_s, timer=monotonic
        )
        #: The same by gang; what is over is in it until somebody asks for all.
        self._by_gang: Mapping[GangKey, frozenset[str]] = {}

    def note(self, gang: GangKey, node: str, for_s: float) -> None:
        """Remember for a while that kube-scheduler would not have *gang* on *node*."""
        self.note_all(gang, (node,), for_s)

    def note_all(self, gang: GangKey, nodes: Collection[str], for_s: float) -> None:
        """Remember the same of several nodes, which may be thousands: the event loop waits.

        So what is known of others is left as it is, until somebody asks for all.
        """
        with self._lock:
            for node in nodes:
                self._pairs[gang, node] = for_s
            if not self._by_gang.get(gang, _NONE).issuperset(nodes):
                self._by_gang = {**self._by_gang, gang: self._by_gang.get(gang, _NONE).union(nodes)}

    def forget(self, gang: GangKey) -> None:
        """Drop what was remembered of a gang that is gone."""
        if gang in self._by_gang:
            with self._lock:
                for pair in [pair for pair in self._pairs if pair[0] == gang]:
                    del self._pairs[pair]
                self._sort()

    def of(self, gang: GangKey) -> Set[str]:
        """Give the nodes to leave alone for *gang*, as last sorted; usually none."""
        return self._by_gang.get(gang, _NONE)

    def by_gang(self) -> Mapping[GangKey, frozenset[str]]:
        """Give the nodes to leave alone, by gang; usually nothing."""
        if self._by_gang:
            with self._lock:
                self._sort()
        return self._by_gang

    def _sort(self) -> None:
        self._pairs.expire()
        nodes: dict[GangKey, set[str]] = {}
        for gang, node in self._pairs:
            nodes.setdefault(gang, set()).add(node)
        self._by_gang = {gang: frozenset(names) for gang, names in nodes.items()}

"""Where kube-scheduler would not have a gang though we saw room: remembered for a while.

It checks more than we do (volumes, affinity between pods, topology, other extenders). Without a
memory the next plan would choose the same node again, for ever. With one that never forgets, a
node whose volume was attached elsewhere for a minute would be lost for good. What it found wrong
with one gang says nothing of any other, so it is remembered by gang and forgotten with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Set
from itertools import islice

from extender.model.gang import GangKey

#: It offered other nodes; perhaps ours was only full for a moment.
PASSED_OVER_S = 30.0
#: It found no node at all; longer than the gang's own pauses, so that the next try is another.
FITS_NOWHERE_S = 300.0
#: Pairs of a gang and a node.
MOST = 20_000
_NONE: frozenset[str] = frozenset()


class Misfits:
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

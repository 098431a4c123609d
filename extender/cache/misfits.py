"""Where kube-scheduler would not have a pod though we saw room: remembered for a while.

It checks more than we do (volumes, affinity between pods, topology, other extenders). Without a
memory the next plan would choose the same node again, for ever. With one that never forgets, a
node whose volume was attached elsewhere for a minute would be lost for good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from cachetools import TLRUCache

from extender.model.pod import Shape

#: It offered other nodes; perhaps ours was only full for a moment.
PASSED_OVER_S = 30.0
#: It found no node at all; longer than the gang's own pauses, so that the next try is another.
FITS_NOWHERE_S = 300.0
MOST = 20_000


class Misfits:
    """Pairs of a shape and a node; any thread may note one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._pairs: TLRUCache[tuple[Shape, str], float] = TLRUCache(
            MOST, ttu=lambda _, for_s, now: now + for_s, timer=monotonic
        )

    def note(self, shape: Shape, node: str, for_s: float) -> None:
        """Remember for a while that kube-scheduler would not have *shape* on *node*."""
        with self._lock:
            self._pairs[shape, node] = for_s

    def by_shape(self) -> Mapping[Shape, frozenset[str]]:
        """Give the nodes to leave alone, by shape; usually nothing."""
        with self._lock:
            self._pairs.expire()
            pairs = list(self._pairs)
        nodes: dict[Shape, set[str]] = {}
        for shape, node in pairs:
            nodes.setdefault(shape, set()).add(node)
        return {shape: frozenset(names) for shape, names in nodes.items()}

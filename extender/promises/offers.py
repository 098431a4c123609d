"""Which nodes kube-scheduler offered to pods like this lately, so that a refusal stays as it is.

Of a refused pod kube-scheduler counts its nodes by reason, and writes the sentence into the pod's
status whenever a number in it has changed: in its one loop, while everybody else waits. It offers a
node with room and leaves out the same node once it is full; with a reason of ours for the one and
its own for the other, the numbers change with every pod that comes or goes elsewhere, for all that
wait (measured: 29 writes a second for eighty pods). A gang that may not start is refused as a
whole, so the reason is true of every node that could have been offered, and said of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from extender.model.pod import Shape

#: What keeps a node from being offered for twice that, kube-scheduler says itself again.
LATELY_S = 60.0
#: Shapes of pods that wait at a time; of others only the nodes just offered are known.
MOST_SHAPES = 500
#: A longer answer costs kube-scheduler more to read than a write into a pod's status.
MOST_NODES = 1_000

_NONE: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Offered:
    """Nodes of one shape: of this minute, and with those of the last one."""

    since: float
    now: frozenset[str] = _NONE
    all: frozenset[str] = _NONE


class Offers:
    """Nodes by shape; belongs to the event loop."""

    def __init__(self, monotonic: Callable[[], float], exists: Callable[[str], bool]) -> None:
        self._monotonic = monotonic
        self._exists = exists
        self._by_shape: LRUCache[Shape, _Offered] = LRUCache(MOST_SHAPES)

    def lately(self, shape: Shape, offered: Sequence[str]) -> Collection[str]:
        """Give the nodes that are offered for *shape*, and those that were and are still there."""
        now = self._monotonic()
        known = self._by_shape.get(shape)
        if known is None or now - known.since > 2 * LATELY_S:
            known = self._by_shape[shape] = _Offered(now)
        elif now - known.since > LATELY_S:
            known.since, known.now, known.all = now, _NONE, known.now
        if len(known.all) <= MOST_NODES and not known.now.issuperset(offered):
            # Whoever asks may name anything; what is no node is not remembered.
            real = set(filter(self._exists, offered))
            known.now |= real
            known.all |= real
        if len(known.all) > MOST_NODES:
            return offered
        return {*filter(self._exists, known.all), *offered}

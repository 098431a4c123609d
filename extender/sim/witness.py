"""What really happened in an embedded cluster: who came onto nodes and left them, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from extender.sim import objects
from extender.sim.cluster import Object, SimCluster


class Moment(NamedTuple):
    """After a change: so many pods of *gang* were on nodes."""

    at: float
    gang: str
    on_nodes: int


class Witness:
    """Writes down every change as the cluster makes it, and asks nobody else."""

    def __init__(
        self, cluster: SimCluster, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seated: dict[str, set[str]] = {}
        self._moments: list[Moment] = []
        cluster.listen(self._hear)

    def forget(self) -> None:
        """Begin anew: what was is not asked for again."""
        with self._lock:
            self._moments.clear()

    def moments(self, *gangs: str) -> list[Moment]:
        """Give every change of these gangs, in order."""
        with self._lock:
            return [each for each in self._moments if each.gang in gangs]

    def on_nodes(self, gang: str) -> int:
        """Count the pods of *gang* that are on nodes now."""
        with self._lock:
            return len(self._seated.get(gang, ()))

    def started_at(self, gang: str, least: int) -> float | None:
        """Say when *least* pods of *gang* were on nodes for the first time."""
        return next((each.at for each in self.moments(gang) if each.on_nodes >= least), None)

    def spread_ms(self, gang: str, least: int) -> float:
        """Say how long its first start took, from the first pod to the last of the minimum."""
        first, last = self.moments(gang)[0].at, self.started_at(gang, least)
        return ((last or first) - first) * 1000

    def fewest(self, gang: str, since: float, least: int) -> int:
        """Say how few pods it had at the worst moment after it first had *least*."""
        began = self.started_at(gang, least)
        if began is None:
            return 0
        return min(each.on_nodes for each in self.moments(gang) if each.at >= max(began, since))

    def were_together(self, one: str, other: str) -> bool:
        """Ask whether there was a moment at which both had pods on nodes."""
        now = {one: 0, other: 0}
        for each in self.moments(one, other):
            now[each.gang] = each.on_nodes
            if all(now.values()):
                return True
        return False

    def _hear(self, verb: str, thing: Object) -> None:
        if thing["kind"] != "Pod" or not thing["spec"].get("nodeName"):
            return
        gang, uid = objects.gang_of(thing), thing["metadata"]["uid"]
        with self._lock:
            seated = self._seated.setdefault(gang, set())
            before = len(seated)
            (seated.discard if verb == "DELETED" else seated.add)(uid)
            if len(seated) != before:
                self._moments.append(Moment(self._monotonic(), gang, len(seated)))

"""How the extender acts on a simulated cluster beyond binding: evictions, status, events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from extender.model.gang import GangKey
from extender.ports import EvictOrder, EvictOutcome, EvictResult, Notice, Subject
from extender.sim.cluster import SimCluster, settled


class SimEvictor:
    """Pods leave at once."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Delete the pods."""
        for order in orders:
            self._cluster.delete("Pod", order.namespace, order.name)
        return [settled(EvictOutcome(EvictResult.LEAVING)) for _ in orders]

    def take_back(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        """Let a gang that was bound in part leave; whoever made its pods makes new ones."""
        leaves(gang)
        self.evict(orders)


class SimStatus:
    """Status lies in the objects themselves."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    def read(self, subject: Subject) -> Future[Mapping[str, Any] | None]:
        """Give the status as it is."""
        found = self._cluster.find(subject.kind, subject.uid)
        return settled(found.get("status", {}) if found else None)

    def write(
        self, subject: Subject, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        """Merge *status* into what is there."""
        found = self._cluster.find(subject.kind, subject.uid)
        if found is None:
            return settled(None)
        merged = {**found.get("status", {}), **status}
        self._cluster.change(found, lambda it: it.update(status=merged))
        return settled(merged)


class SimAnnouncer:
    """Keeps the notices for whoever wants to read them."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def announce(self, notice: Notice) -> None:
        """Take *notice* in."""
        self.notices.append(notice)

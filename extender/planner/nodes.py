"""Which nodes a shape of pod may use, how many of its pods fit, and which nodes are best."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from extender.model.node import Amounts, Mask
from extender.model.pod import Shape
from extender.model.snapshot import Snapshot
from extender.planner.extension_points import ExtensionPoints
from extender.planner.free_capacity import FreeCapacity
from extender.planner.node_ranking import NodeRanking, pods_that_fit
from extender.planner.policy import Policy


class Nodes:
    """Answers per shape; identical pods share the answers."""

    def __init__(
        self,
        snapshot: Snapshot,
        capacity: FreeCapacity,
        plugins: ExtensionPoints,
        policy: Policy,
    ) -> None:
        self._snapshot = snapshot
        self._capacity = capacity
        self._plugins = plugins
        self._policy = policy
        self._rankings: dict[Shape, NodeRanking] = {}
        facts = snapshot.nodes.facts
        #: Nodes that no pod may use, by word.
        closed = {"not ready": ~facts.ready}
        if facts.unmanaged.any():
            closed = {"outside --node-selector": facts.unmanaged, **closed}
        #: The nodes that a shape may not use, by word.
        self.obstacles: Callable[[Shape], dict[str, Mask]] = cache(
            lambda shape: {**closed, **plugins.obstacles(shape, facts)}
        )

    def ranking(self, shape: Shape) -> NodeRanking:
        """Return the ranking of nodes for *shape*."""
        known = self._rankings.get(shape)
        if known is None:
            usable, score = self.usable(shape), self._plugins.score
            known = self._rankings[shape] = NodeRanking(self._capacity, shape, usable, score)
        return known

    def count(self, free: Amounts, shape: Shape, rows: Amounts | slice = slice(None)) -> Amounts:
        """Count, for every row or for some, how many pods of *shape* fit into *free*."""
        need, usable = self._capacity.need(shape), self.usable(shape)[rows]
        if need is None:
            return np.zeros(len(usable), dtype=np.int64)
        counts = pods_that_fit(free[rows], need)
        if shape.host_ports:
            counts = np.minimum(counts, self.ranking(shape).without_conflict()[rows])
        masked: Amounts = np.where(usable, counts, 0)
        return masked

    def count_if_empty(self, shape: Shape) -> int:
        """Count the pods of *shape* that would fit if nothing ran; cached like `usable_at_all`."""
        table = self._snapshot.nodes
        return table.facts.memo.recall(
            ("slots if empty", self._policy, shape),
            lambda: int(self.fitting(table.allocatable, shape)[self.usable_at_all(shape)].sum()),
        )

    def fitting(self, free: Amounts, shape: Shape) -> Amounts:
        """Count how many pods of *shape* fit into each row of *free*, whatever excludes nodes.

        Each host port is free once on every node.
        """
        need = self._capacity.need(shape)
        if need is None:
            return np.zeros(len(free), dtype=np.int64)
        counts = pods_that_fit(free, need)
        return np.minimum(counts, 1) if shape.host_ports else counts

    def count_if_opened(self, shape: Shape) -> int:
        """Count the pods of *shape* that closed nodes would take if they were empty and open."""
        facts = self._snapshot.nodes.facts
        closed = (facts.cordoned | ~facts.ready) & ~facts.unmanaged
        return facts.memo.recall(
            ("slots if opened", self._policy, shape), lambda: self._count_among(shape, closed)
        )

    def count_if_managed(self, shape: Shape) -> int:
        """Count the pods of *shape* that unmanaged nodes would take if they were empty and open."""
        facts = self._snapshot.nodes.facts
        return facts.memo.recall(
            ("slots if ours", self._policy, shape),
            lambda: self._count_among(shape, facts.unmanaged),
        )

    def _count_among(self, shape: Shape, some: Mask) -> int:
        """Count the pods of *shape* that *some* nodes would take if they were empty and open."""
        if not some.any():
            return 0
        table = self._snapshot.nodes
        obstacles = self._plugins.obstacles(shape, table.facts.opened).values()
        open_to_it = ~np.any([*obstacles, ~some], axis=0)
        return int(self.fitting(table.allocatable, shape)[open_to_it].sum())

    def usable(self, shape: Shape) -> Mask:
        """Return the mask of nodes that *shape* may use now."""
        mask = self.usable_at_all(shape)
        return mask & ~self.rejected(shape) if shape in self._snapshot.rejected_nodes else mask

    def rejected(self, shape: Shape) -> Mask:
        """Return the mask of nodes that kube-scheduler rejected for *shape* a moment ago."""
        facts = self._snapshot.nodes.facts
        mask = np.zeros(len(facts.nodes), dtype=bool)
        names = self._snapshot.rejected_nodes.get(shape, ())
        mask[[facts.index[name] for name in names if name in facts.index]] = True
        return mask

    def usable_at_all(self, shape: Shape) -> Mask:
        """Return the mask of nodes that *shape* may use; cached until a node changes."""
        return self._snapshot.nodes.facts.memo.recall(
            ("usable", self._policy, shape),
            lambda: ~np.any([*self.obstacles(shape).values()], axis=0),
        )

"""Which nodes a kind of pod may use, how many of it fit, and where they should go."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from extender.model.node import Amounts, Mask, NodeFacts
from extender.model.pod import Shape
from extender.model.snapshot import Snapshot
from extender.planner.extension_points import ExtensionPoints
from extender.planner.free_capacity import FreeCapacity
from extender.planner.node_ranking import NodeRanking, pods_that_fit
from extender.planner.policy import Policy


class Nodes:
    """Asked by shape; identical pods share the answers."""

    def __init__(
        self,
        snapshot: Snapshot,
        ready: Mask,
        room: FreeCapacity,
        opinions: ExtensionPoints,
        policy: Policy,
    ) -> None:
        self._snapshot = snapshot
        self._room = room
        self._opinions = opinions
        self._policy = policy
        self._slots: dict[Shape, NodeRanking] = {}
        facts = snapshot.nodes.facts
        #: Nodes nobody may use, marked by word.
        closed = {**_foreign(facts), "not ready": ~ready}
        #: The nodes that a shape may not use, marked by word.
        self.obstacles: Callable[[Shape], dict[str, Mask]] = cache(
            lambda shape: {**closed, **opinions.obstacles(shape, facts)}
        )

    def ranking(self, shape: Shape) -> NodeRanking:
        """Give the free slots for *shape*."""
        known = self._slots.get(shape)
        if known is None:
            usable, score = self.usable(shape), self._opinions.score
            known = self._slots[shape] = NodeRanking(self._room, shape, usable, score)
        return known

    def count(self, room: Amounts, shape: Shape, rows: Amounts | slice = slice(None)) -> Amounts:
        """Count, for every row or for some, how many pods of *shape* fit into *room*."""
        need, usable = self._room.need(shape), self.usable(shape)[rows]
        if need is None:
            return np.zeros(len(usable), dtype=np.int64)
        counts = pods_that_fit(room[rows], need)
        if shape.host_ports:
            counts = np.minimum(counts, self.ranking(shape).without_clash()[rows])
        masked: Amounts = np.where(usable, counts, 0)
        return masked

    def count_if_empty(self, shape: Shape) -> int:
        """Count the pods of *shape* that would fit if nothing ran; remembered like `usable_at_all`.

        A host port is free once on every node then.
        """
        table = self._snapshot.nodes

        def count() -> int:
            need = self._room.need(shape)
            if need is None:
                return 0
            counts = pods_that_fit(table.allocatable, need)[self.usable_at_all(shape)]
            return int((np.minimum(counts, 1) if shape.host_ports else counts).sum())

        return table.facts.memo.recall(("slots if empty", self._policy, shape), count)

    def count_if_opened(self, shape: Shape) -> int:
        """Count the pods of *shape* that nodes would take, if empty, that are only shut now."""
        table = self._snapshot.nodes

        def count() -> int:
            need = self._room.need(shape)
            if need is None:
                return 0
            shut = np.array([node.is_closed and node.managed for node in table.nodes], dtype=bool)
            return self._count_among(shape, shut, need)

        return table.facts.memo.recall(("slots if opened", self._policy, shape), count)

    def count_if_managed(self, shape: Shape) -> int:
        """Count the pods of *shape* that nodes would take, if empty and open, that are not ours."""
        table, foreign = self._snapshot.nodes, _foreign(self._snapshot.nodes.facts)
        need = self._room.need(shape) if foreign else None
        if need is None:
            return 0
        (others,) = foreign.values()
        return table.facts.memo.recall(
            ("slots if ours", self._policy, shape),
            lambda: self._count_among(shape, others, need),
        )

    def _count_among(self, shape: Shape, some: Mask, need: Amounts) -> int:
        """Count the pods of *shape* that *some* of the nodes would take, if empty and open."""
        table = self._snapshot.nodes
        barred = self._opinions.obstacles(shape, _opened(table.facts)).values()
        counts = pods_that_fit(table.allocatable, need)[~np.any([*barred, ~some], axis=0)]
        return int((np.minimum(counts, 1) if shape.host_ports else counts).sum())

    def usable(self, shape: Shape) -> Mask:
        """Mark the nodes that *shape* may use now."""
        mask = self.usable_at_all(shape)
        return mask & ~self.rejected(shape) if shape in self._snapshot.rejected_nodes else mask

    def rejected(self, shape: Shape) -> Mask:
        """Mark the nodes on which kube-scheduler would not have *shape* a moment ago."""
        facts = self._snapshot.nodes.facts
        mask = np.zeros(len(facts.nodes), dtype=bool)
        names = self._snapshot.rejected_nodes.get(shape, ())
        mask[[facts.index[name] for name in names if name in facts.index]] = True
        return mask

    def usable_at_all(self, shape: Shape) -> Mask:
        """Mark the nodes that *shape* may use; remembered until a node changes."""
        return self._snapshot.nodes.facts.memo.recall(
            ("usable", self._policy, shape),
            lambda: ~np.any([*self.obstacles(shape).values()], axis=0),
        )


def _foreign(facts: NodeFacts) -> dict[str, Mask]:
    """Mark the nodes that are not ours, if there are any; word by word as `obstacles` does."""

    def mark() -> dict[str, Mask]:
        mask = np.array([not node.managed for node in facts.nodes], dtype=bool)
        return {"outside --node-selector": mask} if mask.any() else {}

    return facts.memo.recall("foreign", mark)


def _opened(facts: NodeFacts) -> NodeFacts:
    """Give the same nodes as if all of them were open."""
    return facts.memo.recall(
        "opened", lambda: NodeFacts(tuple(node.opened() for node in facts.nodes), facts.index)
    )

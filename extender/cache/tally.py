"""Sums of resources by node, replaced as whole values so that they can be read without a lock."""

from __future__ import annotations

from collections.abc import KeysView

from extender.model.resources import NOTHING, Resources


class Tally:
    """How much of each node is spoken for; one thread writes at a time, any may read."""

    def __init__(self) -> None:
        self._sums: dict[str, Resources] = {}
        self._counts: dict[str, int] = {}

    def on(self, node: str) -> Resources:
        """Give the sum on *node*."""
        return self._sums.get(node, NOTHING)

    def nodes(self) -> KeysView[str]:
        """Name the nodes with a sum, as a live view."""
        return self._sums.keys()

    def count(self, node: str, amounts: Resources, step: int) -> None:
        """Count *amounts* on *node* (*step* is 1) or no more (-1)."""
        number = self._counts.get(node, 0) + step
        if not number:
            del self._counts[node], self._sums[node]
            return
        self._counts[node] = number
        self._sums[node] = self.on(node) + amounts if step > 0 else self.on(node) - amounts

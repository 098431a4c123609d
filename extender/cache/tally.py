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

    def add(self, node: str, amounts: Resources) -> None:
        """Count *amounts* on *node*."""
        self._sums[node] = self.on(node) + amounts
        self._counts[node] = self._counts.get(node, 0) + 1

    def take(self, node: str, amounts: Resources) -> None:
        """Count *amounts* on *node* no more."""
        self._counts[node] -= 1
        if self._counts[node]:
            self._sums[node] = self._sums[node] - amounts
        else:
            del self._counts[node], self._sums[node]

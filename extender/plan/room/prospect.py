"""Some nodes as they would be: what a plugin scores."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from extender.model.node import NodeFacts
from extender.plan.room.trials import Rows, TrialRoom

Scores: TypeAlias = npt.NDArray[np.float64]


class Prospect:
    """A table of possible placements: one line per node, one column per pod put there.

    Column 0 is the node with one pod of the shape on it, column 1 with two, and so on: that is
    how many identical pods are placed in one go. Whatever is computed from `fill` has that form;
    `rows` is one column of row numbers, so that `something[prospect.rows]` fits it.
    """

    __slots__ = ("_depth", "_fill", "_need", "_room", "_rows", "facts")

    def __init__(self, room: TrialRoom, need: Scores, rows: Rows, depth: int) -> None:
        self.facts: NodeFacts = room.table.facts
        self._room = room
        self._need = need
        self._rows = rows
        self._depth = depth
        self._fill: dict[str, Scores] = {}

    @property
    def rows(self) -> Rows:
        """Give the row numbers of the nodes, as a column."""
        return self._rows[:, None]

    @property
    def nothing(self) -> Scores:
        """Give zeros in the form of the table."""
        return np.zeros((len(self._rows), self._depth))

    def fill(self, name: str) -> Scores:
        """Give how full the nodes would be of *name*: 1 is full; 0 when a node has none of it."""
        known = self._fill.get(name)
        if known is None:
            known = self._fill[name] = self._compute(name)
        return known

    def _compute(self, name: str) -> Scores:
        room = self._room
        column = room.columns.get(name)
        if column is None:
            return self.nothing
        # A slice is no copy, and when a shape is new all rows are looked at.
        where = slice(None) if self._rows is room.all_rows else self._rows
        full: Scores = room.full[where, column][:, None]
        #: How much fuller one pod makes each node.
        step: Scores = room.inverse[where, column][:, None] * self._need[column]
        return full + (step if self._depth == 1 else step * _TIMES[: self._depth])


#: 1, 2, 3, …: how many pods of the shape there are.
_TIMES = np.arange(1.0, 257.0)

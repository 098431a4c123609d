"""Some nodes as they would be: what a plugin scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from extender.model.node import NodeFacts
from extender.plan.ledger import Rows

Scores: TypeAlias = npt.NDArray[np.float64]


class Prospect:
    """One line per possible placement: the node's row, and how full it would be before it.

    The same row may appear several times with more and more used, when it is asked how a node
    would look after several identical pods.
    """

    __slots__ = ("_fill", "allocatable", "columns", "facts", "need", "rows", "used")

    def __init__(
        self,
        facts: NodeFacts,
        columns: Mapping[str, int],
        rows: Rows,
        *,
        used: Scores,
        allocatable: Scores,
        need: Scores,
    ) -> None:
        self.facts = facts
        self.columns = columns
        self.rows = rows
        self.used = used
        self.allocatable = allocatable
        self.need = need
        self._fill: dict[str, Scores] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def asked(self, name: str) -> float:
        """Give how much of *name* the pod asks for."""
        column = self.columns.get(name)
        return 0.0 if column is None else float(self.need[column])

    def fill(self, name: str) -> Scores:
        """Give how full the nodes would be of *name* with the pod on them: 1 is full.

        A node that has none of it counts as empty.
        """
        known = self._fill.get(name)
        if known is None:
            known = self._fill[name] = self._compute(name)
        return known

    def _compute(self, name: str) -> Scores:
        column = self.columns.get(name)
        if column is None:
            return np.zeros(len(self.rows))
        whole = self.allocatable[:, column]
        part = self.used[:, column] + self.need[column]
        filled: Scores = np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)
        return filled

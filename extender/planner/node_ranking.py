"""How many pods of one shape each node takes, and which nodes are best.

Computed once per shape over all nodes, shared by all gangs of that shape, and updated only for rows
that changed since. In a large cluster the best rows are kept in a *pool*, so that a choice looks at
hundreds of nodes instead of thousands. A node's score is then taken to change by the same amount
with every further pod, which is true for all scores but balance.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from extender.model.node import Amounts, Mask, NodeFacts
from extender.model.pod import Shape
from extender.planner.free_capacity import FreeCapacity, Rows

Scores: TypeAlias = npt.NDArray[np.float64]


class ScoringTable:
    """A table of possible placements: one line per node, one column per pod placed there.

    Column 0 is the node with one pod of the shape on it, column 1 with two, and so on: so many
    identical pods are placed at once. All results computed from `utilization` have that form.
    `rows` is one column of row numbers, so that `something[table.rows]` has the right shape.
    """

    __slots__ = ("_capacity", "_depth", "_need", "_rows", "_utilization", "facts")

    def __init__(self, capacity: FreeCapacity, need: Scores, rows: Rows, depth: int) -> None:
        self.facts: NodeFacts = capacity.table.facts
        self._capacity = capacity
        self._need = need
        self._rows = rows
        self._depth = depth
        self._utilization: dict[str, Scores] = {}

    @property
    def rows(self) -> Rows:
        """Return the row numbers of the nodes, as a column."""
        return self._rows[:, None]

    @property
    def nothing(self) -> Scores:
        """Return zeros in the form of the table."""
        return np.zeros((len(self._rows), self._depth))

    def utilization(self, name: str) -> Scores:
        """Return how much of *name* would be used on each node: 1 is full; 0 if it has none."""
        known = self._utilization.get(name)
        if known is None:
            known = self._utilization[name] = self._compute(name)
        return known

    def _compute(self, name: str) -> Scores:
        capacity = self._capacity
        column = capacity.columns.get(name)
        if column is None:
            return self.nothing
        # A slice is no copy, and all rows are needed when a shape is new.
        where = slice(None) if self._rows is capacity.all_rows else self._rows
        full: Scores = capacity.full[where, column][:, None]
        #: By how much one pod fills each node.
        step: Scores = capacity.inverse[where, column][:, None] * self._need[column]
        return full + (step if self._depth == 1 else step * _TIMES[: self._depth])


#: 1, 2, 3, …: the number of pods of the shape.
_TIMES = np.arange(1.0, 257.0)


Scorer = Callable[[Shape, ScoringTable], Scores]
#: At most so many nodes, and so many pods per node, are compared at once.
_WIDTH, _DEPTH = 128, 64
#: So many rows are pooled at first; rows that change later join them, up to twice as many.
_POOL = 512
_FURTHER_PODS = np.arange(float(_DEPTH))
#: Nodes of equal score are taken in the order of their names.
_NUDGE = 1e-9


class NodeRanking:
    """The free slots for one shape, and the ranking of nodes by score."""

    def __init__(self, capacity: FreeCapacity, shape: Shape, usable: Mask, scorer: Scorer) -> None:
        need = capacity.need(shape)
        self._capacity = capacity
        self._shape = shape
        self._scorer = scorer
        #: Nodes that may be used, as far as the node itself is concerned.
        self._usable = usable if need is not None else np.zeros_like(usable)
        self._need: Amounts = capacity.row(shape)
        self._all_usable = bool(self._usable.all())
        self._requested = np.flatnonzero(self._need)
        self._least = self._need[self._requested]
        self._weight: Scores = self._need.astype(np.float64)
        self._is_large = len(usable) > _POOL
        #: By how much a further pod improves the score; in a large cluster, from the second gang
        #: on.
        self._slope: Scores | None = None
        self._is_new = True
        self._seen = len(capacity.touched)
        rows = self._pool = capacity.all_rows
        self._counts: Amounts = self._count(rows)
        #: Smaller is better; infinite without a slot.
        self._rank: Scores = rows * _NUDGE - self._scores(rows)
        self._rank[self._counts <= 0] = np.inf
        #: No row outside the pool ranks before this.
        self._bound = np.inf
        self._fill_pool()

    @property
    def free(self) -> int:
        """Count the pods of this shape that fit into free capacity now."""
        self._refresh()
        return int(self._counts.sum())

    def best(self, wanted: int) -> list[int]:
        """Return free rows for up to *wanted* pods, one by one, each time the best one.

        May return fewer than wanted although more are free: call again after placing these.
        """
        self._refresh()
        rows = self._front(min(wanted, _WIDTH))
        if wanted == 1 or not len(rows):
            return [int(row) for row in rows]
        return self._one_by_one(rows, wanted)

    def best_releasing(self) -> int | None:
        """Return a row with enough capacity once what is being released is free."""
        if not self._capacity.anything_releasing:
            return None
        free = self._capacity.free + self._capacity.surely_releasing
        fitting = (free[:, self._requested] >= self._least).all(axis=1) & self._usable
        rows = np.flatnonzero(fitting & self.without_conflict())
        return int(rows[self._scores(rows).argmax()]) if len(rows) else None

    def ranked(self) -> list[int]:
        """Return all usable rows, free or not, the best first."""
        rows = np.flatnonzero(self._usable)
        return [int(row) for row in rows[np.argsort(-self._scores(rows), kind="stable")]]

    def without_conflict(self) -> Mask:
        """Return the mask of usable rows without a conflicting host port."""
        if not self._shape.host_ports:
            return self._usable
        return self._usable & ~self._capacity.ports.conflicting(self._shape)

    def fits(self, row: int, *, releasing: bool = False) -> bool:
        """Return whether one more pod fits into free capacity of *row*.

        With *releasing*, capacity that is being released counts too.
        """
        free = self._capacity.free[row] + self._capacity.surely_releasing[row]
        if not releasing:
            free = np.minimum(free, self._capacity.free[row])
        enough = bool((free[self._requested] >= self._least).all())
        return enough and bool(self.without_conflict()[row])

    def _refresh(self) -> None:
        touched = self._capacity.touched
        if self._seen < len(touched):
            rows = touched[self._seen :]
            self._seen = len(touched)
            self._update(np.concatenate(rows) if len(rows) > 1 else rows[0])

    def _update(self, rows: Rows) -> None:
        counts = self._count(rows)
        self._counts[rows] = counts
        self._rank[rows] = np.inf
        free = rows[counts > 0] if counts.min() <= 0 else rows
        if len(free):
            self._rank[free] = free * _NUDGE - self._scores(free)
        if not self._pooled[rows].all():
            self._pooled[rows] = True
            self._pool = np.flatnonzero(self._pooled)

    def _count(self, rows: Rows) -> Amounts:
        """Count how many pods each of *rows* takes."""
        where = slice(None) if rows is self._capacity.all_rows else rows
        free = self._capacity.free[where]
        if self._capacity.anything_releasing:
            # Capacity reserved beyond what is being released is not free any more.
            free = np.minimum(free, free + self._capacity.surely_releasing[where])
        counts = pods_that_fit(free, self._need)
        if not self._all_usable:
            counts *= self._usable[rows]
        if self._shape.host_ports:
            counts = np.minimum(counts, ~self._capacity.ports.conflicting(self._shape)[where])
        return counts

    def _scores(self, rows: Rows) -> Scores:
        scores: Scores = self._table(rows, 1)[:, 0]
        return scores

    def _table(self, rows: Rows, depth: int) -> Scores:
        """Score *rows* with one, two, and so on, more pods on them."""
        return self._scorer(self._shape, ScoringTable(self._capacity, self._weight, rows, depth))

    def _slopes(self, rows: Rows) -> Scores:
        """Return by how much every further pod improves the score of each of *rows*."""
        if self._slope is not None:
            return self._slope[rows]
        # The first gang of a shape may be the only one; otherwise all rows will be needed.
        computed = rows if self._is_new else self._capacity.all_rows
        table = self._table(computed, 2)
        slope: Scores = table[:, 1] - table[:, 0]
        if self._is_new:
            self._is_new = False
            return slope
        self._slope = slope
        return slope[rows]

    def _forecast(self, rows: Rows, depth: int, slopes: Scores | None) -> Scores:
        """Score *rows* with more and more pods on them, ties broken as in the rank."""
        if slopes is None:
            return self._table(rows, depth) - (rows * _NUDGE)[:, None]
        forecast: Scores = slopes[:, None] * _FURTHER_PODS[:depth] - self._rank[rows][:, None]
        return forecast

    def _fill_pool(self) -> None:
        """Pool the best rows of all; the others rank behind the last of these."""
        if self._is_large:
            self._pool = np.argpartition(self._rank, _POOL - 1)[:_POOL]
            self._bound = float(self._rank[self._pool].max())
        self._pooled = np.zeros(len(self._rank), dtype=bool)
        self._pooled[self._pool] = True

    def _front(self, width: int) -> Rows:
        """Return the best rows, best first; no other can be chosen before one of these is."""
        if len(self._pool) > 2 * _POOL:
            self._fill_pool()
        rows, rank = self._leading(width)
        if len(rank) and rank[-1] > self._bound:
            self._fill_pool()
            rows, rank = self._leading(width)
        return rows[: int(np.searchsorted(rank, np.inf))]

    def _leading(self, width: int) -> tuple[Rows, Scores]:
        rows = self._pool
        rank = self._rank[rows]
        if width < len(rows):
            part = np.argpartition(rank, width - 1)[:width]
            rows, rank = rows[part], rank[part]
        order = np.argsort(rank)
        return rows[order], rank[order]

    def _one_by_one(self, rows: Rows, wanted: int) -> list[int]:
        slopes = self._slopes(rows) if self._is_large else None
        if slopes is not None and slopes.min() >= 0:
            # Every pod improves its node: fill the best one, then the next.
            filled: list[int] = np.repeat(rows, self._counts[rows])[:wanted].tolist()
            return filled
        counts = self._counts[rows].tolist()
        depth = min(wanted, _DEPTH, max(counts))
        table = self._forecast(rows, depth, slopes).tolist()
        names = rows.tolist()
        heap = [(-line[0], place) for place, line in enumerate(table)]
        heapify(heap)
        level = [0] * len(names)
        untouched = len(names)
        chosen: list[int] = []
        while heap and len(chosen) < wanted:
            place = heap[0][1]
            chosen.append(names[place])
            above = level[place] = level[place] + 1
            untouched -= above == 1
            if above < counts[place]:
                if above == depth:
                    break  # it would take more, but the table ends here
                heapreplace(heap, (-table[place][above], place))
            else:
                heappop(heap)
            if not untouched and len(names) == _WIDTH:
                break  # nodes behind these may be better now
        return chosen


def pods_that_fit(free: Amounts, need: Amounts) -> Amounts:
    """Count how often *need* fits into each line of *free*."""
    requested = need.nonzero()[0]
    each = free[..., requested] // need[requested]
    counts: Amounts = each[..., 0]
    for column in range(1, len(requested)):  # reducing along so short an axis is slow
        counts = np.minimum(counts, each[..., column])
    return np.maximum(counts, 0)

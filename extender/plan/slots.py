"""How many pods of one shape each node takes, and which nodes they should go to.

Asked once per shape over all nodes, shared by all gangs of that shape, and brought up to date
only for the rows somebody touched in between.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heapreplace

import numpy as np
import numpy.typing as npt

from extender.model.node import Amounts
from extender.model.pod import HostPort, Shape
from extender.plan.ledger import Ledger, Rows
from extender.plan.prospect import Prospect, Scores

Mask = npt.NDArray[np.bool_]
Scorer = Callable[[Shape, Prospect], Scores]

#: At most so many nodes and so many pods per node are weighed up in one go.
_WIDTH, _DEPTH = 128, 64
#: Nodes of equal score are taken in the order of their names.
_NUDGE = 1e-9


class Slots:
    """The free slots for one shape."""

    def __init__(self, ledger: Ledger, shape: Shape, usable: Mask, scorer: Scorer) -> None:
        need = ledger.need(shape)
        self._ledger = ledger
        self._shape = shape
        self._scorer = scorer
        #: Nodes that may be used at all, as far as the node itself is concerned.
        self._usable = usable if need is not None else np.zeros_like(usable)
        self._need: Amounts = need if need is not None else np.ones(len(ledger.columns), np.int64)
        self._asked = np.flatnonzero(self._need)
        self._whole = ledger.table.allocatable.astype(np.float64)
        size = len(ledger.table.facts.nodes)
        self._order = np.arange(size) * _NUDGE
        self._counts: Amounts = np.zeros(size, dtype=np.int64)
        self._scores: Scores = np.full(size, -np.inf)
        self._seen = len(ledger.touched)
        self._look_at(np.arange(size, dtype=np.intp))

    @property
    def free(self) -> int:
        """Count the pods of this shape that find idle room now."""
        self._refresh()
        return int(self._counts.sum())

    def best(self, wanted: int) -> list[int]:
        """Choose idle rows for *wanted* pods, one by one, each time the best one.

        May give fewer than wanted although there are more: ask again after placing these.
        """
        self._refresh()
        if wanted == 1:
            row = int((self._scores - self._order).argmax())
            return [row] if self._counts[row] > 0 else []
        rows = self._front(wanted)
        return self._one_by_one(rows, wanted) if len(rows) else []

    def best_coming(self) -> int | None:
        """Choose a row whose room suffices once what is being released is free."""
        if not self._ledger.anything_coming:
            return None
        room = self._ledger.idle + self._ledger.coming
        fitting = (room[:, self._asked] >= self._need[self._asked]).all(axis=1) & self._usable
        rows = np.flatnonzero(fitting & self.without_clash())
        if not len(rows):
            return None
        scores = self._scorer(self._shape, self._prospect(rows, depth=1))
        return int(rows[scores.argmax()])

    def ranked(self) -> list[int]:
        """Give all usable rows, free or not, the best first."""
        rows = np.flatnonzero(self._usable)
        scores = self._scorer(self._shape, self._prospect(rows, depth=1))
        return [int(row) for row in rows[np.argsort(-scores, kind="stable")]]

    def without_clash(self) -> Mask:
        """Mark the rows on which no host port is in the way."""
        if not self._shape.host_ports:
            return self._usable
        return np.array([self._port_free(row) for row in range(len(self._usable))], dtype=bool)

    def fits(self, row: int, *, coming: bool = False) -> bool:
        """Ask whether one more pod fits into the idle room of *row*, or, if so said, the coming."""
        room = self._ledger.idle[row] + self._ledger.coming[row]
        if not coming:
            room = np.minimum(room, self._ledger.idle[row])
        enough = bool((room[self._asked] >= self._need[self._asked]).all())
        return enough and bool(self._usable[row]) and self._port_free(row)

    def _refresh(self) -> None:
        touched = self._ledger.touched
        if self._seen < len(touched):
            rows = touched[self._seen :]
            self._seen = len(touched)
            self._look_at(np.concatenate(rows) if len(rows) > 1 else rows[0])

    def _look_at(self, rows: Rows) -> None:
        room = self._ledger.idle[rows]
        if self._ledger.anything_coming:
            # Room promised beyond what is being released is not idle any more.
            room = np.minimum(room, room + self._ledger.coming[rows])
        counts = (room[:, self._asked] // self._need[self._asked]).min(axis=1)
        counts = np.where(self._usable[rows], np.maximum(counts, 0), 0)
        if self._shape.host_ports:
            counts = np.minimum(counts, [self._port_free(int(row)) for row in rows])
        self._counts[rows] = counts
        scores = self._scorer(self._shape, self._prospect(rows, depth=1))
        self._scores[rows] = np.where(counts > 0, scores, -np.inf)

    def _front(self, wanted: int) -> Rows:
        """Give the best rows, best first; no other can be chosen before one of these is."""
        width = min(wanted, _WIDTH, len(self._scores))
        nudged = self._order - self._scores
        rows = np.argpartition(nudged, width - 1)[:width] if width < len(nudged) else self._all()
        rows = rows[np.argsort(nudged[rows], kind="stable")]
        return rows[self._counts[rows] > 0]

    def _one_by_one(self, rows: Rows, wanted: int) -> list[int]:
        counts = self._counts[rows]
        depth = int(min(wanted, _DEPTH, counts.max()))
        scores = self._scorer(self._shape, self._prospect(rows, depth=depth))
        table = scores.reshape(len(rows), depth).tolist()
        deepest = np.minimum(counts, depth).tolist()
        heap = [(-line[0], place) for place, line in enumerate(table)]
        heap.sort()
        chosen: list[int] = []
        level = [0] * len(rows)
        untouched = len(rows)
        names = rows.tolist()
        while heap and len(chosen) < wanted:
            place = heap[0][1]
            chosen.append(names[place])
            untouched -= level[place] == 0
            level[place] += 1
            if level[place] < deepest[place]:
                heapreplace(heap, (-table[place][level[place]], place))
            else:
                heappop(heap)
                if depth < counts[place]:
                    break  # it would take more, but we have not looked further
            if not untouched and len(rows) == _WIDTH:
                break  # nodes beyond the front may be better by now
        return chosen

    def _prospect(self, rows: Rows, depth: int) -> Prospect:
        whole = self._whole[rows]
        used = whole - self._ledger.idle[rows]
        need = self._need.astype(np.float64)
        if depth > 1:
            levels = np.arange(depth)[None, :, None]
            used = (used[:, None, :] + levels * need).reshape(-1, len(need))
            whole = np.repeat(whole, depth, axis=0)
            rows = np.repeat(rows, depth)
        facts, columns = self._ledger.table.facts, self._ledger.columns
        return Prospect(facts, columns, rows, used=used, allocatable=whole, need=need)

    def _all(self) -> Rows:
        return np.arange(len(self._scores), dtype=np.intp)

    def _port_free(self, row: int) -> bool:
        if not self._shape.host_ports:
            return True
        table = self._ledger.table
        taken = [*table.ports.get(table.nodes[row].name, ()), *self._ledger.ports.get(row, ())]
        return not any(clash(ours, other) for ours in self._shape.host_ports for other in taken)


def clash(one: HostPort, other: HostPort) -> bool:
    """Ask whether two host ports cannot be on one node."""
    same = one.port == other.port and one.protocol == other.protocol
    return same and (one.ip == other.ip or "0.0.0.0" in (one.ip, other.ip))  # noqa: S104

"""On which nodes a host port is in the way: an index by port, instead of by node.

A node may have thousands of ports taken and a pod may ask for hundreds. Comparing those node by
node costs the product of all three; here a shape costs as much as it asks for, and as there are
nodes in its way.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from extender.model.node import Mask, NodeTable
from extender.model.pod import Shape
from extender.model.ports import PortKey, in_the_way_of, keys_of

_Rows = npt.NDArray[np.intp]


class PortRows:
    """The ports taken when the cycle began, and those it has promised since."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        #: Promised in this cycle: how often, by port and row.
        self._promised: dict[PortKey, dict[int, int]] = {}
        #: The rows of the above, made when they are asked for.
        self._promised_rows: dict[PortKey, _Rows] = {}
        #: What is in the way of a shape, and where it was when the cycle began.
        self._before: dict[Shape, tuple[frozenset[PortKey], Mask]] = {}

    def clashing(self, shape: Shape) -> Mask:
        """Mark the rows on which a host port of *shape* is taken or promised."""
        known = self._before.get(shape)
        if known is None:
            known = self._before[shape] = self._look_up(shape)
        keys, before = known
        found = [key for key in keys if key in self._promised] if self._promised else ()
        if not found:
            return before
        mask = before.copy()
        for key in found:
            mask[self._rows_promised(key)] = True
        return mask

    def promise(self, shape: Shape, rows: list[int]) -> None:
        """Count the host ports of *shape* as taken on *rows*."""
        for key in _noted(shape):
            self._promised_rows.pop(key, None)
            counts = self._promised.setdefault(key, {})
            for row in rows:
                counts[row] = counts.get(row, 0) + 1

    def give_back(self, shape: Shape, rows: list[int]) -> None:
        """Take back what was promised."""
        for key in _noted(shape):
            self._promised_rows.pop(key, None)
            counts = self._promised[key]
            for row in rows:
                counts[row] -= 1
                if not counts[row]:
                    del counts[row]
            if not counts:
                del self._promised[key]

    @cached_property
    def _taken(self) -> dict[PortKey, list[int]]:
        """Turn the table's ports around; only where somebody asks for a port at all."""
        index, taken = self._table.facts.index, dict[PortKey, list[int]]()
        for name, ports in self._table.ports.items():
            if name in index:
                row = index[name]
                for key in ports:
                    taken.setdefault(key, []).append(row)
        return taken

    def _look_up(self, shape: Shape) -> tuple[frozenset[PortKey], Mask]:
        keys = frozenset(in_the_way_of(shape.host_ports))
        mask = np.zeros(len(self._table.used), dtype=bool)
        for key in keys:
            rows = self._taken.get(key)
            if rows is not None:
                mask[rows] = True
        mask.flags.writeable = False
        return keys, mask

    def _rows_promised(self, key: PortKey) -> _Rows:
        rows = self._promised_rows.get(key)
        if rows is None:
            counts = self._promised[key]
            rows = self._promised_rows[key] = np.fromiter(counts, dtype=np.intp, count=len(counts))
        return rows


def _noted(shape: Shape) -> list[PortKey]:
    return [key for port in shape.host_ports for key in keys_of(port)]

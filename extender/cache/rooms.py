"""What every node offers and what its pods take up, kept as arrays while changes come in.

A node has a slot in the arrays as long as it exists or pods name it, so pods may be heard of
before their node. Rows and columns are put in order only when a table is asked for.

One thread writes at a time. `idle` may be called by any thread without a lock: each change of a
row is a single numpy call, which no other Python thread can interrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from extender.model.node import UNLIMITED, Amounts, Node, NodeFacts, NodeTable
from extender.model.pod import HostPort, Shape
from extender.model.ports import Ports
from extender.model.resources import CPU, MEMORY, PODS, Resources

_FIRST = (CPU, MEMORY, PODS)
#: No cluster has as many kinds of resources; names beyond are left to kube-scheduler.
_MOST_COLUMNS = 128
_REMEMBERED_VECTORS = 50_000
_NO_PORTS = Ports()


class _Arrays(NamedTuple):
    """One row per slot, one column per resource; replaced together, so that readers agree."""

    allocatable: Amounts
    used: Amounts
    releasing: Amounts
    promised: Amounts

    @classmethod
    def zeros(cls, rows: int, columns: int) -> _Arrays:
        return cls(*(np.zeros((rows, columns), dtype=np.int64) for _ in cls._fields))

    def grown(self, rows: int, columns: int) -> _Arrays:
        new = _Arrays.zeros(rows, columns)
        for old_array, new_array in zip(self, new, strict=True):
            new_array[: old_array.shape[0], : old_array.shape[1]] = old_array
        return new


class _Order(NamedTuple):
    """How the arrays are read; snapshots share it until a node changes."""

    facts: NodeFacts
    dimensions: tuple[str, ...]
    #: Rows by name of node, columns by dimension.
    cells: tuple[npt.NDArray[np.intp], ...]
    allocatable: Amounts


class Rooms:
    """The room of all nodes."""

    def __init__(self, changed: Callable[[str], None] = lambda node: None) -> None:
        #: Told, afterwards, the name of a node whose idle room changed.
        self._tell_changed = changed
        #: Columns in the order in which they were made; replaced as a whole, for readers.
        self._names: tuple[str, ...] = _FIRST
        self._columns: dict[str, int] = {name: at for at, name in enumerate(_FIRST)}
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._occupants: list[int] = []
        #: By slot, the moment of its last change; no two changes share one.
        self._changed: list[int] = []
        self._moments = count(1)
        #: Idle room as it was at some moment.
        self._idle: dict[str, tuple[int, Resources]] = {}
        self._nodes: dict[str, Node] = {}
        self._arrays = _Arrays.zeros(64, 8)
        self._vectors: dict[Shape, Amounts] = {}
        self._ports: dict[str, Ports] = {}
        self._order: _Order | None = None

    def put(self, node: Node) -> None:
        """Take a node in as it is now."""
        slot = self._slot(node.name)
        row = self._row(node.allocatable)
        if PODS not in node.allocatable:
            row[self._columns[PODS]] = UNLIMITED
        self._arrays.allocatable[slot] = row
        self._changed[slot] = next(self._moments)
        self._nodes[node.name] = node
        self._order = None
        self._tell_changed(node.name)

    def drop(self, name: str) -> None:
        """Forget a node; pods that still name it keep their slot."""
        del self._nodes[name]
        self._idle.pop(name, None)
        self._arrays.allocatable[self._slots[name]] = 0
        self._order = None
        self._tidy(name)
        self._tell_changed(name)

    def occupy(self, node: str, shape: Shape, *, releasing: bool) -> None:
        """Count a pod on *node*."""
        self._count(node, shape, 1, releasing)

    def vacate(self, node: str, shape: Shape, *, releasing: bool) -> None:
        """Count a pod on *node* no more."""
        self._count(node, shape, -1, releasing)
        self._tidy(node)

    def give_up(self, node: str, shape: Shape) -> None:
        """Expect the room of a pod no more that was on its way out and is there still."""
        self._arrays.releasing[self._slot(node)] -= self._vector(shape)

    def _count(self, node: str, shape: Shape, step: int, releasing: bool) -> None:
        slot = self._slot(node)
        vector = step * self._vector(shape)
        self._arrays.used[slot] += vector
        if releasing:
            self._arrays.releasing[slot] += vector
        self._changed[slot] = next(self._moments)
        self._occupants[slot] += step
        if shape.host_ports:
            self._take_ports(node, shape.host_ports, step)
        self._tell_changed(node)

    def idle(self, name: str) -> Resources | None:
        """Give what *name* has left beside the pods on it; None for an unknown node."""
        slot = self._slots.get(name)
        if name not in self._nodes or slot is None:
            return None
        changed = self._changed[slot]
        known = self._idle.get(name)
        if known is not None and known[0] == changed:
            return known[1]
        idle = self._count_idle(slot)
        # If the row changes meanwhile, its moment is another one and this is never used.
        self._idle[name] = (changed, idle)
        return idle

    def _count_idle(self, slot: int) -> Resources:
        arrays = self._arrays
        free = (arrays.allocatable[slot] - arrays.used[slot]).tolist()
        # A row may be wider than the names, or, if it is a moment older, narrower.
        return Resources(zip(self._names, free, strict=False))

    def ports(self, name: str) -> Ports:
        """Give the host ports taken on *name*, by pods and by what the last table showed."""
        return self._ports.get(name, _NO_PORTS)

    def promise(self, steps: Iterable[tuple[str, Shape, int]]) -> None:
        """Count promises made (+1) and those kept or withdrawn (-1), by node and shape."""
        places: dict[tuple[Shape, int], list[int]] = {}
        left: list[str] = []
        for node, shape, step in steps:
            slot = self._slot(node)
            self._occupants[slot] += step
            places.setdefault((shape, step), []).append(slot)
            if step < 0:
                left.append(node)
            if shape.host_ports:
                self._take_ports(node, shape.host_ports, step)
        for (shape, step), slots in places.items():
            vector = step * self._vector(shape)
            np.add.at(self._arrays.promised, slots, vector)
        for node in left:
            self._tidy(node)

    def table(self) -> NodeTable:
        """Copy the figures; promised pods count as if they were on their nodes."""
        order = self._order or self._sort()
        cells, facts = order.cells, order.facts
        return NodeTable(
            facts=facts,
            dimensions=order.dimensions,
            allocatable=order.allocatable,
            used=_frozen(self._arrays.used[cells] + self._arrays.promised[cells]),
            releasing=_frozen(self._arrays.releasing[cells]),
            ports={name: taken for name, taken in self._ports.items() if name in facts.index},
        )

    def _sort(self) -> _Order:
        """Put rows and columns in order; only what some node offers is a dimension."""
        nodes = tuple(self._nodes[name] for name in sorted(self._nodes))
        rows = np.array([self._slots[node.name] for node in nodes], dtype=np.intp)
        offered = np.any(self._arrays.allocatable, axis=0)
        rest = [name for name, at in self._columns.items() if offered[at] and name not in _FIRST]
        dimensions = (*_FIRST, *sorted(rest))
        columns = np.array([self._columns[name] for name in dimensions], dtype=np.intp)
        cells = np.ix_(rows, columns)
        self._order = _Order(
            NodeFacts(nodes, {node.name: row for row, node in enumerate(nodes)}),
            dimensions,
            cells,
            _frozen(self._arrays.allocatable[cells]),
        )
        return self._order

    def _slot(self, name: str) -> int:
        slot = self._slots.get(name)
        if slot is not None:
            return slot
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._occupants)
            self._occupants.append(0)
            self._changed.append(0)
            if slot >= len(self._arrays.used):
                self._resize(2 * slot, self._arrays.used.shape[1])
        self._slots[name] = slot
        return slot

    def _tidy(self, name: str) -> None:
        """Free the slot of a node that is neither there nor named by anybody."""
        slot = self._slots.get(name)
        if slot is not None and not self._occupants[slot] and name not in self._nodes:
            del self._slots[name]
            self._free.append(slot)

    def _take_ports(self, node: str, ports: tuple[HostPort, ...], step: int) -> None:
        taken = self._ports.get(node, _NO_PORTS)
        left = taken.plus(ports) if step > 0 else taken.minus(ports)
        if left:
            self._ports[node] = left
        else:
            self._ports.pop(node, None)

    def _vector(self, shape: Shape) -> Amounts:
        vector = self._vectors.get(shape)
        if vector is None:
            if len(self._vectors) >= _REMEMBERED_VECTORS:
                self._vectors.clear()
            vector = self._vectors[shape] = self._row(shape.requests)
        return vector

    def _row(self, amounts: Resources) -> Amounts:
        self._make_columns(amounts)
        row = np.zeros(self._arrays.used.shape[1], dtype=np.int64)
        for name, amount in amounts.items():
            column = self._columns.get(name)
            if column is not None:
                row[column] = amount
        return row

    def _make_columns(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._columns or len(self._columns) >= _MOST_COLUMNS:
                continue
            if len(self._columns) >= self._arrays.used.shape[1]:
                self._resize(len(self._arrays.used), 2 * self._arrays.used.shape[1])
            self._columns[name] = len(self._columns)
            self._names = (*self._names, name)

    def _resize(self, rows: int, columns: int) -> None:
        self._arrays = self._arrays.grown(rows, columns)
        self._vectors.clear()


def _frozen(amounts: Amounts) -> Amounts:
    amounts.flags.writeable = False
    return amounts

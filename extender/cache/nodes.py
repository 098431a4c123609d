"""Allocatable and used resources of every node, kept as arrays while changes arrive.

A node has a slot in the arrays while it exists or pods name it, so pods may arrive before their
node. Rows and columns are sorted only for a table.

Only nodes create columns. Pods may request resources of any name; what no node offers is counted
outside the arrays, and gets a column when a node offers it.

One thread writes at a time. Any thread may call `unused` without a lock: each change of a row is
a single numpy call, which no other Python thread can interrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from extender.model.node import UNLIMITED, Amounts, HostPorts, Node, NodeFacts, NodeTable
from extender.model.pod import HostPort, Shape
from extender.model.resources import CPU, MEMORY, PODS, Resources

_FIRST = (CPU, MEMORY, PODS)
#: No cluster has as many kinds of resources; kube-scheduler alone checks the others.
_MOST_COLUMNS = 128
#: Nor has one node; so one node alone cannot use up all columns.
_MOST_OF_ONE_NODE = 64
#: Most amounts in all cached vectors together; at this limit the cache is cleared.
_REMEMBERED_AMOUNTS = 250_000
_NO_PORTS = HostPorts()


class _Arrays(NamedTuple):
    """One row per slot, one column per resource; replaced together, so readers are consistent."""

    allocatable: Amounts
    used: Amounts
    releasing: Amounts
    reserved: Amounts

    @classmethod
    def zeros(cls, rows: int, columns: int) -> _Arrays:
        return cls(*(np.zeros((rows, columns), dtype=np.int64) for _ in cls._fields))

    def grown(self, rows: int, columns: int) -> _Arrays:
        new = _Arrays.zeros(rows, columns)
        for old_array, new_array in zip(self, new, strict=True):
            new_array[: old_array.shape[0], : old_array.shape[1]] = old_array
        return new


class _Vector(NamedTuple):
    """The requests of a pod as a row, and those without a column."""

    row: Amounts
    sparse: tuple[tuple[str, int], ...]


class _SparseAmounts:
    """Amounts that no node offers, by name and slot: used, releasing, reserved."""

    def __init__(self) -> None:
        self._amounts: dict[str, dict[int, tuple[int, int, int]]] = {}

    @property
    def names(self) -> Collection[str]:
        """The resources that have amounts."""
        return self._amounts.keys()

    def add(self, slot: int, amounts: tuple[tuple[str, int], ...], steps: tuple[int, ...]) -> None:
        """Add *amounts*, multiplied by *steps*, as used, as releasing and as reserved."""
        for name, amount in amounts:
            slots = self._amounts.setdefault(name, {})
            used, releasing, reserved = slots.get(slot, (0, 0, 0))
            used, releasing = used + amount * steps[0], releasing + amount * steps[1]
            reserved += amount * steps[2]
            if used or releasing or reserved:
                slots[slot] = (used, releasing, reserved)
                continue
            slots.pop(slot, None)
            if not slots:
                del self._amounts[name]

    def put(self, slot: int, name: str, amounts: Sequence[int]) -> None:
        """Store what has no column any more: used, releasing, reserved."""
        used, releasing, reserved = amounts
        self._amounts.setdefault(name, {})[slot] = (used, releasing, reserved)

    def take(self, name: str) -> dict[int, tuple[int, int, int]]:
        """Remove and return the amounts of *name*, because it has a column now."""
        return self._amounts.pop(name, {})


class _Order(NamedTuple):
    """The order in which arrays are read; snapshots share it until a node changes."""

    facts: NodeFacts
    dimensions: tuple[str, ...]
    #: Rows by name of node, columns by dimension.
    cells: tuple[npt.NDArray[np.intp], ...]
    allocatable: Amounts


class NodeUsage:
    """Used, releasing and reserved resources of all nodes."""

    def __init__(self, changed: Callable[[str], None] = lambda node: None) -> None:
        #: Called, after the change, with the name of a node whose unused resources changed.
        self._notify_changed = changed
        #: Columns in the order of their creation; replaced as a whole, for readers.
        self._names: tuple[str, ...] = _FIRST
        self._columns: dict[str, int] = {name: at for at, name in enumerate(_FIRST)}
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._pod_counts: list[int] = []
        #: By slot, the version of its last change; no two changes share one.
        self._changed: list[int] = []
        self._version_numbers = count(1)
        #: Unused resources by node, each with its version.
        self._unused_cache: dict[str, tuple[int, Resources]] = {}
        self._nodes: dict[str, Node] = {}
        self._arrays = _Arrays.zeros(64, 8)
        self._sparse = _SparseAmounts()
        #: By requests, not by shapes, because some shapes are large.
        self._vectors: dict[Resources, _Vector] = {}
        self._remembered = 0
        self._ports: dict[str, HostPorts] = {}
        self._order: _Order | None = None

    @property
    def rows(self) -> int:
        """The number of rows that the arrays have, used or not."""
        return len(self._arrays.used)

    @property
    def sparse_names(self) -> Collection[str]:
        """The resources that pods request and no node offers."""
        return self._sparse.names

    @property
    def cached_amounts(self) -> int:
        """The number of amounts in the cached requests of pods."""
        return sum(map(len, self._vectors))

    def put(self, node: Node) -> None:
        """Add a node or replace its state."""
        slot = self._slot(node.name)
        self._make_columns(_offered_names(node.allocatable, self._columns), slot)
        row = self._vector_of(node.allocatable).row
        if PODS not in node.allocatable:
            row[self._columns[PODS]] = UNLIMITED
        self._arrays.allocatable[slot] = row
        self._changed[slot] = next(self._version_numbers)
        self._nodes[node.name] = node
        self._order = None
        self._notify_changed(node.name)

    def drop(self, name: str) -> None:
        """Forget a node; pods that still name it keep their slot."""
        del self._nodes[name]
        self._unused_cache.pop(name, None)
        self._arrays.allocatable[self._slots[name]] = 0
        self._order = None
        self._tidy(name)
        self._notify_changed(name)

    def add_pod(self, node: str, shape: Shape, *, releasing: bool) -> None:
        """Count a pod on *node*."""
        self._count(node, shape, 1, releasing)

    def remove_pod(self, node: str, shape: Shape, *, releasing: bool) -> None:
        """Stop counting a pod on *node*."""
        self._count(node, shape, -1, releasing)
        self._tidy(node)

    def forget(self, node: str, shape: Shape) -> None:
        """Stop expecting that a terminating pod frees its resources."""
        slot, vector = self._slot(node), self._vector(shape)
        self._arrays.releasing[slot] -= vector.row
        if vector.sparse:
            self._sparse.add(slot, vector.sparse, (0, -1, 0))

    def _count(self, node: str, shape: Shape, step: int, releasing: bool) -> None:
        slot = self._slot(node)
        vector = self._vector(shape)
        self._arrays.used[slot] += step * vector.row
        if releasing:
            self._arrays.releasing[slot] += step * vector.row
        if vector.sparse:
            self._sparse.add(slot, vector.sparse, (step, step if releasing else 0, 0))
        self._changed[slot] = next(self._version_numbers)
        self._pod_counts[slot] += step
        if shape.host_ports:
            self._take_ports(node, shape.host_ports, step)
        self._notify_changed(node)

    def unused(self, name: str) -> Resources | None:
        """Return what *name* has left besides the pods on it; None for an unknown node."""
        slot = self._slots.get(name)
        if name not in self._nodes or slot is None:
            return None
        changed = self._changed[slot]
        known = self._unused_cache.get(name)
        if known is not None and known[0] == changed:
            return known[1]
        unused = self._compute_unused(slot)
        # If the row changes meanwhile, its version differs and this entry is never used.
        self._unused_cache[name] = (changed, unused)
        return unused

    def _compute_unused(self, slot: int) -> Resources:
        arrays = self._arrays
        free = (arrays.allocatable[slot] - arrays.used[slot]).tolist()
        # A row may be wider than the names, or, if it is slightly older, narrower.
        return Resources(zip(self._names, free, strict=False))

    def ports(self, name: str) -> HostPorts:
        """Return the host ports used on *name*, by pods and by reservations of the last table."""
        return self._ports.get(name, _NO_PORTS)

    def reserve(self, steps: Iterable[tuple[str, Shape, int]]) -> None:
        """Count new reservations (+1) and ended ones (-1), by node and shape."""
        places: dict[tuple[Shape, int], list[int]] = {}
        left: list[str] = []
        for node, shape, step in steps:
            slot = self._slot(node)
            self._pod_counts[slot] += step
            places.setdefault((shape, step), []).append(slot)
            if step < 0:
                left.append(node)
            if shape.host_ports:
                self._take_ports(node, shape.host_ports, step)
        for (shape, step), slots in places.items():
            vector = self._vector(shape)
            np.add.at(self._arrays.reserved, slots, step * vector.row)
            if vector.sparse:
                for slot in slots:
                    self._sparse.add(slot, vector.sparse, (0, 0, step))
        for node in left:
            self._tidy(node)

    def table(self) -> NodeTable:
        """Copy the amounts; reserved pods count as if they were on their nodes."""
        order = self._order or self._sort()
        cells, facts = order.cells, order.facts
        return NodeTable(
            facts=facts,
            dimensions=order.dimensions,
            allocatable=order.allocatable,
            used=_frozen(self._arrays.used[cells] + self._arrays.reserved[cells]),
            releasing=_frozen(self._arrays.releasing[cells]),
            ports={name: taken for name, taken in self._ports.items() if name in facts.index},
        )

    def _sort(self) -> _Order:
        """Sort rows and columns; only what some node offers is a dimension."""
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
            slot = len(self._pod_counts)
            self._pod_counts.append(0)
            self._changed.append(0)
            if slot >= len(self._arrays.used):
                self._resize(2 * slot, self._arrays.used.shape[1])
        self._slots[name] = slot
        return slot

    def _tidy(self, name: str) -> None:
        """Free the slot of a node that does not exist and that no pod names."""
        slot = self._slots.get(name)
        if slot is not None and not self._pod_counts[slot] and name not in self._nodes:
            del self._slots[name]
            self._free.append(slot)

    def _take_ports(self, node: str, ports: tuple[HostPort, ...], step: int) -> None:
        taken = self._ports.get(node, _NO_PORTS)
        left = taken.plus(ports) if step > 0 else taken.minus(ports)
        if left:
            self._ports[node] = left
        else:
            self._ports.pop(node, None)

    def _vector(self, shape: Shape) -> _Vector:
        vector = self._vectors.get(shape.requests)
        if vector is None:
            self._remembered += len(shape.requests) + len(self._columns)
            if self._remembered >= _REMEMBERED_AMOUNTS:
                self._forget_vectors()
            vector = self._vectors[shape.requests] = self._vector_of(shape.requests)
        return vector

    def _vector_of(self, amounts: Resources) -> _Vector:
        row = np.zeros(self._arrays.used.shape[1], dtype=np.int64)
        sparse = []
        for name, amount in amounts.items():
            column = self._columns.get(name)
            if column is not None:
                row[column] = amount
            elif amount:
                sparse.append((name, amount))
        return _Vector(row, tuple(sparse))

    def _make_columns(self, names: Sequence[str], slot: int) -> None:
        """Create columns for the resources that the node in *slot* is about to offer."""
        new = [name for name in names if name not in self._columns]
        if not new:
            return
        unused = self._unused(names, slot) if len(self._columns) + len(new) > _MOST_COLUMNS else []
        for name in new:
            column = len(self._columns)
            if column >= _MOST_COLUMNS:
                if not unused:
                    break
                column = self._move_out(unused.pop())
            elif column >= self._arrays.used.shape[1]:
                self._resize(len(self._arrays.used), 2 * self._arrays.used.shape[1])
            self._columns[name] = column
            self._move_in(name, column)
            self._names = (*self._names[:column], name, *self._names[column + 1 :])
        self._forget_vectors()

    def _unused(self, names: Sequence[str], slot: int) -> list[str]:
        """Return the columns that no node offers once the node in *slot* offers *names*."""
        offered = self._arrays.allocatable.copy()
        offered[slot] = 0
        kept = {*_FIRST, *names}
        used = np.any(offered, axis=0)
        return [name for name, at in self._columns.items() if not used[at] and name not in kept]

    def _move_out(self, name: str) -> int:
        """Move the amounts of a column out of the arrays; return the column, now empty."""
        column = self._columns.pop(name)
        counted = [array[:, column].copy() for array in self._arrays[1:]]
        for array in self._arrays:
            array[:, column] = 0
        for slot in np.flatnonzero(np.any(counted, axis=0)).tolist():
            self._sparse.put(slot, name, [int(amounts[slot]) for amounts in counted])
        return column

    def _move_in(self, name: str, column: int) -> None:
        """Move the amounts of *name* into its new column."""
        arrays = self._arrays
        for slot, (used, releasing, reserved) in self._sparse.take(name).items():
            arrays.used[slot, column] = used
            arrays.releasing[slot, column] = releasing
            arrays.reserved[slot, column] = reserved
            self._changed[slot] = next(self._version_numbers)

    def _forget_vectors(self) -> None:
        self._vectors.clear()
        self._remembered = 0

    def _resize(self, rows: int, columns: int) -> None:
        self._arrays = self._arrays.grown(rows, columns)
        self._forget_vectors()


def _offered_names(offered: Resources, known: Container[str]) -> list[str]:
    """Return what a node offers, up to the limit: known names first, then those of Kubernetes."""
    names = [name for name, amount in offered.items() if amount > 0]
    if len(names) > _MOST_OF_ONE_NODE:
        names.sort(key=lambda name: (name not in known, "/" in name, name))
    return names[:_MOST_OF_ONE_NODE]


def _frozen(amounts: Amounts) -> Amounts:
    amounts.flags.writeable = False
    return amounts

"""The free capacity of every node, and trials that are undone unless kept.

Rule 1: no other code changes free capacity, a gang's counts or a queue's usage during a cycle.

Rule 2: every change registers how to undo it. Leaving a trial without `keep()` undoes its changes,
the last one first.

Rule 3: every change of a row is appended to *touched*, so that code that derived something from
free capacity (rankings, scores) knows what to compute again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
import numpy.typing as npt

from extender.model.node import Amounts, Mask, NodeTable, PortKey, conflicting_keys, keys_of
from extender.model.pod import Pod, Shape
from extender.model.resources import NOTHING, Resources
from extender.planner.state import GangState

Rows = npt.NDArray[np.intp]


class PortUsage:
    """The host ports used when the cycle began, and those reserved since."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        #: Reserved in this cycle: how often, by port and row.
        self._reserved: dict[PortKey, dict[int, int]] = {}
        #: The rows of the above, computed on first use.
        self._reserved_rows: dict[PortKey, Rows] = {}
        #: The ports that conflict with a shape, and where they were used when the cycle began.
        self._before: dict[Shape, tuple[frozenset[PortKey], Mask]] = {}

    def conflicting(self, shape: Shape) -> Mask:
        """Return the mask of rows on which a host port of *shape* is used or reserved."""
        known = self._before.get(shape)
        if known is None:
            known = self._before[shape] = self._look_up(shape)
        keys, before = known
        found = [key for key in keys if key in self._reserved] if self._reserved else ()
        if not found:
            return before
        mask = before.copy()
        for key in found:
            mask[self._rows_reserved(key)] = True
        return mask

    def reserve(self, shape: Shape, rows: list[int]) -> None:
        """Count the host ports of *shape* as used on *rows*."""
        for key in _port_keys(shape):
            self._reserved_rows.pop(key, None)
            counts = self._reserved.setdefault(key, {})
            for row in rows:
                counts[row] = counts.get(row, 0) + 1

    def release(self, shape: Shape, rows: list[int]) -> None:
        """Release the host ports of *shape* on *rows*."""
        for key in _port_keys(shape):
            self._reserved_rows.pop(key, None)
            counts = self._reserved[key]
            for row in rows:
                counts[row] -= 1
                if not counts[row]:
                    del counts[row]
            if not counts:
                del self._reserved[key]

    @cached_property
    def _taken(self) -> dict[PortKey, list[int]]:
        """The rows by used port; computed only if a pod requests a host port."""
        index, taken = self._table.facts.index, dict[PortKey, list[int]]()
        for name, ports in self._table.ports.items():
            if name in index:
                row = index[name]
                for key in ports:
                    taken.setdefault(key, []).append(row)
        return taken

    def _look_up(self, shape: Shape) -> tuple[frozenset[PortKey], Mask]:
        keys = frozenset(conflicting_keys(shape.host_ports))
        mask = np.zeros(len(self._table.used), dtype=bool)
        for key in keys:
            rows = self._taken.get(key)
            if rows is not None:
                mask[rows] = True
        mask.flags.writeable = False
        return keys, mask

    def _rows_reserved(self, key: PortKey) -> Rows:
        rows = self._reserved_rows.get(key)
        if rows is None:
            counts = self._reserved[key]
            rows = self._reserved_rows[key] = np.fromiter(counts, dtype=np.intp, count=len(counts))
        return rows


def _port_keys(shape: Shape) -> list[PortKey]:
    return [key for port in shape.host_ports for key in keys_of(port)]


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """A pod to evict, by which action and for which gang."""

    gang: GangState
    pod: Pod
    row: int
    action: str
    beneficiary: GangState


@dataclass(frozen=True, slots=True, eq=False)
class NodeHold:
    """Capacity of one node held for a starving gang: what is free of it, and what is missing."""

    row: int
    kept: Amounts
    missing: Amounts


@dataclass(slots=True)
class Trial:
    """Changes that are undone at the end, unless they are kept."""

    is_kept: bool = False

    def keep(self) -> None:
        """Keep the changes; an outer trial may still undo them."""
        self.is_kept = True


class FreeCapacity:
    """The free capacity of all nodes, with what this cycle has reserved and released."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.columns = {name: column for column, name in enumerate(table.dimensions)}
        #: Free now.
        self.free: Amounts = table.allocatable - table.used
        #: One divided by a node's allocatable amount; zero where that is zero.
        self.inverse = _inverse(table.allocatable)
        #: How much of the nodes is used, from 0 to 1.
        self.full = table.used * self.inverse
        #: Being released, less what is already reserved of it.
        self.releasing: Amounts = table.releasing.copy()
        #: Whether `releasing` differs from zero anywhere.
        self.anything_releasing = bool(self.releasing.any())
        self._excluded: Amounts | None = None
        self.all_rows: Rows = np.arange(len(table.used), dtype=np.intp)
        #: Rows whose capacity changed, in the order of the changes.
        self.touched: list[Rows] = []
        self.evictions: list[PlannedEviction] = []
        #: Host ports used and reserved.
        self.ports = PortUsage(table)
        #: The requests of a shape, in the dimensions of the table.
        self.row: Callable[[Shape], Amounts] = cache(partial(_row, table.dimensions))
        self._undoing: list[Callable[[], None]] = []
        self._open_trials = 0

    def exclude_releasing(self, name: str) -> None:
        """Do not rely on the amount of *name* that was being released before this cycle."""
        if name in self.columns:
            excluded = np.zeros_like(self.releasing)
            excluded[:, self.columns[name]] = self.table.releasing[:, self.columns[name]]
            self._excluded = excluded

    @property
    def surely_releasing(self) -> Amounts:
        """Return what is being released and may be relied on."""
        return self.releasing if self._excluded is None else self.releasing - self._excluded

    def need(self, shape: Shape) -> Amounts | None:
        """Return the requests of *shape* as a row; None when no node has one of its resources."""
        if any(amount > 0 and name not in self.columns for name, amount in shape.requests.items()):
            return None
        return self.row(shape)

    def row_of(self, pod: Pod) -> int:
        """Return the row of the node *pod* is on, -1 when the table does not have it."""
        return self.table.facts.index.get(pod.node, -1)

    @contextmanager
    def trial(self, gang: GangState | None = None) -> Iterator[Trial]:
        """Start a trial, for *gang* or within its trial; its changes are undone unless kept."""
        trial, mark = Trial(), len(self._undoing)
        self._open_trials += 1
        if gang is not None:
            gang.in_trial = NOTHING
        try:
            yield trial
        except BaseException:
            trial.is_kept = False
            raise
        finally:
            while not trial.is_kept and len(self._undoing) > mark:
                self._undoing.pop()()
            self._open_trials -= 1
            if not self._open_trials:
                self._undoing.clear()  # no outer trial can undo these

    def place(self, gang: GangState, pods: list[Pod], rows: list[int]) -> None:
        """Place *pods*, all of one shape, in free capacity of *rows*, one pod each."""
        shape = pods[0].shape
        taken = shape.requests * len(pods)
        counts = Counter(rows)
        where = np.array(list(counts), dtype=np.intp)
        amounts = np.array(list(counts.values()))[:, None] * self.row(shape)
        self._take(where, amounts)
        gang.placed.extend(zip(pods, rows, strict=True))
        gang.count(pods, 1)
        self._count(gang, taken)
        best_effort = gang.best_effort
        if best_effort:
            placed_uids = {pod.uid for pod in pods}
            gang.best_effort = [pod for pod in best_effort if pod.uid not in placed_uids]
        if shape.host_ports:
            self.ports.reserve(shape, rows)

        def undo() -> None:
            self._take(where, -amounts)
            del gang.placed[len(gang.placed) - len(pods) :]
            gang.count(pods, -1)
            gang.best_effort = best_effort
            self._count(gang, -taken)
            if shape.host_ports:
                self.ports.release(shape, rows)

        self._undoing.append(undo)

    def pipeline(self, gang: GangState, pod: Pod, row: int) -> None:
        """Place *pod* in capacity of *row* that is still being released."""
        self._add_releasing(row, -self.row(pod.shape))
        gang.pipelined.append((pod, row))
        self._count(gang, pod.requests)
        best_effort = gang.best_effort
        gang.best_effort = [each for each in best_effort if each.uid != pod.uid]

        def undo() -> None:
            self._add_releasing(row, self.row(pod.shape))
            gang.pipelined.pop()
            gang.best_effort = best_effort
            self._count(gang, -pod.requests)

        self._undoing.append(undo)

    def unpipeline(self, gang: GangState, pod: Pod, row: int, *, counts: bool) -> None:
        """Release the reservation of *pod* permanently.

        With *counts*, the pod counts as ready without a node.
        """
        self._add_releasing(row, self.row(pod.shape))
        gang.pipelined.remove((pod, row))
        if counts:
            gang.best_effort = [*gang.best_effort, pod]
        self._count(gang, -pod.requests)

    def evict(self, eviction: PlannedEviction) -> None:
        """Evict a pod: its capacity is being released, and it counts no longer."""
        gang, pod = eviction.gang, eviction.pod
        self._add_releasing(eviction.row, self.row(pod.shape))
        gang.evicted.add(pod.uid)
        gang.count([pod], -1)
        _count(gang, -pod.requests)
        self.evictions.append(eviction)

        def undo() -> None:
            self._add_releasing(eviction.row, -self.row(pod.shape))
            gang.evicted.discard(pod.uid)
            gang.count([pod], 1)
            _count(gang, pod.requests)
            self.evictions.pop()

        self._undoing.append(undo)

    @contextmanager
    def uncounted(self, gangs: Iterable[GangState]) -> Iterator[None]:
        """Run the block as if this cycle had placed nothing for *gangs*.

        Otherwise their queue would exceed its deserved amount by what it loses again, and would
        reclaim that at once.
        """
        counted = [(gang, requests) for gang in gangs if (requests := gang.placed_requests)]
        for gang, requests in counted:
            _count(gang, -requests)
        try:
            yield
        finally:
            for gang, requests in counted:
                _count(gang, requests)

    def undo_placement(self, gang: GangState) -> None:
        """Release what this cycle placed for *gang*: no pod starts next to evictions."""
        for pod, row in reversed(gang.pipelined):
            self.unpipeline(gang, pod, row, counts=False)
        _count(gang, -gang.placed_requests)
        for pod, row in gang.placed:
            need = self.row(pod.shape)
            self.release(NodeHold(row, kept=need, missing=need * 0))
            if pod.shape.host_ports:
                self.ports.release(pod.shape, [row])
        gang.count([pod for pod, _ in gang.placed], -1)
        gang.placed.clear()
        gang.committed = 0

    def hold(self, row: int, amounts: Amounts) -> NodeHold:
        """Hold *amounts* of a node.

        What is not free yet is missing: capacity released on the node covers that first.
        """
        kept = np.minimum(amounts, np.maximum(self.free[row], 0))
        hold = NodeHold(row, kept, amounts - kept)
        self.hold_again(hold)
        return hold

    def hold_again(self, hold: NodeHold) -> None:
        """Hold the capacity of *hold*."""
        self._take(np.array([hold.row], dtype=np.intp), hold.kept[None, :])
        self._add_releasing(hold.row, -hold.missing)

    def release(self, hold: NodeHold) -> None:
        """Release the capacity of *hold*."""
        self._take(np.array([hold.row], dtype=np.intp), -hold.kept[None, :])
        self._add_releasing(hold.row, hold.missing)

    def _take(self, where: Rows, amounts: Amounts) -> None:
        """Take *amounts*, one line per row, from free capacity."""
        self.free[where] -= amounts
        # Computed from integers each time, so that an undone trial leaves no rounding error.
        used = self.table.allocatable[where] - self.free[where]
        self.full[where] = used * self.inverse[where]
        self.touched.append(where)

    def _add_releasing(self, row: int, amounts: Amounts) -> None:
        """Count *amounts* as being released."""
        self.releasing[row] += amounts
        self.anything_releasing = True
        self.touched.append(np.array([row], dtype=np.intp))

    def _count(self, gang: GangState, amounts: Resources) -> None:
        gang.in_trial = gang.in_trial + amounts
        _count(gang, amounts)


def _row(dimensions: Sequence[str], shape: Shape) -> Amounts:
    return np.array([shape.requests.amount(name) for name in dimensions], dtype=np.int64)


def _inverse(amounts: Amounts) -> npt.NDArray[np.float64]:
    whole = amounts.astype(np.float64)
    return np.divide(1.0, whole, out=np.zeros_like(whole), where=whole > 0)


def _count(gang: GangState, amounts: Resources) -> None:
    """Count *amounts* as used by *gang* and its queue."""
    gang.allocated = gang.allocated + amounts
    gang.queue.take(amounts, gang.gang.group.namespace)

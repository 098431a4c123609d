"""Who would be where: the room of every node, and trials that undo themselves unless kept.

Rule 1: nobody else changes the room, a gang's counts or a queue's use during a cycle.
Rule 2: every change notes how to undo it; leaving a trial without `keep()` does so, the last change
first.
Rule 3: every change of a row is noted in *touched*, so that whoever derived something from the
room (slots, scores) knows what to look at again.
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
from extender.model.resources import NOTHING, Resources, total
from extender.planner.state import GangState

_Rows = npt.NDArray[np.intp]


class PortUsage:
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

    def reserve(self, shape: Shape, rows: list[int]) -> None:
        """Count the host ports of *shape* as taken on *rows*."""
        for key in _noted(shape):
            self._promised_rows.pop(key, None)
            counts = self._promised.setdefault(key, {})
            for row in rows:
                counts[row] = counts.get(row, 0) + 1

    def release(self, shape: Shape, rows: list[int]) -> None:
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
        keys = frozenset(conflicting_keys(shape.host_ports))
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


Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """A pod asked to leave, by which action and for whom."""

    gang: GangState
    pod: Pod
    row: int
    action: str
    beneficiary: GangState


@dataclass(frozen=True, slots=True, eq=False)
class BackfillReservation:
    """Room of one node that is kept for somebody: what is idle of it, and what is owed."""

    row: int
    kept: Amounts
    missing: Amounts


@dataclass(slots=True)
class Trial:
    """A stretch of changes that is undone on leaving, unless it was kept."""

    is_kept: bool = False

    def keep(self) -> None:
        """Let the changes stand; an outer trial may still undo them."""
        self.is_kept = True


class FreeCapacity:
    """The room of all nodes, and everything this cycle has promised or taken."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.columns = {name: column for column, name in enumerate(table.dimensions)}
        #: Free now.
        self.idle: Amounts = table.allocatable - table.used
        #: One over what a node has in all; zero where it has none.
        self.inverse = _inverse(table.allocatable)
        #: How full the nodes are, from 0 to 1.
        self.full = table.used * self.inverse
        #: Being released, less what was already promised of it.
        self.coming: Amounts = table.releasing.copy()
        #: Whether `coming` differs from zero anywhere.
        self.anything_coming = bool(self.coming.any())
        self._doubtful: Amounts | None = None
        self.all_rows: Rows = np.arange(len(table.used), dtype=np.intp)
        #: Rows whose room changed, in the order of the changes.
        self.touched: list[Rows] = []
        self.departures: list[PlannedEviction] = []
        #: Host ports taken and promised.
        self.ports = PortUsage(table)
        #: What a shape asks for of the resources the table knows.
        self.row: Callable[[Shape], Amounts] = cache(partial(_row, table.dimensions))
        self._undoing: list[Callable[[], None]] = []
        self._open_trials = 0

    def exclude_releasing(self, name: str) -> None:
        """Take what was being released of *name* before this cycle for not surely coming."""
        if name in self.columns:
            doubtful = np.zeros_like(self.coming)
            doubtful[:, self.columns[name]] = self.table.releasing[:, self.columns[name]]
            self._doubtful = doubtful

    @property
    def surely_releasing(self) -> Amounts:
        """Give what is being released and may be built upon."""
        return self.coming if self._doubtful is None else self.coming - self._doubtful

    def need(self, shape: Shape) -> Amounts | None:
        """Give what *shape* asks for as a row; None when no node has such a resource at all."""
        if any(amount > 0 and name not in self.columns for name, amount in shape.requests.items()):
            return None
        return self.row(shape)

    def row_of(self, pod: Pod) -> int:
        """Give the row of the node *pod* is on, -1 when the table does not have it."""
        return self.table.facts.index.get(pod.node, -1)

    @contextmanager
    def trial(self, gang: GangState | None = None) -> Iterator[Trial]:
        """Start to try something, for *gang* or within its trial; it is undone unless kept."""
        trial, mark = Trial(), len(self._undoing)
        self._open_trials += 1
        if gang is not None:
            gang.trying = NOTHING
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
                self._undoing.clear()  # nobody is left to undo it

    def place(self, gang: GangState, pods: list[Pod], rows: list[int]) -> None:
        """Give *pods*, all of one shape, the idle room of *rows*, one each."""
        shape = pods[0].shape
        taken = shape.requests * len(pods)
        counts = Counter(rows)
        where = np.array(list(counts), dtype=np.intp)
        amounts = np.array(list(counts.values()))[:, None] * self.row(shape)
        self._take(where, amounts)
        gang.placed.extend(zip(pods, rows, strict=True))
        gang.count(pods, 1)
        self._book(gang, taken)
        empty = gang.empty
        if empty:
            gone = {pod.uid for pod in pods}
            gang.empty = [pod for pod in empty if pod.uid not in gone]
        if shape.host_ports:
            self.ports.reserve(shape, rows)

        def undo() -> None:
            self._take(where, -amounts)
            del gang.placed[len(gang.placed) - len(pods) :]
            gang.count(pods, -1)
            gang.empty = empty
            self._book(gang, -taken)
            if shape.host_ports:
                self.ports.release(shape, rows)

        self._undoing.append(undo)

    def pipeline(self, gang: GangState, pod: Pod, row: int) -> None:
        """Promise *pod* room of *row* that is still being released."""
        self._expect(row, -self.row(pod.shape))
        gang.pipelined.append((pod, row))
        self._book(gang, pod.requests)
        empty = gang.empty
        gang.empty = [each for each in empty if each.uid != pod.uid]

        def undo() -> None:
            self._expect(row, self.row(pod.shape))
            gang.pipelined.pop()
            gang.empty = empty
            self._book(gang, -pod.requests)

        self._undoing.append(undo)

    def unpipeline(self, gang: GangState, pod: Pod, row: int, *, counts: bool) -> None:
        """Take back for good what was promised to *pod*; it may count even while it waits."""
        self._expect(row, self.row(pod.shape))
        gang.pipelined.remove((pod, row))
        if counts:
            gang.empty = [*gang.empty, pod]
        self._book(gang, -pod.requests)

    def evict(self, departure: PlannedEviction) -> None:
        """Ask a pod to leave: its room is on its way, and it counts no longer."""
        gang, pod = departure.gang, departure.pod
        self._expect(departure.row, self.row(pod.shape))
        gang.evicted.add(pod.uid)
        gang.count([pod], -1)
        gang.allocated = gang.allocated - pod.requests
        gang.queue.take(-pod.requests, pod.namespace)
        self.departures.append(departure)

        def undo() -> None:
            self._expect(departure.row, -self.row(pod.shape))
            gang.evicted.discard(pod.uid)
            gang.count([pod], 1)
            gang.allocated = gang.allocated + pod.requests
            gang.queue.take(pod.requests, pod.namespace)
            self.departures.pop()

        self._undoing.append(undo)

    def reservation(self, row: int, amounts: Amounts) -> BackfillReservation:
        """Keep *amounts* of a node away from everybody else.

        What is not idle yet is owed: whoever leaves the node pays that first.
        """
        kept = np.minimum(amounts, np.maximum(self.idle[row], 0))
        fence = BackfillReservation(row, kept, amounts - kept)
        self.hold(fence)
        return fence

    def hold(self, fence: BackfillReservation) -> None:
        """Keep what *fence* keeps."""
        self._take(np.array([fence.row], dtype=np.intp), fence.kept[None, :])
        self._expect(fence.row, -fence.missing)

    def release(self, fence: BackfillReservation) -> None:
        """Give what *fence* keeps back to everybody."""
        self._take(np.array([fence.row], dtype=np.intp), -fence.kept[None, :])
        self._expect(fence.row, fence.missing)

    def _take(self, where: Rows, amounts: Amounts) -> None:
        """Take *amounts*, a line per row, out of the idle room."""
        self.idle[where] -= amounts
        # From whole numbers each time, so that a trial that was undone leaves not even rounding.
        used = self.table.allocatable[where] - self.idle[where]
        self.full[where] = used * self.inverse[where]
        self.touched.append(where)

    def _expect(self, row: int, amounts: Amounts) -> None:
        """Count *amounts* as on their way."""
        self.coming[row] += amounts
        self.anything_coming = True
        self.touched.append(np.array([row], dtype=np.intp))

    def _book(self, gang: GangState, amounts: Resources) -> None:
        gang.allocated = gang.allocated + amounts
        gang.trying = gang.trying + amounts
        gang.queue.take(amounts, gang.gang.group.namespace)


def _row(dimensions: Sequence[str], shape: Shape) -> Amounts:
    return np.array([shape.requests.amount(name) for name in dimensions], dtype=np.int64)


def _inverse(amounts: Amounts) -> npt.NDArray[np.float64]:
    whole = amounts.astype(np.float64)
    return np.divide(1.0, whole, out=np.zeros_like(whole), where=whole > 0)


@contextmanager
def uncounted(gangs: Iterable[GangState]) -> Iterator[None]:
    """Judge as if this cycle had given *gangs* nothing: it counts neither for nor against them.

    Else their queue would be above its due by what it loses again, and take that back at once.
    """
    given = [(gang, gift) for gang in gangs if (gift := _gift(gang))]
    for gang, gift in given:
        _book(gang, -gift)
    try:
        yield
    finally:
        for gang, gift in given:
            _book(gang, gift)


def undo_gift(room: FreeCapacity, gang: GangState) -> None:
    """Take back for good what this cycle gave *gang*: nobody starts where others have to leave."""
    for pod, row in reversed(gang.pipelined):
        room.unpipeline(gang, pod, row, counts=False)
    _book(gang, -_gift(gang))
    for pod, row in gang.placed:
        need = room.row(pod.shape)
        room.release(BackfillReservation(row, kept=need, missing=need * 0))
        if pod.shape.host_ports:
            room.ports.release(pod.shape, [row])
    gang.count([pod for pod, _ in gang.placed], -1)
    gang.placed.clear()
    gang.committed = 0


def _gift(gang: GangState) -> Resources:
    return total(pod.requests for pod, _ in (*gang.placed, *gang.pipelined))


def _book(gang: GangState, amounts: Resources) -> None:
    gang.allocated = gang.allocated + amounts
    gang.queue.take(amounts, gang.gang.group.namespace)

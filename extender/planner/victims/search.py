"""Searches the smallest set of victims for a demand.

First greedily, by the pods that a move costs for each slot it frees. Then victims that turn out
unnecessary are dropped, the most important first. Then, where there are few candidates, every
smaller set is tried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import Shape
from extender.planner.extension_points import Key
from extender.planner.free_capacity import Rows
from extender.planner.node_ranking import pods_that_fit
from extender.planner.plugin import VictimCandidate
from extender.planner.session import Demand, Session
from extender.planner.victims.choose import Cover, SlotProblem, UnitsByNode, Work, smaller_solution
from extender.planner.victims.units import Unit, Units, bound_by_role, by_gang

#: More nodes than this do not make the choice noticeably better.
_MOST_NODES = 16
#: Dropping unnecessary victims is quadratic; it is skipped with more units than this.
_MOST_UNITS = 64
#: With more units than this, trying all small sets takes too long.
_FEW = 24
#: Limit of the pods in a set where the greedy search found nothing.
_SMALL = 7


@dataclass(frozen=True, slots=True)
class Move:
    """Units evicted together, and the slots they free."""

    units: tuple[Unit, ...]
    gain: int

    def rate(self, missing: int) -> Key:
        """Return the sort key: pods for each useful slot, then pods, then importance."""
        cost = sum(len(unit.members) for unit in self.units)
        return (cost / min(self.gain, missing), cost, tuple(unit.rank for unit in self.units))


class Search:
    """Searches the units to evict; the free capacity is unchanged afterwards."""

    def __init__(
        self, session: Session, action: str, demand: Demand, units: Units, work: Work
    ) -> None:
        """Search among *units* within the limit of *work*."""
        self._session = session
        self._capacity = session.capacity
        self._action = action
        self._demand = demand
        self._units = units
        self._work = work
        self._by_node = UnitsByNode(units, work)
        #: The units to evict from a row for one more of a shape, and the state they were chosen in.
        self._covers: dict[tuple[Shape, int], tuple[Hashable, tuple[Unit, ...]]] = {}

    def run(self) -> list[Unit] | None:
        """Return the units to evict, empty when none is needed; None when nothing helps."""
        if self._suffices(()):
            return []
        if not self._units or not self._could_ever():
            return None
        with self._capacity.trial():
            found = self._greedily()
        if found is not None:
            found = self._drop_unnecessary(_joined(found))
        return self._fewer(found) or found

    def _greedily(self) -> list[Unit] | None:
        gone: list[Unit] = []
        while not self._is_fulfilled():
            move = self._best_move()
            if move is None or self._work.is_too_much:
                return None
            for unit in move:
                self._evict(unit.members)
                gone.append(unit)
        return gone

    def _best_move(self) -> Sequence[Unit] | None:
        shape = self._missing()
        if shape is None:
            return self._cheapest_in_queue()
        missing = max(1, self._short_of(shape))
        moves = [move for move in self._moves(shape) if move.gain > 0]
        moves.sort(key=lambda move: move.rate(missing))
        return next((move.units for move in moves if self._units.may_go(move.units)), None)

    def _cheapest_in_queue(self) -> Sequence[Unit] | None:
        """Choose the unit that brings the preemptor's queue below its limit with fewest pods."""
        preemptor = self._demand.gang
        own = [gang for gang in self._units.gangs if gang.queue is preemptor.queue]
        if self._session.plugins.exceeds_share(preemptor, self._demand.total):
            own = [gang for gang in own if gang.share is preemptor.share]
        choices = [self._units.single(one) for gang in own for one in self._units.surplus(gang)]
        choices += [unit for gang in own if (unit := self._units.whole(gang)) is not None]
        choices.sort(key=lambda unit: (len(unit.members) / self._part_freed(unit), unit.rank))
        return next(((unit,) for unit in choices if self._units.may_go((unit,))), None)

    def _part_freed(self, unit: Unit) -> float:
        """Return which part of the demand *unit* uses, at most 1."""
        parts = [
            sum(one.pod.requests.amount(name) for one in unit.members) / amount
            for name, amount in self._demand.total.items()
            if amount > 0
        ]
        return min(1.0, max(parts)) or 1e-9

    def _moves(self, shape: Shape) -> Iterator[Move]:
        """Yield the possible next moves: evict a whole gang, or free another slot on a node."""
        self._by_node.refresh()
        yield from self._whole_moves(self._by_node.wholes, shape)
        for row in self._nearest_rows(shape, self._by_node.rows):
            if units := self._cover(shape, row):
                yield self._move(units, shape)

    def _whole_moves(self, wholes: Sequence[Unit], shape: Shape) -> Iterator[Move]:
        """Count the slots that each whole gang frees, for all gangs at once."""
        if not wholes:
            return
        parts = [self._units.frees(unit) for unit in wholes]
        self._work.count(len(parts))
        rows = np.concatenate([rows for rows, _ in parts])
        more = self._more(rows, np.concatenate([amounts for _, amounts in parts]), shape)
        starts = np.cumsum([0, *(len(rows) for rows, _ in parts[:-1])])
        for unit, gain in zip(wholes, np.add.reduceat(more, starts).tolist(), strict=True):
            yield Move((unit,), gain)

    def _nearest_rows(self, shape: Shape, rows: list[int]) -> list[int]:
        """Choose the rows that lack least for another slot."""
        usable = self._session.nodes.usable(shape)
        rows = [row for row in rows if usable[row]]
        if len(rows) <= _MOST_NODES:
            return rows
        need = self._capacity.row(shape)
        needed = np.flatnonzero(need)
        free = self._free_or_releasing()[rows][:, needed]
        goal = pods_that_fit(free, need[needed])[:, None] + 1
        lack = ((goal * need[needed] - free) / need[needed]).max(axis=1)
        return [rows[index] for index in np.argsort(lack, kind="stable")[:_MOST_NODES]]

    def _cover(self, shape: Shape, row: int) -> tuple[Unit, ...]:
        """Choose units that free another slot on *row*; empty where that is impossible."""
        state = self._by_node.state_of(row)
        known = self._covers.get((shape, row))
        if known is None or known[0] != state or not self._is_current(known[1]):
            need = self._capacity.row(shape)
            free = self._capacity.free[row] + self._capacity.releasing[row]
            lack = np.maximum(need * (int(pods_that_fit(free, need)) + 1) - free, 0)
            units = self._by_node.on(row)
            chosen = self._choose(units, row, lack)
            chosen = chosen or self._choose(_prefer_whole(units), row, lack)
            known = self._covers[shape, row] = (state, chosen)
        return known[1]

    def _is_current(self, units: Sequence[Unit]) -> bool:
        return all(self._by_node.is_current(unit) for unit in units if unit.is_whole)

    def _choose(self, units: Sequence[Unit], row: int, lack: Amounts) -> tuple[Unit, ...]:
        if not units:
            return ()
        return Cover(
            units, lambda unit: _on(row, *self._units.frees(unit)), bound_by_role, self._work
        ).choose(lack)

    def _move(self, units: tuple[Unit, ...], shape: Shape) -> Move:
        """Count the slots that evicting *units* frees on all nodes."""
        if len(units) == 1:
            rows, amounts = self._units.frees(units[0])
        else:
            rows, amounts = self._units.added_up([one for unit in units for one in unit.members])
        return Move(units, int(self._more(rows, amounts, shape).sum()))

    def _more(self, rows: Rows, amounts: Amounts, shape: Shape) -> Amounts:
        """Count how many more pods of *shape* fit each row with *amounts* more free capacity."""
        free = self._capacity.free[rows] + self._capacity.releasing[rows]
        need = self._capacity.row(shape)
        more: Amounts = pods_that_fit(free + amounts, need) - pods_that_fit(free, need)
        return more * self._session.nodes.usable(shape)[rows]

    def _missing(self) -> Shape | None:
        """Return a shape of the demand that lacks slots, None when all pods fit."""
        for shape in self._demand.by_shape:
            if self._short_of(shape) > 0:
                return shape
        if self._demand.is_uniform or self._demand.assign(self._session) is not None:
            return None
        return next(iter(self._demand.by_shape))

    def _short_of(self, shape: Shape) -> int:
        slots = int(self._session.nodes.count(self._free_or_releasing(), shape).sum())
        return len(self._demand.by_shape[shape]) - slots

    def _free_or_releasing(self) -> Amounts:
        free: Amounts = self._capacity.free + self._capacity.releasing
        return free

    def _is_fulfilled(self) -> bool:
        return self._missing() is None and self._demand.is_allowed(self._session)

    def _could_ever(self) -> bool:
        """Return whether the demand would fit if all units were evicted."""
        free = self._free_or_releasing()
        for unit in self._units.all_members():
            np.add.at(free, *self._units.frees(unit))
        return all(
            self._session.nodes.count(free, shape).sum() >= len(pods)
            for shape, pods in self._demand.by_shape.items()
        )

    def _suffices(self, units: Sequence[Unit]) -> bool:
        with self._capacity.trial():
            for unit in units:
                self._evict(unit.members)
            return self._is_fulfilled()

    def _evict(self, members: Sequence[VictimCandidate]) -> None:
        for one in members:
            self._capacity.evict(one.eviction(self._action, self._demand.gang))

    def _drop_unnecessary(self, units: list[Unit]) -> list[Unit]:
        """Drop units that are not needed after all, the largest and most important first."""
        if len(units) > _MOST_UNITS:
            return units
        shape = next(iter(self._demand.by_shape))
        missing = self._short_of(shape) if self._demand.is_uniform else 0
        for unit in sorted(units, key=lambda unit: (len(unit.members), unit.rank), reverse=True):
            rest = [other for other in units if other is not unit]
            if missing > 0 and (not rest or self._move(tuple(rest), shape).gain < missing):
                continue  # known without a trial
            if self._suffices(rest):
                units = rest
        return units

    def _fewer(self, found: list[Unit] | None) -> list[Unit] | None:
        """Search a smaller solution among all small sets, if there are not too many of them."""
        units = list(self._units.all())
        shape = next(iter(self._demand.by_shape))
        if len(units) > _FEW or not self._demand.is_uniform or self._short_of(shape) <= 0:
            return None
        units = [unit for unit in units if self._units.may_go((unit,))]
        free, usable = self._free_or_releasing().tolist(), self._session.nodes.usable(shape)
        problem = SlotProblem(
            units=units,
            frees=[_by_row(*self._units.frees(unit)) for unit in units],
            free={row: tuple(free[row]) for row in np.flatnonzero(usable).tolist()},
            need=tuple(self._capacity.row(shape).tolist()),
            missing=self._short_of(shape),
        )
        pods = sum(len(unit.members) for unit in found) if found is not None else _SMALL + 1
        smaller = smaller_solution(problem, pods)
        if smaller is None or not self._suffices(smaller) or not self._may_all_go(smaller):
            return None
        return smaller

    def _may_all_go(self, units: Sequence[Unit]) -> bool:
        """Return whether *units* may be evicted one after the other."""
        with self._capacity.trial():
            for unit in units:
                if not self._units.may_go((unit,)):
                    return False
                self._evict(unit.members)
        return True


def _prefer_whole(units: Sequence[Unit]) -> list[Unit]:
    """Return *units* without single members of gangs that could be evicted whole."""
    whole = {unit.gang.key for unit in units if unit.is_whole}
    return [unit for unit in units if unit.is_whole or unit.gang.key not in whole]


def _joined(units: Sequence[Unit]) -> list[Unit]:
    """Merge the units of a gang that was evicted whole in the end."""
    joined: list[Unit] = []
    for own in by_gang(units).values():
        members = tuple(one for unit in own for one in unit.members)
        whole = any(unit.is_whole for unit in own)
        joined.extend([Unit(members, own[0].rank, is_whole=True)] if whole else own)
    return joined


def _on(row: int, rows: Rows, amounts: Amounts) -> Amounts:
    """Return the amounts of *row*."""
    found: Amounts = amounts[int((rows == row).argmax())]
    return found


def _by_row(rows: Rows, amounts: Amounts) -> dict[int, tuple[int, ...]]:
    """Return the amounts by row, as plain numbers."""
    return {row: tuple(each) for row, each in zip(rows.tolist(), amounts.tolist(), strict=True)}

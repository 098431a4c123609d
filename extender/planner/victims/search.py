"""Searching the few who must leave so that a demand comes true.

First greedily, by what a move costs in pods for each slot it brings; then everybody who need not
have left is given back, the most important first; then, where there are few candidates, every
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
from extender.planner.victims.choose import Cover, Puzzle, UnitsByNode, Work, smaller_solution
from extender.planner.victims.units import Unit, Units, bound_by_role, by_gang

#: Looking at more nodes than this does not make the choice noticeably better.
_MOST_NODES = 16
#: Giving back is quadratic; beyond this many units it is left out.
_MOST_UNITS = 64
#: With more units than this, trying all small sets takes too long to be worth it.
_FEW = 24
#: Where greed found nothing, solutions of up to so many pods are looked for.
_SMALL = 7


@dataclass(frozen=True, slots=True)
class Move:
    """Units that leave at once, and the slots they bring."""

    units: tuple[Unit, ...]
    gain: int

    def rate(self, missing: int) -> Key:
        """Rate it: pods for each useful slot, then pods, then who matters least."""
        cost = sum(len(unit.members) for unit in self.units)
        return (cost / min(self.gain, missing), cost, tuple(unit.rank for unit in self.units))


class Search:
    """Looks for the units to leave; the room is as before when it is done."""

    def __init__(
        self, session: Session, action: str, demand: Demand, units: Units, work: Work
    ) -> None:
        """Look for who of *units* must leave, with no more *work* than it may take."""
        self._session = session
        self._room = session.capacity
        self._action = action
        self._demand = demand
        self._units = units
        self._work = work
        self._leavers = UnitsByNode(units, work)
        #: Who leaves a row for one more of a shape, and whom that was chosen from.
        self._covers: dict[tuple[Shape, int], tuple[Hashable, tuple[Unit, ...]]] = {}

    def run(self) -> list[Unit] | None:
        """Give the units that must leave, none for nothing; None when nothing helps."""
        if self._suffices(()):
            return []
        if not self._units or not self._could_ever():
            return None
        with self._room.trial():
            found = self._greedily()
        if found is not None:
            found = self._give_back(_joined(found))
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
        """Choose whose leaving brings the claimant's queue below its limit with few pods."""
        claimant = self._demand.gang
        ours = [gang for gang in self._units.gangs if gang.queue is claimant.queue]
        if self._session.plugins.exceeds_share(claimant, self._demand.total):
            ours = [gang for gang in ours if gang.share is claimant.share]
        choices = [self._units.single(one) for gang in ours for one in self._units.surplus(gang)]
        choices += [unit for gang in ours if (unit := self._units.whole(gang)) is not None]
        choices.sort(key=lambda unit: (len(unit.members) / self._brings(unit), unit.rank))
        return next(((unit,) for unit in choices if self._units.may_go((unit,))), None)

    def _brings(self, unit: Unit) -> float:
        """Give which part of the demand *unit* uses, at most all of it."""
        parts = [
            sum(one.pod.requests.amount(name) for one in unit.members) / amount
            for name, amount in self._demand.total.items()
            if amount > 0
        ]
        return min(1.0, max(parts)) or 1e-9

    def _moves(self, shape: Shape) -> Iterator[Move]:
        """Give what could be done next: a gang leaves whole, or a node makes another slot."""
        self._leavers.refresh()
        yield from self._whole_moves(self._leavers.wholes, shape)
        for row in self._nearest_rows(shape, self._leavers.rows):
            if units := self._cover(shape, row):
                yield self._move(units, shape)

    def _whole_moves(self, wholes: Sequence[Unit], shape: Shape) -> Iterator[Move]:
        """Count the slots every gang would bring by leaving whole, all gangs in one go."""
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
        need = self._room.row(shape)
        asked = np.flatnonzero(need)
        room = self._idle_or_coming()[rows][:, asked]
        goal = pods_that_fit(room, need[asked])[:, None] + 1
        lack = ((goal * need[asked] - room) / need[asked]).max(axis=1)
        return [rows[place] for place in np.argsort(lack, kind="stable")[:_MOST_NODES]]

    def _cover(self, shape: Shape, row: int) -> tuple[Unit, ...]:
        """Choose units that bring another slot on *row*; nobody where that cannot be."""
        mark = self._leavers.mark(row)
        known = self._covers.get((shape, row))
        if known is None or known[0] != mark or not self._is_current(known[1]):
            need = self._room.row(shape)
            room = self._room.free[row] + self._room.releasing[row]
            lack = np.maximum(need * (int(pods_that_fit(room, need)) + 1) - room, 0)
            units = self._leavers.on(row)
            chosen = self._choose(units, row, lack)
            chosen = chosen or self._choose(_rather_whole(units), row, lack)
            known = self._covers[shape, row] = (mark, chosen)
        return known[1]

    def _is_current(self, units: Sequence[Unit]) -> bool:
        return all(self._leavers.is_current(unit) for unit in units if unit.is_whole)

    def _choose(self, units: Sequence[Unit], row: int, lack: Amounts) -> tuple[Unit, ...]:
        if not units:
            return ()
        return Cover(
            units, lambda unit: _on(row, *self._units.frees(unit)), bound_by_role, self._work
        ).choose(lack)

    def _move(self, units: tuple[Unit, ...], shape: Shape) -> Move:
        """Count the slots that *units* bring by leaving, wherever they are."""
        if len(units) == 1:
            rows, amounts = self._units.frees(units[0])
        else:
            rows, amounts = self._units.added_up([one for unit in units for one in unit.members])
        return Move(units, int(self._more(rows, amounts, shape).sum()))

    def _more(self, rows: Rows, amounts: Amounts, shape: Shape) -> Amounts:
        """Count how many more pods of *shape* each row takes with *amounts* more room."""
        room = self._room.free[rows] + self._room.releasing[rows]
        need = self._room.row(shape)
        more: Amounts = pods_that_fit(room + amounts, need) - pods_that_fit(room, need)
        return more * self._session.nodes.usable(shape)[rows]

    def _missing(self) -> Shape | None:
        """Give a shape of the demand that lacks slots, None when all pods find room."""
        for shape in self._demand.by_shape:
            if self._short_of(shape) > 0:
                return shape
        if self._demand.is_uniform or self._demand.assign(self._session) is not None:
            return None
        return next(iter(self._demand.by_shape))

    def _short_of(self, shape: Shape) -> int:
        slots = int(self._session.nodes.count(self._idle_or_coming(), shape).sum())
        return len(self._demand.by_shape[shape]) - slots

    def _idle_or_coming(self) -> Amounts:
        room: Amounts = self._room.free + self._room.releasing
        return room

    def _is_fulfilled(self) -> bool:
        return self._missing() is None and self._demand.is_allowed(self._session)

    def _could_ever(self) -> bool:
        """See whether there would be room if everybody left who may."""
        room = self._idle_or_coming()
        for unit in self._units.all_members():
            np.add.at(room, *self._units.frees(unit))
        return all(
            self._session.nodes.count(room, shape).sum() >= len(pods)
            for shape, pods in self._demand.by_shape.items()
        )

    def _suffices(self, units: Sequence[Unit]) -> bool:
        with self._room.trial():
            for unit in units:
                self._evict(unit.members)
            return self._is_fulfilled()

    def _evict(self, members: Sequence[VictimCandidate]) -> None:
        for one in members:
            self._room.evict(one.eviction(self._action, self._demand.gang))

    def _give_back(self, units: list[Unit]) -> list[Unit]:
        """Let stay, the largest and most important first, whoever need not leave after all."""
        if len(units) > _MOST_UNITS:
            return units
        shape = next(iter(self._demand.by_shape))
        missing = self._short_of(shape) if self._demand.is_uniform else 0
        for unit in sorted(units, key=lambda unit: (len(unit.members), unit.rank), reverse=True):
            rest = [other for other in units if other is not unit]
            if missing > 0 and (not rest or self._move(tuple(rest), shape).gain < missing):
                continue  # seen without trying it
            if self._suffices(rest):
                units = rest
        return units

    def _fewer(self, found: list[Unit] | None) -> list[Unit] | None:
        """Look for a smaller solution among all small sets, if there are not too many of them."""
        units = list(self._units.all())
        shape = next(iter(self._demand.by_shape))
        if len(units) > _FEW or not self._demand.is_uniform or self._short_of(shape) <= 0:
            return None
        units = [unit for unit in units if self._units.may_go((unit,))]
        room, usable = self._idle_or_coming().tolist(), self._session.nodes.usable(shape)
        puzzle = Puzzle(
            units=units,
            frees=[_lines(*self._units.frees(unit)) for unit in units],
            room={row: tuple(room[row]) for row in np.flatnonzero(usable).tolist()},
            need=tuple(self._room.row(shape).tolist()),
            missing=self._short_of(shape),
        )
        pods = sum(len(unit.members) for unit in found) if found is not None else _SMALL + 1
        smaller = smaller_solution(puzzle, pods)
        if smaller is None or not self._suffices(smaller) or not self._may_all_go(smaller):
            return None
        return smaller

    def _may_all_go(self, units: Sequence[Unit]) -> bool:
        """Ask whether *units* may leave one after the other."""
        with self._room.trial():
            for unit in units:
                if not self._units.may_go((unit,)):
                    return False
                self._evict(unit.members)
        return True


def _rather_whole(units: Sequence[Unit]) -> list[Unit]:
    """Leave out single members of gangs that could leave whole."""
    whole = {unit.gang.key for unit in units if unit.is_whole}
    return [unit for unit in units if unit.is_whole or unit.gang.key not in whole]


def _joined(units: Sequence[Unit]) -> list[Unit]:
    """Join what a gang lost one by one with the rest, if it left whole in the end."""
    joined: list[Unit] = []
    for own in by_gang(units).values():
        members = tuple(one for unit in own for one in unit.members)
        whole = any(unit.is_whole for unit in own)
        joined.extend([Unit(members, own[0].rank, is_whole=True)] if whole else own)
    return joined


def _on(row: int, rows: Rows, amounts: Amounts) -> Amounts:
    """Give the line of *row*."""
    line: Amounts = amounts[int((rows == row).argmax())]
    return line


def _lines(rows: Rows, amounts: Amounts) -> dict[int, tuple[int, ...]]:
    """Give all lines by row, as plain numbers."""
    return {row: tuple(line) for row, line in zip(rows.tolist(), amounts.tolist(), strict=True)}

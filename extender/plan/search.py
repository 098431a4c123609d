"""Searching the few who must leave so that a wish comes true.

Greedy by what a move costs in pods for each slot it brings; then everybody who need not have left
is given back, the most important first. Small and local, but rarely more than one pod away from
the best there is (tests compare it with trying everything).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import Shape
from extender.plan.ledger import Departure
from extender.plan.plugins.plugin import Candidate
from extender.plan.session import Key, Session
from extender.plan.state import GangState
from extender.plan.units import Unit, Units
from extender.plan.wish import Wish, slots_in

#: Looking at more nodes than this does not make the choice noticeably better.
_MOST_NODES = 64
#: Giving back is quadratic; beyond this many units it is left out.
_MOST_UNITS = 64


@dataclass(frozen=True, slots=True)
class Move:
    """Units that leave at once, and the slots they bring."""

    units: tuple[Unit, ...]
    gain: int

    def rate(self, missing: int) -> Key:
        """Rate it: pods for each useful slot, then pods, then who matters least."""
        cost = sum(len(unit.members) for unit in self.units)
        useful = min(self.gain, missing)
        return (cost / useful, cost, tuple(unit.rank for unit in self.units))


class Search:
    """Looks for the units to leave; the ledger is as before when it is done."""

    def __init__(self, session: Session, action: str, wish: Wish, units: Units) -> None:
        self._session = session
        self._ledger = session.ledger
        self._action = action
        self._wish = wish
        self._units = units

    def run(self) -> list[Unit] | None:
        """Give the units that must leave, none for nothing; None when nothing helps."""
        if self._suffices(()):
            return []
        if not self._units or not self._could_ever():
            return None
        with self._ledger.trial():
            found = self._greedily()
        return None if found is None else self._give_back(_joined(found))

    def _greedily(self) -> list[Unit] | None:
        gone: list[Unit] = []
        while not self._is_fulfilled():
            move = self._best_move()
            if move is None:
                return None
            for unit in move:
                self._evict(unit.members)
                gone.append(unit)
        return gone

    def _best_move(self) -> Sequence[Unit] | None:
        shape = self._missing()
        if shape is None:
            return self._cheapest_in_queue()
        missing = self._short_of(shape)
        moves = sorted(self._moves(shape), key=lambda move: move.rate(missing))
        return next((move.units for move in moves if self._units.may_go(move.units)), None)

    def _cheapest_in_queue(self) -> Sequence[Unit] | None:
        """Choose whose leaving brings the claimant's queue below its limit with few pods."""
        ours = [gang for gang in self._units.gangs if gang.queue is self._wish.gang.queue]
        choices = [self._units.single(one) for gang in ours for one in self._units.surplus(gang)]
        choices += [unit for gang in ours if (unit := self._units.whole(gang)) is not None]
        choices.sort(key=lambda unit: (len(unit.members) / self._brings(unit), unit.rank))
        return next(((unit,) for unit in choices if self._units.may_go((unit,))), None)

    def _brings(self, unit: Unit) -> float:
        """Give which part of the wish *unit* uses, at most all of it."""
        parts = [
            sum(one.pod.requests.amount(name) for one in unit.members) / amount
            for name, amount in self._wish.total.items()
            if amount > 0
        ]
        return min(1.0, max(parts)) or 1e-9

    def _moves(self, shape: Shape) -> Iterator[Move]:
        by_row: dict[int, list[Candidate]] = {}
        for gang in self._units.gangs:
            for one in self._units.surplus(gang):
                by_row.setdefault(one.row, []).append(one)
            move = self._by_gang(shape, gang)
            if move is not None:
                yield move
        for row in self._nearest_rows(shape, sorted(by_row)):
            move = self._on_row(shape, row, by_row[row])
            if move is not None:
                yield move

    def _nearest_rows(self, shape: Shape, rows: list[int]) -> list[int]:
        """Choose the rows that lack least for another slot."""
        usable = self._session.usable(shape)
        rows = [row for row in rows if usable[row]]
        if len(rows) <= _MOST_NODES:
            return rows
        need = self._ledger.row(shape)
        asked = np.flatnonzero(need)
        room = self._room()[rows][:, asked]
        goal = (room // need[asked]).min(axis=1, keepdims=True) + 1
        lack = ((goal * need[asked] - room) / need[asked]).max(axis=1)
        return [rows[place] for place in np.argsort(lack, kind="stable")[:_MOST_NODES]]

    def _on_row(self, shape: Shape, row: int, members: Sequence[Candidate]) -> Move | None:
        """Find few surplus members on *row* whose leaving brings a slot there."""
        need = self._ledger.row(shape)
        room = self._ledger.idle[row] + self._ledger.coming[row]
        before = int(_times(room, need))
        frees = [(one, self._ledger.row(one.pod.shape)) for one in members]
        chosen = _cover(need * (before + 1) - room, frees)
        if not chosen or not _keeps_minimums(chosen):
            return None
        freed = sum((self._ledger.row(one.pod.shape) for one in chosen), room)
        units = tuple(self._units.single(one) for one in chosen)
        return Move(units, int(_times(freed, need)) - before)

    def _by_gang(self, shape: Shape, gang: GangState) -> Move | None:
        """See how many slots *gang* would bring by leaving whole."""
        unit = self._units.whole(gang)
        if unit is None:
            return None
        rows, amounts = self._units.frees(gang)
        room = self._ledger.idle[rows] + self._ledger.coming[rows]
        need = self._ledger.row(shape)
        more = _times(room + amounts, need) - _times(room, need)
        gain = int(more[self._session.usable(shape)[rows]].sum())
        return Move((unit,), gain) if gain > 0 else None

    def _missing(self) -> Shape | None:
        """Give a shape of the wish that lacks slots, None when all pods find room."""
        for shape in self._wish.by_shape:
            if self._short_of(shape) > 0:
                return shape
        if self._wish.is_uniform or self._wish.assign(self._session) is not None:
            return None
        return next(iter(self._wish.by_shape))

    def _short_of(self, shape: Shape) -> int:
        """Count the slots missing for *shape*; at least one when shapes are in each other's way."""
        slots = int(slots_in(self._session, self._room(), shape).sum())
        return len(self._wish.by_shape[shape]) - slots

    def _room(self) -> Amounts:
        room: Amounts = self._ledger.idle + self._ledger.coming
        return room

    def _is_fulfilled(self) -> bool:
        return self._missing() is None and self._wish.is_allowed(self._session)

    def _could_ever(self) -> bool:
        """See whether there would be room if everybody left who may."""
        room = self._room()
        everybody = self._units.everybody
        rows = [one.row for one in everybody]
        np.add.at(room, rows, [self._ledger.row(one.pod.shape) for one in everybody])
        return all(
            slots_in(self._session, room, shape).sum() >= len(pods)
            for shape, pods in self._wish.by_shape.items()
        )

    def _suffices(self, units: Sequence[Unit]) -> bool:
        with self._ledger.trial():
            for unit in units:
                self._evict(unit.members)
            return self._is_fulfilled()

    def _evict(self, members: Sequence[Candidate]) -> None:
        for one in members:
            departure = Departure(one.gang, one.pod, one.row, self._action, self._wish.gang)
            self._ledger.evict(departure)

    def _give_back(self, units: list[Unit]) -> list[Unit]:
        """Let stay, the largest and most important first, whoever need not leave after all."""
        if len(units) > _MOST_UNITS:
            return units
        for unit in sorted(units, key=lambda u: (len(u.members), u.rank), reverse=True):
            rest = [other for other in units if other is not unit]
            if self._suffices(rest):
                units = rest
        return units


def _joined(units: Sequence[Unit]) -> list[Unit]:
    """Join what a gang lost one by one with the rest, if it left whole in the end."""
    by_gang: dict[str, list[Unit]] = {}
    for unit in units:
        by_gang.setdefault(unit.gang.key, []).append(unit)
    joined: list[Unit] = []
    for own in by_gang.values():
        left_whole = any(len(unit.members) > 1 for unit in own) and len(own) > 1
        members = tuple(one for unit in own for one in unit.members)
        joined.extend([Unit(members, own[0].rank)] if left_whole else own)
    return joined


def _keeps_minimums(members: Sequence[Candidate]) -> bool:
    """Ask whether every gang and role keeps its minimum when *members* leave."""
    gangs = {one.gang.key: one.gang for one in members}
    for key, gang in gangs.items():
        own = [one for one in members if one.gang.key == key]
        if gang.firm - len(own) < gang.min_member:
            return False
        for role, least in gang.role_minimums.items():
            lost = sum(one.pod.role == role for one in own)
            if lost and gang.ready_by_role.get(role, 0) - lost < least:
                return False
    return True


def _times(room: Amounts, need: Amounts) -> Amounts:
    """Count how often *need* fits into each line of *room*."""
    asked = need > 0
    times: Amounts = np.maximum((room[..., asked] // need[asked]).min(axis=-1), 0)
    return times


def _cover(lack: Amounts, members: Sequence[tuple[Candidate, Amounts]]) -> list[Candidate]:
    """Choose few *members* that together free what is lacking; none when all do not suffice."""
    lack = np.maximum(lack, 0)
    chosen: list[Candidate] = []
    left = list(members)
    while lack.any():
        short = lack > 0
        helps = [float((np.minimum(frees, lack)[short] / lack[short]).sum()) for _, frees in left]
        if not any(helps):
            return []
        one, frees = left.pop(helps.index(max(helps)))
        chosen.append(one)
        lack = np.maximum(lack - frees, 0)
    return chosen

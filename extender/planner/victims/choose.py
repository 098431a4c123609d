"""Chooses among units of eviction: units by node, a work limit, greedy and exhaustive choice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from extender.model.gang import GangKey
from extender.model.node import Amounts, Mask
from extender.model.pod import PodUid, Shape
from extender.planner.session import Session
from extender.planner.state import GangState
from extender.planner.victims.units import Unit, Units, bound_by_role, by_gang

#: Limit of the candidates examined in one cycle and action, counted again for each examination. One
#: search may use a part of the remaining work, so that some is left for the next. Failed searches
#: of one namespace together use no more than such a part of all work. Most searches need far less.
MOST_WORK = 3_000_000
_PART = 4


class Work:
    """The work of one search and its limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.done = 0

    def count(self, examined: int) -> None:
        """Count *examined* candidates."""
        self.done += examined

    @property
    def is_too_much(self) -> bool:
        """Return whether the search must end without a result."""
        return self.done > self._most


class SearchBudget:
    """The work that remains for the searches of one action."""

    def __init__(self) -> None:
        self._left = MOST_WORK
        #: Work of failed searches, by namespace.
        self._failed = Counter[str]()

    def next(self, namespace: str) -> Work:
        """Return the work of the next search, for a gang of *namespace*."""
        return Work(min(self._left // _PART, MOST_WORK // _PART - self._failed[namespace]))

    def spend(self, work: Work, namespace: str, *, failed: bool) -> None:
        """Subtract the work of a search."""
        self._left -= work.done
        if failed:
            self._failed[namespace] += work.done


def search_budgets(_: Session) -> defaultdict[str, SearchBudget]:
    """Return the budgets of a cycle, by action."""
    return defaultdict(SearchBudget)


@dataclass(slots=True)
class _Examined:
    """The units of a gang when it was examined."""

    lost: set[PodUid]
    whole: Unit | None = None
    #: The row of each member that could be evicted alone.
    places: dict[PodUid, int] = field(default_factory=dict)
    #: Their units by row.
    singles: dict[int, dict[PodUid, Unit]] = field(default_factory=dict)
    #: The rows of its units.
    rows: frozenset[int] = frozenset()


class UnitsByNode:
    """The units of a demand by row; only gangs that lost members are examined again."""

    def __init__(self, units: Units, work: Work) -> None:
        self._units = units
        self._work = work
        self._gangs = units.gangs
        #: By number of the gang; the least important gang is the first.
        self._examined: dict[int, _Examined] = {}
        #: Row -> the numbers of the gangs with units on it.
        self._by_row: dict[int, set[int]] = {}

    def refresh(self) -> None:
        """Examine again the gangs that lost or regained members since the last time."""
        for number, gang in enumerate(self._gangs):
            known = self._examined.get(number)
            if known is None or len(known.lost) != len(gang.evicted):
                self._remove(number)
                self._examine(number, gang, known)

    def _remove(self, number: int) -> None:
        known = self._examined.pop(number, None)
        for row in known.rows if known is not None else ():
            self._by_row[row].discard(number)
            if not self._by_row[row]:
                del self._by_row[row]

    def _examine(self, number: int, gang: GangState, known: _Examined | None) -> None:
        if known is not None and known.places and _loses_only(gang, known):
            found, gone = known, gang.evicted - known.lost
            self._remove_members(found, gone)
            if found.whole is not None:
                found.whole = self._units.rest(found.whole, gone)
        else:
            found = _Examined(set())
            self._add_singles(found, gang)
            found.whole = self._units.whole(gang)
        found.lost = set(gang.evicted)
        whole = self._units.frees(found.whole)[0].tolist() if found.whole is not None else []
        self._work.count(len(whole))
        found.rows = frozenset(chain(found.singles, whole))
        self._examined[number] = found
        for row in found.rows:
            self._by_row.setdefault(row, set()).add(number)

    def _add_singles(self, found: _Examined, gang: GangState) -> None:
        for one in self._units.surplus(gang):
            found.places[one.pod.uid] = one.row
            found.singles.setdefault(one.row, {})[one.pod.uid] = self._units.single(one)
        self._work.count(len(gang.gang.pods))

    def _remove_members(self, found: _Examined, gone: set[PodUid]) -> None:
        for uid in gone:
            row = found.places.pop(uid, None)
            if row is not None:
                del found.singles[row][uid]
                if not found.singles[row]:
                    del found.singles[row]
        self._work.count(len(gone))

    @property
    def rows(self) -> list[int]:
        """The rows with units, sorted."""
        return sorted(self._by_row)

    @property
    def wholes(self) -> list[Unit]:
        """The units of whole gangs, the least important first."""
        return [
            known.whole for _, known in sorted(self._examined.items()) if known.whole is not None
        ]

    def on(self, row: int) -> list[Unit]:
        """Return the units on *row*, the least important gangs first."""
        found: list[Unit] = []
        for number in sorted(self._by_row.get(row, ())):
            known = self._examined[number]
            found += known.singles.get(row, {}).values()
            if known.whole is not None:
                found.append(known.whole)
        return found

    def state_of(self, row: int) -> Hashable:
        """Return a value that changes when other single members of *row* could be evicted."""
        return tuple([self._state_of(row, number) for number in sorted(self._by_row.get(row, ()))])

    def _state_of(self, row: int, number: int) -> Hashable:
        gang, known = self._gangs[number], self._examined[number]
        here = len(known.singles.get(row, ()))
        if gang.role_minima:
            return (number, here, len(known.lost))
        return (number, here, min(here, gang.bound_or_done - gang.min_member))

    def is_current(self, unit: Unit) -> bool:
        """Return whether *unit*, a whole gang, still has all its members."""
        return any(known.whole is unit for known in self._examined.values())


def _loses_only(gang: GangState, known: _Examined) -> bool:
    """Return whether the members that could be evicted alone still can, without those gone."""
    can_lose = gang.bound_or_done > gang.min_member and not gang.role_minima
    return can_lose and known.lost <= gang.evicted


#: Gang, shape and role of a member; no shape and no role: all of the gang.
_Kind = tuple[GangKey, Shape | None, str]


class Cover:
    """A greedy choice among *units*, of which each frees a row of amounts."""

    def __init__(
        self,
        units: Sequence[Unit],
        line: Callable[[Unit], Amounts],
        bound_by_role: Callable[[GangState], Counter[str]],
        work: Work,
    ) -> None:
        self._units = units
        self._bound_by_role = bound_by_role
        self._work = work
        alike: dict[_Kind, list[int]] = {}
        for index, unit in enumerate(units):
            alike.setdefault(_kind(unit), []).append(index)
        #: The units left of each kind, the last first.
        self._left = [indices[::-1] for indices in alike.values()]
        self._kinds = list(alike)
        self._by_gang: dict[GangKey, list[int]] = {}
        for number, (gang, _, _) in enumerate(self._kinds):
            self._by_gang.setdefault(gang, []).append(number)
        firsts = [units[indices[0]] for indices in alike.values()]
        self._frees = np.array([line(unit) for unit in firsts])
        self._sizes = np.array([len(unit.members) for unit in firsts])
        self._may_join: Mask = np.ones(len(firsts), dtype=bool)
        #: The number of chosen units of a gang, and of a role in it.
        self._taken = Counter[GangKey]()
        self._of_role = Counter[tuple[GangKey, str]]()
        self._work.count(len(units))

    def choose(self, lack: Amounts) -> tuple[Unit, ...]:
        """Choose units that together free *lack*; empty where that is impossible."""
        chosen: list[Unit] = []
        while lack.any():
            self._work.count(len(self._kinds))
            number = None if self._work.is_too_much else self._best(lack)
            if number is None:
                return ()
            chosen.append(self._take(number))
            lack = np.maximum(lack - self._frees[number], 0)
        return tuple(chosen)

    def _best(self, lack: Amounts) -> int | None:
        """Return the kind that helps most now, of equal ones that of the first unit."""
        short = lack > 0
        parts = np.minimum(self._frees, lack)[:, short] / lack[short]
        # Contiguous rows fix the order of the additions, so that equal rows get equal sums.
        helps = np.ascontiguousarray(parts).sum(axis=1) / self._sizes
        helps[~self._may_join] = 0.0
        most = helps.max()
        if not most:
            return None
        return min(np.flatnonzero(helps == most).tolist(), key=lambda kind: self._left[kind][-1])

    def _take(self, number: int) -> Unit:
        unit = self._units[self._left[number].pop()]
        gang, _, role = self._kinds[number]
        self._taken[gang] += 1
        self._of_role[gang, role] += 1
        for each in self._by_gang[gang]:
            self._may_join[each] = bool(self._left[each]) and self._goes_with(each, unit)
        return unit

    def _goes_with(self, number: int, last: Unit) -> bool:
        """Return whether one more unit of a kind may join the chosen ones of its gang, *last* too.

        The gang must keep its minimum. A whole gang joins no other unit of the gang.
        """
        key, shape, role = self._kinds[number]
        gang = last.gang
        if shape is None or last.is_whole:
            return False
        if gang.bound_or_done - self._taken[key] <= gang.min_member:
            return False
        least = gang.role_minima.get(role)
        return least is None or (self._bound_by_role(gang)[role] - self._of_role[key, role] > least)


def _kind(unit: Unit) -> _Kind:
    if unit.is_whole:
        return (unit.gang.key, None, "")
    pod = unit.members[0].pod
    return (unit.gang.key, pod.shape, pod.role)


#: Limit of the sets tried; a handful of victims among a dozen is well within it.
_TRIES = 1500
Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotProblem:
    """The units of which some must be evicted so that *missing* more slots appear."""

    units: Sequence[Unit]
    #: What each unit frees, by row.
    frees: Sequence[dict[int, Vector]]
    #: What is free, by row, on rows the shape may use.
    free: dict[int, Vector]
    #: What one pod needs.
    need: Vector
    missing: int


def smaller_solution(problem: SlotProblem, below: int) -> list[Unit] | None:
    """Find a set of fewer than *below* pods that solves *problem*; None when none is found."""
    tries = _TRIES
    for total in range(1, below):
        for chosen in _sets(problem.units, total):
            tries -= 1
            if _solves(problem, chosen):
                return [problem.units[index] for index in chosen]
            if not tries:
                return None
    return None


def _sets(units: Sequence[Unit], total: int, start: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield sets of exactly *total* pods, least important first, that keep gangs whole."""
    if not total:
        yield ()
        return
    for index in range(start, len(units)):
        if len(units[index].members) > total:
            continue
        for rest in _sets(units, total - len(units[index].members), index + 1):
            chosen = (index, *rest)
            if go_together([units[each] for each in chosen]):
                yield chosen


def go_together(units: Sequence[Unit]) -> bool:
    """Return whether every gang keeps its minimum, or is evicted whole, without *units*."""
    return all(
        len(own) == 1 if any(unit.is_whole for unit in own) else _keeps_minimum(own[0].gang, own)
        for own in by_gang(units).values()
    )


def _keeps_minimum(gang: GangState, own: Sequence[Unit]) -> bool:
    if gang.bound_or_done - len(own) < gang.min_member:
        return False
    if not gang.role_minima:
        return True
    gone, have = Counter(unit.members[0].pod.role for unit in own), bound_by_role(gang)
    return all(
        have[role] - gone[role] >= least for role, least in gang.role_minima.items() if gone[role]
    )


def _solves(problem: SlotProblem, chosen: Sequence[int]) -> bool:
    freed: dict[int, list[Vector]] = {}
    for index in chosen:
        for row, amounts in problem.frees[index].items():
            freed.setdefault(row, []).append(amounts)
    gained = 0
    for row, parts in freed.items():
        if row in problem.free:
            before = problem.free[row]
            after = tuple(map(sum, zip(before, *parts, strict=True)))
            gained += _slots(after, problem.need) - _slots(before, problem.need)
    return gained >= problem.missing


def _slots(free: Vector, need: Vector) -> int:
    fits = [have // needed for have, needed in zip(free, need, strict=True) if needed > 0]
    return max(0, min(fits))

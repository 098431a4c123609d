"""Who could leave each node as things stand; looked at again only of gangs that lost somebody."""

from __future__ import annotations

from collections import Counter
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

#: So often somebody is looked at in one cycle and action. One search may take a part of what is
#: left, so that something is left for whoever asks next, and those of one namespace that find
#: nobody no more than such a part of all together. Searches that end somewhere take far less.
MOST_WORK = 3_000_000
_PART = 4


def workload_of(session: Session, action: str) -> Workload:
    """Give the work of all searches of *action* in this cycle."""
    name = f"workload of {action}"
    known = session.shared.get(name)
    if not isinstance(known, Workload):
        known = session.shared[name] = Workload()
    return known


class Work:
    """What one search may do, and has done."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.done = 0

    def count(self, looks: int) -> None:
        """Count *looks* at somebody who might leave."""
        self.done += looks

    @property
    def is_too_much(self) -> bool:
        """Ask whether the search must end without an answer."""
        return self.done > self._most


class Workload:
    """The work of all searches of one action."""

    def __init__(self) -> None:
        self._left = MOST_WORK
        #: Spent on searches that found nobody, by namespace.
        self._in_vain = Counter[str]()

    def next(self, namespace: str) -> Work:
        """Give what the next search may do, for a gang of *namespace*."""
        return Work(min(self._left // _PART, MOST_WORK // _PART - self._in_vain[namespace]))

    def book(self, work: Work, namespace: str, *, in_vain: bool) -> None:
        """Count what a search has done."""
        self._left -= work.done
        if in_vain:
            self._in_vain[namespace] += work.done


@dataclass(slots=True)
class _Seen:
    """A gang as it was when it was looked at."""

    lost: set[PodUid]
    whole: Unit | None = None
    #: Its members that could leave alone, and where each is.
    places: dict[PodUid, int] = field(default_factory=dict)
    #: The same by row.
    singles: dict[int, dict[PodUid, Unit]] = field(default_factory=dict)
    #: Where somebody of it is.
    rows: frozenset[int] = frozenset()


class UnitsByNode:
    """The units of a demand, by row."""

    def __init__(self, units: Units, work: Work) -> None:
        self._units = units
        self._work = work
        self._gangs = units.gangs
        #: By number; the least important gang is the first.
        self._seen: dict[int, _Seen] = {}
        #: Row -> the numbers of the gangs of which somebody could leave it.
        self._by_row: dict[int, set[int]] = {}

    def refresh(self) -> None:
        """Look at those who lost members since they were looked at, or have others again."""
        for number, gang in enumerate(self._gangs):
            known = self._seen.get(number)
            if known is None or len(known.lost) != len(gang.evicted):
                self._forget(number)
                self._look_at(number, gang, known)

    def _forget(self, number: int) -> None:
        known = self._seen.pop(number, None)
        for row in known.rows if known is not None else ():
            self._by_row[row].discard(number)
            if not self._by_row[row]:
                del self._by_row[row]

    def _look_at(self, number: int, gang: GangState, known: _Seen | None) -> None:
        if known is not None and known.places and _loses_only(gang, known):
            found, gone = known, gang.evicted - known.lost
            self._take_out(found, gone)
            if found.whole is not None:
                found.whole = self._units.rest(found.whole, gone)
        else:
            found = _Seen(set())
            self._list(found, gang)
            found.whole = self._units.whole(gang)
        found.lost = set(gang.evicted)
        whole = self._units.frees(found.whole)[0].tolist() if found.whole is not None else []
        self._work.count(len(whole))
        found.rows = frozenset(chain(found.singles, whole))
        self._seen[number] = found
        for row in found.rows:
            self._by_row.setdefault(row, set()).add(number)

    def _list(self, found: _Seen, gang: GangState) -> None:
        for one in self._units.surplus(gang):
            found.places[one.pod.uid] = one.row
            found.singles.setdefault(one.row, {})[one.pod.uid] = self._units.single(one)
        self._work.count(len(gang.gang.pods))

    def _take_out(self, found: _Seen, gone: set[PodUid]) -> None:
        for uid in gone:
            row = found.places.pop(uid, None)
            if row is not None:
                del found.singles[row][uid]
                if not found.singles[row]:
                    del found.singles[row]
        self._work.count(len(gone))

    @property
    def rows(self) -> list[int]:
        """List where somebody could leave."""
        return sorted(self._by_row)

    @property
    def wholes(self) -> list[Unit]:
        """List the gangs that could leave whole, the least important first."""
        return [known.whole for _, known in sorted(self._seen.items()) if known.whole is not None]

    def on(self, row: int) -> list[Unit]:
        """List who could leave *row*, the least important gangs first."""
        found: list[Unit] = []
        for number in sorted(self._by_row.get(row, ())):
            known = self._seen[number]
            found += known.singles.get(row, {}).values()
            if known.whole is not None:
                found.append(known.whole)
        return found

    def mark(self, row: int) -> Hashable:
        """Give what is the same as long as nobody more or less could leave *row* one by one."""
        return tuple([self._mark(row, number) for number in sorted(self._by_row.get(row, ()))])

    def _mark(self, row: int, number: int) -> Hashable:
        gang, known = self._gangs[number], self._seen[number]
        here = len(known.singles.get(row, ()))
        if gang.role_minima:
            return (number, here, len(known.lost))
        return (number, here, min(here, gang.bound_or_done - gang.min_member))

    def is_current(self, unit: Unit) -> bool:
        """Ask whether *unit*, which is a whole gang, is all of it still."""
        return any(known.whole is unit for known in self._seen.values())


def _loses_only(gang: GangState, known: _Seen) -> bool:
    """Ask whether whoever could leave it alone still can, but for those who left."""
    can_lose = gang.bound_or_done > gang.min_member and not gang.role_minima
    return can_lose and known.lost <= gang.evicted


#: Gang, shape and role of a member; no shape and no role: all of the gang.
_Kind = tuple[GangKey, Shape | None, str]


class Cover:
    """Chooses among *units*, of which each would free a line of amounts."""

    def __init__(
        self,
        units: Sequence[Unit],
        line: Callable[[Unit], Amounts],
        firm_by_role: Callable[[GangState], Counter[str]],
        work: Work,
    ) -> None:
        self._units = units
        self._firm_by_role = firm_by_role
        self._work = work
        alike: dict[_Kind, list[int]] = {}
        for at, unit in enumerate(units):
            alike.setdefault(_kind(unit), []).append(at)
        #: Of each kind those left, the last first.
        self._left = [places[::-1] for places in alike.values()]
        self._kinds = list(alike)
        self._by_gang: dict[GangKey, list[int]] = {}
        for number, (gang, _, _) in enumerate(self._kinds):
            self._by_gang.setdefault(gang, []).append(number)
        firsts = [units[places[0]] for places in alike.values()]
        self._frees = np.array([line(unit) for unit in firsts])
        self._sizes = np.array([len(unit.members) for unit in firsts])
        self._may_join: Mask = np.ones(len(firsts), dtype=bool)
        #: How many of a gang were chosen, and of a role of it; all, if it leaves whole.
        self._taken = Counter[GangKey]()
        self._of_role = Counter[tuple[GangKey, str]]()
        self._work.count(len(units))

    def choose(self, lack: Amounts) -> tuple[Unit, ...]:
        """Choose who frees all of *lack* by leaving; nobody where that cannot be."""
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
        """Give the kind that helps most now, of equal ones that of the first unit."""
        short = lack > 0
        parts = np.minimum(self._frees, lack)[:, short] / lack[short]
        # Line by line, as numbers that are added in another order are not always the same.
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
        """Ask whether one more of a kind may join the others of its gang, *last* among them.

        The gang must keep its minimum; whoever leaves whole leaves nobody to join, or be joined.
        """
        key, shape, role = self._kinds[number]
        gang = last.gang
        if shape is None or last.is_whole:
            return False
        if gang.bound_or_done - self._taken[key] <= gang.min_member:
            return False
        least = gang.role_minima.get(role)
        return least is None or (self._firm_by_role(gang)[role] - self._of_role[key, role] > least)


def _kind(unit: Unit) -> _Kind:
    if unit.is_whole:
        return (unit.gang.key, None, "")
    pod = unit.members[0].pod
    return (unit.gang.key, pod.shape, pod.role)


#: So many sets are tried at most; a handful of victims among a dozen is well within it.
_TRIES = 1500
Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Which units must leave so that *missing* more slots appear?"""

    units: Sequence[Unit]
    #: What each unit frees, by row.
    frees: Sequence[dict[int, Vector]]
    #: What is free, by row, on rows the shape may use.
    room: dict[int, Vector]
    #: What one pod needs.
    need: Vector
    missing: int


def smaller_solution(puzzle: Puzzle, below: int) -> list[Unit] | None:
    """Find a set of fewer than *below* pods that solves *puzzle*; None when none was found."""
    tries = _TRIES
    for total in range(1, below):
        for chosen in _sets(puzzle.units, total):
            tries -= 1
            if _solves(puzzle, chosen):
                return [puzzle.units[at] for at in chosen]
            if not tries:
                return None
    return None


def _sets(units: Sequence[Unit], total: int, start: int = 0) -> Iterator[tuple[int, ...]]:
    """Give the sets of exactly *total* pods, the least important first, that tear no gang."""
    if not total:
        yield ()
        return
    for at in range(start, len(units)):
        if len(units[at].members) > total:
            continue
        for rest in _sets(units, total - len(units[at].members), at + 1):
            chosen = (at, *rest)
            if go_together([units[each] for each in chosen]):
                yield chosen


def go_together(units: Sequence[Unit]) -> bool:
    """Ask whether every gang keeps its minimum, or leaves whole, when *units* leave."""
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


def _solves(puzzle: Puzzle, chosen: Sequence[int]) -> bool:
    freed: dict[int, list[Vector]] = {}
    for at in chosen:
        for row, amounts in puzzle.frees[at].items():
            freed.setdefault(row, []).append(amounts)
    gained = 0
    for row, parts in freed.items():
        if row in puzzle.room:
            before = puzzle.room[row]
            after = tuple(map(sum, zip(before, *parts, strict=True)))
            gained += _times(after, puzzle.need) - _times(before, puzzle.need)
    return gained >= puzzle.missing


def _times(room: Vector, need: Vector) -> int:
    fits = [have // asked for have, asked in zip(room, need, strict=True) if asked > 0]
    return max(0, min(fits))

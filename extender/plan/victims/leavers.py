"""Who could leave each node as things stand; looked at again only of gangs that lost somebody."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import chain

from extender.model.pod import PodUid
from extender.plan.room.state import GangState
from extender.plan.victims.units import Unit, Units
from extender.plan.victims.work import Work


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


class Leavers:
    """The units of a demand, by row."""

    def __init__(self, units: Units, work: Work) -> None:
        self._units = units
        self._work = work
        self._gangs = units.gangs
        #: By number; the least important gang is the first.
        self._seen: dict[int, _Seen] = {}
        #: Row -> the numbers of the gangs of which somebody could leave it.
        self._by_row: dict[int, set[int]] = {}

    def look_again(self) -> None:
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
        return (number, here, min(here, gang.firm - gang.min_member))

    def is_current(self, unit: Unit) -> bool:
        """Ask whether *unit*, which is a whole gang, is all of it still."""
        return any(known.whole is unit for known in self._seen.values())


def _loses_only(gang: GangState, known: _Seen) -> bool:
    """Ask whether whoever could leave it alone still can, but for those who left."""
    can_lose = gang.firm > gang.min_member and not gang.role_minima
    return can_lose and known.lost <= gang.evicted

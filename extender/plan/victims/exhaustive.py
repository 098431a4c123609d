"""Trying every small set of units: exact where there are few, silent where there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.plan.room.state import GangState
from extender.plan.victims.units import Unit, by_gang, firm_by_role

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
    if gang.firm - len(own) < gang.min_member:
        return False
    if not gang.role_minima:
        return True
    gone, have = Counter(unit.members[0].pod.role for unit in own), firm_by_role(gang)
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

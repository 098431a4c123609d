"""Choosing who leaves one node so that it holds one more: what helps most for its cost first.

Members of one gang that are alike and equally needed are one *kind*: in every round only the first
of each is weighed, and all kinds at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from extender.model.gang import GangKey
from extender.model.node import Amounts, Mask
from extender.model.pod import Shape
from extender.plan.room.state import GangState
from extender.plan.victims.units import Unit
from extender.plan.victims.work import Work

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
        if gang.firm - self._taken[key] <= gang.min_member:
            return False
        least = gang.role_minima.get(role)
        return least is None or (self._firm_by_role(gang)[role] - self._of_role[key, role] > least)


def _kind(unit: Unit) -> _Kind:
    if unit.is_whole:
        return (unit.gang.key, None, "")
    pod = unit.members[0].pod
    return (unit.gang.key, pod.shape, pod.role)

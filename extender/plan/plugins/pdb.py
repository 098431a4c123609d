"""pdb: disruption budgets hold for our evictions too."""

from __future__ import annotations

from collections.abc import Sequence

from extender.model.pod import Pod
from extender.plan.budgets import budgets_of
from extender.plan.plugin import Candidate, Claim, Plugin, View


class Pdb(Plugin):
    """Allows as many victims as the budgets that select them have left."""

    known = ()

    def open(self, session: View) -> None:
        """Look at the budgets by the labels they want: most pods have none."""
        super().open(session)
        self._budgets = budgets_of(session.snapshot)

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Count the budgets down in the order of *candidates*, after whoever leaves already."""
        if not self._budgets:
            return list(candidates)
        left = self._left()
        allowed = []
        for candidate in candidates:
            budgets = self._budgets_of(candidate.pod)
            for budget in budgets:
                self._take(left, budget)
            if all(left[budget] >= 0 for budget in budgets):
                allowed.append(candidate)
        return allowed

    reclaimable = preemptable

    def _left(self) -> dict[int, int]:
        """Give what the budgets have left of which somebody who leaves already took some."""
        left: dict[int, int] = {}
        for departure in self.session.room.departures:
            for number in self._budgets_of(departure.pod):
                self._take(left, number)
        return left

    def _take(self, left: dict[int, int], number: int) -> None:
        left[number] = left.get(number, self._budgets[number].allowed) - 1

    def _budgets_of(self, pod: Pod) -> Sequence[int]:
        return self._budgets.covering(pod)

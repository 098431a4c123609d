"""pdb: disruption budgets hold for our evictions too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from extender.model.pod import Pod, PodUid, Requirement
from extender.model.snapshot import DisruptionBudget
from extender.plan.plugin import Candidate, Claim, Plugin, View
from extender.plan.room.node_match import meets


class Pdb(Plugin):
    """Allows as many victims as the budgets that select them have left."""

    known = ()

    def open(self, session: View) -> None:
        """Sort the budgets by where they hold: most namespaces have none."""
        super().open(session)
        self._by_namespace: dict[str, list[int]] = {}
        for number, budget in enumerate(session.snapshot.budgets):
            self._by_namespace.setdefault(budget.namespace, []).append(number)
        self._known: dict[PodUid, Sequence[int]] = {}

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Count the budgets down in the order of *candidates*, after whoever leaves already."""
        if not self._by_namespace:
            return list(candidates)
        left = self._left()
        allowed = []
        for candidate in candidates:
            budgets = self._budgets_of(candidate.pod)
            for budget in budgets:
                left[budget] -= 1
            if all(left[budget] >= 0 for budget in budgets):
                allowed.append(candidate)
        return allowed

    reclaimable = preemptable

    def _left(self) -> dict[int, int]:
        budgets = self.session.snapshot.budgets
        left = {number: budget.allowed for number, budget in enumerate(budgets)}
        for departure in self.session.room.departures:
            for number in self._budgets_of(departure.pod):
                left[number] -= 1
        return left

    def _budgets_of(self, pod: Pod) -> Sequence[int]:
        near = self._by_namespace.get(pod.namespace)
        if near is None:
            return ()
        known = self._known.get(pod.uid)
        if known is None:
            budgets = self.session.snapshot.budgets
            known = [number for number in near if self._covers(budgets[number], pod)]
            self._known[pod.uid] = known
        return known

    def _covers(self, budget: DisruptionBudget, pod: Pod) -> bool:
        return covers(budget, pod)


def covers(budget: DisruptionBudget, pod: Pod) -> bool:
    """Ask whether evicting *pod* would use up some of *budget*."""
    return pod.name not in budget.disrupted and selects(budget.selector, pod.labels)


def selects(selector: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Ask whether *labels* meet every requirement of *selector*."""
    return all(meets(need, labels.get(need.key)) for need in selector)

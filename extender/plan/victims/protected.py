"""Who could make room for a gang but is left alone, and why: budgets, and reprieves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from extender.model.gang import Gang
from extender.model.pod import SEATED_SET
from extender.model.snapshot import DisruptionBudget
from extender.plan.plugins.pdb import covers
from extender.plan.room.state import GangState
from extender.plan.session import Session

#: So many reasons are named; the first holds for most pods.
_NAMED = 2


class Protected:
    """Looked up once per cycle, and only when a gang finds no room."""

    def __init__(self, session: Session) -> None:
        self._session = session
        snapshot = session.snapshot
        self._budgets: dict[str, list[DisruptionBudget]] = {}
        for budget in snapshot.budgets:
            self._budgets.setdefault(budget.namespace, []).append(budget)
        self._is_empty = not snapshot.budgets and not snapshot.protected
        #: (queue, priority) -> why -> pods.
        self._counts: dict[tuple[str, int], Counter[str]] | None = None

    def note(self, gang: GangState) -> str:
        """Say how many pods that could leave for *gang* are left alone; empty when none."""
        if self._is_empty or not self._session.is_starving(gang):
            return ""
        total: Counter[str] = Counter()
        for (queue, priority), counts in self._by_place().items():
            if self._could_leave(queue, priority, gang):
                total += counts
        named = [
            f"{count} {'pod' if count == 1 else 'pods'} ({why})"
            for why, count in total.most_common(_NAMED)
        ]
        return f"; left alone: {', '.join(named)}" if named else ""

    def _could_leave(self, queue: str, priority: int, gang: GangState) -> bool:
        if queue == gang.queue.name:
            return priority < gang.gang.priority
        other = self._session.queues[queue].queue
        return other.reclaimable and not self._session.opinions.is_overused(gang.queue)

    def _by_place(self) -> dict[tuple[str, int], Counter[str]]:
        if self._counts is None:
            self._counts = {}
            for gang in self._session.snapshot.gangs.values():
                if gang.seated and gang.queue in self._session.queues:
                    place = self._counts.setdefault((gang.queue, gang.priority), Counter())
                    place.update(self._reasons(gang))
        return self._counts

    def _reasons(self, gang: Gang) -> Mapping[str, int]:
        protected = self._session.snapshot.protected
        reasons = Counter(self._budgeted(gang))
        reasons.update(protected[pod.uid] for pod in gang.pods if pod.uid in protected)
        return reasons

    def _budgeted(self, gang: Gang) -> Mapping[str, int]:
        """Count the members that budgets keep; remembered until gang or budgets change."""
        budgets = self._session.snapshot.budgets
        return gang.memo.recall("budgets", lambda: self._count(gang), about=budgets)

    def _count(self, gang: Gang) -> Mapping[str, int]:
        seated = [pod for pod in gang.pods if pod.status in SEATED_SET]
        counts = {}
        for budget in self._budgets.get(gang.group.namespace, ()):
            covered = sum(covers(budget, pod) for pod in seated)
            if covered > budget.allowed:
                name = f"PodDisruptionBudget {budget.namespace}/{budget.name}"
                counts[f"{name} allows {budget.allowed} disruptions"] = covered
        return counts

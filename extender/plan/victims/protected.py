"""Who could make room for a gang and does not: left alone for a reason, or stuck on the way out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from extender.model.gang import Gang
from extender.model.pod import SEATED_SET
from extender.plan.budgets import budgets_of
from extender.plan.room.state import GangState
from extender.plan.session import Session

#: So many reasons, or pods, are named; the first reason holds for most pods.
_NAMED = 2


class Protected:
    """Looked up once per cycle, and only when a gang finds no room."""

    def __init__(self, session: Session) -> None:
        self._session = session
        snapshot = session.snapshot
        self._budgets = budgets_of(snapshot)
        self._is_empty = not snapshot.budgets and not snapshot.protected
        self._stuck: str | None = None
        #: (queue, priority) -> why -> pods.
        self._counts: dict[tuple[str, int], Counter[str]] | None = None
        #: What is said of them to the gangs of a queue and priority.
        self._said: dict[tuple[str, int], str] = {}

    def note(self, gang: GangState) -> str:
        """Say who could make room for *gang* and does not; empty when nobody."""
        if not self._session.is_starving(gang):
            return ""
        return self._left_alone(gang) + self._stuck_ones()

    def _left_alone(self, gang: GangState) -> str:
        """Say how many pods that could leave for *gang* are left alone."""
        if self._is_empty:
            return ""
        key = (gang.queue.name, gang.gang.priority)
        if key not in self._said:
            self._said[key] = self._say(gang)
        return self._said[key]

    def _say(self, gang: GangState) -> str:
        total: Counter[str] = Counter()
        for (queue, priority), counts in self._by_place().items():
            if self._could_leave(queue, priority, gang):
                total += counts
        named = [
            f"{count} {'pod' if count == 1 else 'pods'} ({why})"
            for why, count in total.most_common(_NAMED)
        ]
        return f"; left alone: {', '.join(named)}" if named else ""

    def _stuck_ones(self) -> str:
        """Name pods that should have left long ago: nobody waits for them, but people can help."""
        stuck = self._session.snapshot.stuck
        if not stuck:
            return ""
        if self._stuck is None:
            gangs = self._session.snapshot.gangs.values()
            names = [pod.key for gang in gangs for pod in gang.pods if pod.uid in stuck]
            count = "1 pod" if len(stuck) == 1 else f"{len(stuck)} pods"
            named = ", ".join(sorted(names)[:_NAMED])
            self._stuck = f"; {count} should have left long ago" + (f": {named}" if named else "")
        return self._stuck

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
        if not protected:
            return self._budgeted(gang)
        reasons = Counter(self._budgeted(gang))
        reasons.update(protected[pod.uid] for pod in gang.pods if pod.uid in protected)
        return reasons

    def _budgeted(self, gang: Gang) -> Mapping[str, int]:
        """Count the members that budgets keep; remembered until gang or budgets change."""
        budgets = self._session.snapshot.budgets
        return gang.memo.recall("budgets", lambda: self._count(gang), about=budgets)

    def _count(self, gang: Gang) -> Mapping[str, int]:
        seated = [pod for pod in gang.pods if pod.status in SEATED_SET]
        budgets = self._budgets
        covered = Counter(each for pod in seated for each in budgets.covering(pod))
        return {
            f"{budgets.title(each)} allows {budgets[each].allowed} disruptions": count
            for each, count in sorted(covered.items())
            if count > budgets[each].allowed
        }

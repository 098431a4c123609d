"""Plugins about gangs: gang, priority, sla, pdb and conformance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from extender.model.annotations import SHORT_SLA_WAITING_TIME, SLA_WAITING_TIME
from extender.model.budgets import budgets_of
from extender.model.pod import Pod, Status
from extender.model.reason import Problem, Reason
from extender.planner.plugin import Plugin, Preemptor, VictimCandidate, View, Vote
from extender.planner.policy import seconds
from extender.planner.state import GangState


class GangMinimum(Plugin):
    """Counts members against `minMember` and `minTaskMember`."""

    known = ()

    def gang_valid(self, gang: GangState) -> Problem | None:
        """Return which members the gang lacks so that it cannot be complete, else None."""
        # Members placed in this cycle count among the ready already.
        present = gang.ready + len(self._could_complete(gang)) - len(gang.placed)
        if present < gang.min_member:
            pending = len(gang.gang.by_status.get(Status.PENDING, ()))
            return missing_members(present, gang.min_member, pending - len(gang.gang.waiting))
        return self._missing_role(gang)

    def _could_complete(self, gang: GangState) -> Sequence[Pod]:
        """Return the members without a node that could complete the gang."""
        return gang.gang.waiting

    def gang_ready(self, gang: GangState) -> int:
        """Count the members that must still be placed."""
        return _missing(gang, gang.best_effort)

    def gang_pipelined(self, gang: GangState) -> Vote:
        """Permit a gang whose minimum has nodes, or capacity that is being released."""
        others = [*gang.best_effort, *(pod for pod, _ in gang.pipelined)]
        return Vote.REJECT if _missing(gang, others) else Vote.PERMIT

    def gang_starving(self, gang: GangState) -> bool:
        """Return whether the minimum is not reached, not even with capacity being released."""
        return gang.ready + len(gang.pipelined) < gang.min_member

    def gang_order(self, gang: GangState) -> bool:
        """Put gangs that have not started before those that can only grow."""
        return gang.ready + len(gang.best_effort) >= gang.min_member

    def gang_order_reason(self, ahead: GangState, behind: GangState) -> str:
        """Say which gang has not started and which can only grow."""
        return "it has not started, this one can only grow"

    def preemptable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> Sequence[VictimCandidate]:
        """Allow all: the search takes surplus members or whole gangs, nothing between."""
        return candidates

    reclaimable = preemptable

    def _missing_role(self, gang: GangState) -> Problem | None:
        if not gang.role_minima:
            return None
        placed = {pod.uid for pod, _ in gang.placed}
        could_complete = Counter(
            pod.role for pod in self._could_complete(gang) if pod.uid not in placed
        )
        present = gang.ready_by_role + could_complete
        for role, least in sorted(gang.role_minima.items()):
            if present[role] < least:
                message = f"has {present[role]} of at least {least} members of role {role!r}"
                return Problem(Reason.NOT_ENOUGH_ROLES, message)
        return None


def _missing(gang: GangState, others: Sequence[Pod]) -> int:
    """Count the members missing for the minimum when *others* count beside the ready ones."""
    missing = gang.min_member - gang.ready - len(others)
    if gang.role_minima:
        have = gang.ready_by_role + Counter(pod.role for pod in others)
        missing = max(missing, (Counter(gang.role_minima) - have).total())
    return max(0, missing)


def missing_members(present: int, least: int, gated: int, note: str = "") -> Problem:
    """Return the problem that a gang has fewer than *least* members, or that gates hold them."""
    if gated and present + gated >= least:
        message = f"{present} of at least {least} members may start; {gated} have scheduling gates"
        return Problem(Reason.GATED, message)
    return Problem(Reason.NOT_ENOUGH_MEMBERS, f"has {present} of at least {least} members{note}")


class Priority(Plugin):
    """Orders gangs by the priority of their PodGroup, members by their own."""

    known = ()

    def gang_order(self, gang: GangState) -> int:
        """Put higher priority first."""
        return -gang.gang.priority

    def gang_order_reason(self, ahead: GangState, behind: GangState) -> str:
        """Name both priorities."""
        return f"it has priority {ahead.gang.priority}, this one {behind.gang.priority}"

    def task_order(self, pod: Pod) -> int:
        """Put higher priority first."""
        return -pod.rank

    def gang_starving(self, gang: GangState) -> bool:
        """Return whether any member has no node."""
        return gang.ready + len(gang.pipelined) < len(gang.gang.pods)

    def preemptable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow gangs of strictly lower priority, and in one gang members of lower priority."""
        return [
            candidate
            for candidate in candidates
            if (
                candidate.pod.rank < preemptor.pod.rank
                if candidate.gang is preemptor.gang
                else candidate.gang.gang.priority < preemptor.gang.gang.priority
            )
        ]

    def protects(self, action: str, preemptor: Preemptor, gang: GangState) -> bool:
        """Protect gangs of at least the preemptor's priority."""
        return action == "preempt" and gang.gang.priority >= preemptor.gang.gang.priority


_KEYS = (SLA_WAITING_TIME, SHORT_SLA_WAITING_TIME)


class Sla(Plugin):
    """Reads `sla-waiting-time` from the PodGroup's annotations, else from its arguments."""

    known = ("sla-waiting-time",)

    def configure(self) -> None:
        """Read the waiting time of gangs that state none."""
        self._default = self.arguments.seconds("sla-waiting-time")

    def gang_order(self, gang: GangState) -> float:
        """Put the nearest deadline first, gangs without one last."""
        waiting_time = self._waiting_time(gang)
        return gang.created + waiting_time if waiting_time is not None else inf

    def gang_order_reason(self, ahead: GangState, behind: GangState) -> str:
        """Say by how much its waiting time ends earlier."""
        earlier = self.gang_order(behind) - self.gang_order(ahead)
        if earlier == inf:
            return "its waiting time ends, this one has none"
        return f"its waiting time ends {earlier:.0f} s earlier"

    def enqueueable(self, gang: GangState) -> Vote:
        """Permit gangs that have waited long enough; abstain on the others."""
        waiting_time = self._waiting_time(gang)
        if waiting_time is None or self.session.snapshot.now - gang.created < waiting_time:
            return Vote.ABSTAIN
        return Vote.PERMIT

    gang_pipelined = enqueueable

    def _waiting_time(self, gang: GangState) -> float | None:
        annotations = gang.gang.group.annotations
        written = next((annotations[key] for key in _KEYS if key in annotations), None)
        length = seconds(written) if written is not None else None
        return length if length else self._default


class Pdb(Plugin):
    """Allows as many victims as the budgets that select them have left."""

    known = ()

    def open(self, session: View) -> None:
        """Index the budgets by the labels they select: most pods have none."""
        super().open(session)
        self._budgets = budgets_of(session.snapshot)

    def preemptable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Count the budgets down in the order of *candidates*, after earlier evictions."""
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
        """Return what is left of the budgets that pods evicted in this cycle use."""
        left: dict[int, int] = {}
        for eviction in self.session.capacity.evictions:
            for number in self._budgets_of(eviction.pod):
                self._take(left, number)
        return left

    def _take(self, left: dict[int, int], number: int) -> None:
        left[number] = left.get(number, self._budgets[number].allowed) - 1

    def _budgets_of(self, pod: Pod) -> Sequence[int]:
        return self._budgets.covering(pod)


class Conformance(Plugin):
    """Protects system-critical pods, kube-system, and exempted namespaces."""

    known = ()

    def preemptable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow all other candidates."""
        return [candidate for candidate in candidates if not candidate.pod.is_exempt]

    reclaimable = preemptable

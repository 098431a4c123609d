"""gang: a gang starts with its minimum or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

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
        """Say which members are missing for the gang ever to be complete."""
        # Those given a node in this cycle count among the ready already.
        present = gang.ready + len(self._coming(gang)) - len(gang.placed)
        if present < gang.min_member:
            pending = len(gang.gang.by_status.get(Status.PENDING, ()))
            return missing_members(present, gang.min_member, pending - len(gang.gang.waiting))
        return self._missing_role(gang)

    def _coming(self, gang: GangState) -> Sequence[Pod]:
        """List the members without a node that could complete the gang."""
        return gang.gang.waiting

    def gang_ready(self, gang: GangState) -> int:
        """Count the members still to be placed, at the least."""
        return _lacking(gang, gang.empty)

    def gang_pipelined(self, gang: GangState) -> Vote:
        """Permit a gang whose minimum has a node, be it one that is still being vacated."""
        coming = [*gang.empty, *(pod for pod, _ in gang.pipelined)]
        return Vote.REJECT if _lacking(gang, coming) else Vote.PERMIT

    def gang_starving(self, gang: GangState) -> bool:
        """Ask whether the minimum is not reached, not even with room on its way."""
        return gang.ready + len(gang.pipelined) < gang.min_member

    def gang_order(self, gang: GangState) -> bool:
        """Put gangs that do not run yet before those that could only grow."""
        return gang.ready + len(gang.empty) >= gang.min_member

    def gang_order_words(self, ahead: GangState, behind: GangState) -> str:
        """Say who could start and who only grow."""
        return "it has yet to start, this one could only grow"

    def preemptable(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> Sequence[VictimCandidate]:
        """Allow all: whoever chooses takes surplus members or whole gangs, nothing between."""
        return candidates

    reclaimable = preemptable

    def _missing_role(self, gang: GangState) -> Problem | None:
        if not gang.role_minima:
            return None
        placed = {pod.uid for pod, _ in gang.placed}
        coming = Counter(pod.role for pod in self._coming(gang) if pod.uid not in placed)
        present = gang.ready_by_role + coming
        for role, least in sorted(gang.role_minima.items()):
            if present[role] < least:
                message = f"has {present[role]} of at least {least} members of role {role!r}"
                return Problem(Reason.NOT_ENOUGH_ROLES, message)
        return None


def _lacking(gang: GangState, others: Sequence[Pod]) -> int:
    """Count the members missing for the minimum when *others* count beside the ready ones."""
    lacking = gang.min_member - gang.ready - len(others)
    if gang.role_minima:
        have = gang.ready_by_role + Counter(pod.role for pod in others)
        lacking = max(lacking, (Counter(gang.role_minima) - have).total())
    return max(0, lacking)


def missing_members(present: int, least: int, gated: int, kept: str = "") -> Problem:
    """Say that a gang has fewer than *least* members, or that gates hold them back."""
    if gated and present + gated >= least:
        message = f"{present} of at least {least} members may start; {gated} have scheduling gates"
        return Problem(Reason.GATED, message)
    return Problem(Reason.NOT_ENOUGH_MEMBERS, f"has {present} of at least {least} members{kept}")


class Priority(Plugin):
    """Orders gangs by the priority of their PodGroup, members by their own."""

    known = ()

    def gang_order(self, gang: GangState) -> int:
        """Put higher priority first."""
        return -gang.gang.priority

    def gang_order_words(self, ahead: GangState, behind: GangState) -> str:
        """Name both priorities."""
        return f"it has priority {ahead.gang.priority}, this one {behind.gang.priority}"

    def task_order(self, pod: Pod) -> int:
        """Put higher priority first."""
        return -pod.rank

    def gang_starving(self, gang: GangState) -> bool:
        """Ask whether any member is without a node."""
        return gang.ready + len(gang.pipelined) < len(gang.gang.pods)

    def preemptable(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow gangs of strictly lower priority, and in one gang members of lower priority."""
        return [
            candidate
            for candidate in candidates
            if (
                candidate.pod.rank < claim.pod.rank
                if candidate.gang is claim.gang
                else candidate.gang.gang.priority < claim.gang.gang.priority
            )
        ]

    def protects(self, action: str, claim: Preemptor, gang: GangState) -> bool:
        """Spare whoever is at least as important as the claimant."""
        return action == "preempt" and gang.gang.priority >= claim.gang.gang.priority


_KEYS = ("volcano.sh/sla-waiting-time", "sla-waiting-time")


class Sla(Plugin):
    """Reads `sla-waiting-time` from the PodGroup's annotations, else from its arguments."""

    known = ("sla-waiting-time",)

    def configure(self) -> None:
        """Read the waiting time of gangs that state none."""
        self._usual = self.arguments.seconds("sla-waiting-time")

    def gang_order(self, gang: GangState) -> float:
        """Put the nearest deadline first, gangs without one last."""
        patience = self._patience(gang)
        return gang.created + patience if patience is not None else inf

    def gang_order_words(self, ahead: GangState, behind: GangState) -> str:
        """Say by how much its waiting time ends earlier."""
        earlier = self.gang_order(behind) - self.gang_order(ahead)
        if earlier == inf:
            return "its waiting time ends, this one has none"
        return f"its waiting time ends {earlier:.0f} s earlier"

    def enqueueable(self, gang: GangState) -> Vote:
        """Permit who has waited long enough; have no opinion on the others."""
        patience = self._patience(gang)
        if patience is None or self.session.snapshot.now - gang.created < patience:
            return Vote.ABSTAIN
        return Vote.PERMIT

    gang_pipelined = enqueueable

    def _patience(self, gang: GangState) -> float | None:
        annotations = gang.gang.group.annotations
        written = next((annotations[key] for key in _KEYS if key in annotations), None)
        length = seconds(written) if written is not None else None
        return length if length else self._usual


class Pdb(Plugin):
    """Allows as many victims as the budgets that select them have left."""

    known = ()

    def open(self, session: View) -> None:
        """Look at the budgets by the labels they want: most pods have none."""
        super().open(session)
        self._budgets = budgets_of(session.snapshot)

    def preemptable(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
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
        for departure in self.session.capacity.departures:
            for number in self._budgets_of(departure.pod):
                self._take(left, number)
        return left

    def _take(self, left: dict[int, int], number: int) -> None:
        left[number] = left.get(number, self._budgets[number].allowed) - 1

    def _budgets_of(self, pod: Pod) -> Sequence[int]:
        return self._budgets.covering(pod)


class Conformance(Plugin):
    """Spares system-critical pods, kube-system, and namespaces that were exempted."""

    known = ()

    def preemptable(
        self, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow everybody else."""
        return [candidate for candidate in candidates if not candidate.pod.is_exempt]

    reclaimable = preemptable

"""gang: a gang starts with its minimum or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from extender.model.pod import Pod, Status
from extender.model.reason import Problem, Reason
from extender.plan.plugin import Candidate, Claim, Plugin, Vote
from extender.plan.room.state import GangState


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

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
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

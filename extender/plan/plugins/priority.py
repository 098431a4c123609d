"""priority: the more important first, and only the less important have to leave."""

from __future__ import annotations

from collections.abc import Sequence

from extender.model.pod import Pod
from extender.plan.plugin import Candidate, Claim, Plugin
from extender.plan.room.state import GangState


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

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
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

    def protects(self, action: str, claim: Claim, gang: GangState) -> bool:
        """Spare whoever is at least as important as the claimant."""
        return action == "preempt" and gang.gang.priority >= claim.gang.gang.priority

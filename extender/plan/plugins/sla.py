"""sla: gangs with a waiting time go first, the nearest deadline before the others."""

from __future__ import annotations

from math import inf

from extender.plan.plugin import Plugin, Vote
from extender.plan.policy.arguments import seconds
from extender.plan.room.state import GangState

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

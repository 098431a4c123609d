"""conformance: what the cluster itself needs never has to leave."""

from __future__ import annotations

from collections.abc import Sequence

from extender.plan.plugin import Candidate, Claim, Plugin


class Conformance(Plugin):
    """Spares kube-system and system-critical pods."""

    known = ()

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Allow everybody else."""
        return [candidate for candidate in candidates if not candidate.pod.is_critical]

    reclaimable = preemptable

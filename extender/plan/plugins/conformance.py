"""conformance: what is exempt, as what the cluster itself needs, never has to leave."""

from __future__ import annotations

from collections.abc import Sequence

from extender.plan.plugin import Candidate, Claim, Plugin


class Conformance(Plugin):
    """Spares system-critical pods, kube-system, and namespaces that were exempted."""

    known = ()

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Allow everybody else."""
        return [candidate for candidate in candidates if not candidate.pod.is_exempt]

    reclaimable = preemptable

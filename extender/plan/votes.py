"""Joining the plugins' votes, tier by tier, as kube-batch's and Volcano's users know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from extender.model.reason import Problem, Reason
from extender.plan.plugin import Candidate, Claim, Vote
from extender.plan.room.state import GangState


def protectors(votes: Sequence[Sequence[Any]]) -> list[Any]:
    """Collect who can say cheaply that a whole group is exempt, in the tier that decides."""
    deciding = next((tier for tier in votes if tier), [])
    return [vote.__self__.protects for vote in deciding if hasattr(vote.__self__, "protects")]


def settle(
    tiers: Iterable[Iterable[Callable[[GangState], Vote | Problem]]], gang: GangState
) -> Problem | None:
    """Let the highest tier with an opinion decide: a rejection wins, nobody's opinion is a yes."""
    for tier in tiers:
        permitted = False
        for ask in tier:
            answer = ask(gang)
            if isinstance(answer, Problem):
                return answer
            if answer is Vote.REJECT:
                return Problem(Reason.NOT_ENQUEUED, "a plugin of the policy refuses it for now")
            permitted = permitted or answer is Vote.PERMIT
        if permitted:
            return None
    return None


def join(
    tier: Iterable[Callable[[Claim, Sequence[Candidate]], Iterable[Candidate] | None]],
    claim: Claim,
    candidates: Sequence[Candidate],
    *,
    final: bool,
) -> tuple[bool, list[Candidate]]:
    """Join the votes of one tier: an empty one ends it, the others intersect."""
    left: list[Candidate] = []
    voted = False
    for ask in tier:
        answer = ask(claim, candidates)
        if answer is None:
            continue
        allowed = list(answer)
        # Volcano takes an intersection that became empty for no vote at all.
        if left or (voted and final):
            named = {one.pod.uid for one in allowed}
            left = [one for one in left if one.pod.uid in named]
        else:
            left = allowed
        voted = True
        if not allowed:
            return True, []
    return voted, left

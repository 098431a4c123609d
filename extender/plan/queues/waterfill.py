"""Dividing one resource among queues by weight, in whole units.

Water-filling: raise one level for all; a queue takes its weight times the level, but never less
than its floor and never more than its ceiling. What somebody cannot use is thereby split among
the others, by weight again. Exact: levels are compared as fractions of whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One queue's claim on one resource."""

    name: str
    weight: int
    #: It gets this much in any case.
    floor: int
    #: It gets no more than this.
    ceiling: int


def divide(capacity: int, claims: Sequence[Claim]) -> dict[str, int]:
    """Split *capacity*; nothing stays idle while somebody with a weight is below its ceiling."""
    fixed = {claim.name: min(claim.floor, claim.ceiling) for claim in claims if claim.weight <= 0}
    open_claims = [claim for claim in claims if claim.weight > 0]
    while open_claims:
        rest = capacity - sum(fixed.values())
        weights = sum(claim.weight for claim in open_claims)
        settled = _beyond_limits(open_claims, max(0, rest), weights)
        if not settled:
            fixed.update(_split(open_claims, max(0, rest), weights))
            break
        fixed.update(settled)
        open_claims = [claim for claim in open_claims if claim.name not in settled]
    return fixed


def _beyond_limits(claims: Sequence[Claim], rest: int, weights: int) -> dict[str, int]:
    """Fix the claims that the level drives beyond a limit.

    Only one side at a time: if the floors add more than the ceilings free, the level will fall
    and a ceiling reached now may not be reached then; and the other way round.
    """
    low = {
        claim.name: min(claim.floor, claim.ceiling)
        for claim in claims
        if rest * claim.weight < min(claim.floor, claim.ceiling) * weights
    }
    high = {
        claim.name: claim.ceiling
        for claim in claims
        if claim.name not in low and rest * claim.weight > claim.ceiling * weights
    }
    by_name = {claim.name: claim for claim in claims}
    raised = sum(amount * weights - rest * by_name[name].weight for name, amount in low.items())
    freed = sum(rest * by_name[name].weight - amount * weights for name, amount in high.items())
    if raised == freed:
        return low | high
    return low if raised > freed else high


def _split(claims: Sequence[Claim], rest: int, weights: int) -> dict[str, int]:
    """Split exactly by weight; units that do not divide go to the largest remainders."""
    shares = {claim.name: divmod(rest * claim.weight, weights) for claim in claims}
    given = {name: whole for name, (whole, _) in shares.items()}
    spare = rest - sum(given.values())
    for name in sorted(shares, key=lambda name: (-shares[name][1], name))[:spare]:
        given[name] += 1
    return given

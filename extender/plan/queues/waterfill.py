"""Dividing one resource among queues by weight, in whole units.

Water-filling: raise one level for all; a queue takes its weight times the level, but never less
than its floor and never more than its ceiling. What somebody cannot use is thereby split among
the others, by weight again. Exact: levels are compared as fractions of whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """One queue, and between which bounds its part of one resource lies."""

    name: str
    weight: int
    #: It gets this much in any case.
    floor: int
    #: It gets no more than this.
    ceiling: int

    @property
    def least(self) -> int:
        """Give its floor, which never lifts it above its ceiling."""
        return min(self.floor, self.ceiling)


def divide(capacity: int, queues: Sequence[Bounds]) -> dict[str, int]:
    """Split *capacity*; nothing stays idle while somebody with a weight is below its ceiling."""
    fixed = {queue.name: queue.least for queue in queues if queue.weight <= 0}
    unsettled = [queue for queue in queues if queue.weight > 0]
    while unsettled:
        rest = capacity - sum(fixed.values())
        weights = sum(queue.weight for queue in unsettled)
        settled = _beyond_limits(unsettled, max(0, rest), weights)
        if not settled:
            fixed.update(_split(unsettled, max(0, rest), weights))
            break
        fixed.update(settled)
        unsettled = [queue for queue in unsettled if queue.name not in settled]
    return fixed


def _beyond_limits(queues: Sequence[Bounds], rest: int, weights: int) -> dict[str, int]:
    """Fix the queues that the level drives beyond a limit.

    Only one side at a time: if the floors add more than the ceilings free, the level will fall
    and a ceiling reached now may not be reached then; and the other way round.
    """
    low = [queue for queue in queues if rest * queue.weight < queue.least * weights]
    high = [queue for queue in queues if rest * queue.weight > queue.ceiling * weights]
    raised = sum(queue.least * weights - rest * queue.weight for queue in low)
    freed = sum(rest * queue.weight - queue.ceiling * weights for queue in high)
    floors = {queue.name: queue.least for queue in low}
    ceilings = {queue.name: queue.ceiling for queue in high}
    if raised == freed:
        return floors | ceilings
    return floors if raised > freed else ceilings


def _split(queues: Sequence[Bounds], rest: int, weights: int) -> dict[str, int]:
    """Split exactly by weight; units that do not divide go to the largest remainders."""
    shares = {queue.name: divmod(rest * queue.weight, weights) for queue in queues}
    given = {name: whole for name, (whole, _) in shares.items()}
    spare = rest - sum(given.values())
    for name in sorted(shares, key=lambda name: (-shares[name][1], name))[:spare]:
        given[name] += 1
    return given

"""What queues deserve, computed as Volcano does: in floats, round by round.

Kept apart because it is only for `compatibility: volcano`: it converges instead of ending, and
its results are compared without tolerance in some places, so the last digits matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from extender.model.resources import CPU, MEMORY, PODS
from extender.plan.arithmetic import VOLCANOS, WHOLE_UNITS, Vector

#: Below this, in its own units, Volcano takes an amount for nothing.
_EMPTY = VOLCANOS.tolerance


@dataclass(frozen=True, slots=True)
class Wants:
    """What one queue wants of the whole cluster, and between which bounds it gets it."""

    weight: int
    requested: Vector
    ceiling: Vector
    guarantee: Vector


def divide(total: Vector, queues: Mapping[str, Wants]) -> dict[str, Vector]:
    """Hand out what remains by weight until nothing changes."""
    raw = {
        name: Wants(wants.weight, _raw(wants.requested), _raw(wants.ceiling), _raw(wants.guarantee))
        for name, wants in queues.items()
    }
    deserved: dict[str, dict[str, float]] = {name: {CPU: 0.0, MEMORY: 0.0} for name in queues}
    remaining = {CPU: 0.0, MEMORY: 0.0} | _raw(total)
    met: set[str] = set()
    while weights := sum(wants.weight for name, wants in raw.items() if name not in met):
        before = remaining
        # Added up apart, as Volcano does: a single sum would round otherwise.
        increase: dict[str, float] = defaultdict(float)
        decrease: dict[str, float] = defaultdict(float)
        for name, wants in raw.items():
            if name in met:
                continue
            old = deserved[name]
            new = deserved[name] = _raise(old, before, wants, wants.weight / weights)
            if _within(wants.requested, new) or new == old:
                met.add(name)
            for each in {*old, *new}:
                change = new.get(each, 0.0) - old.get(each, 0.0)
                (increase if change > 0 else decrease)[each] += abs(change)
        remaining = {
            name: max(0.0, amount + decrease[name] - increase[name])
            for name, amount in before.items()
        }
        if remaining == before or _is_empty(remaining):
            break
    return {name: _natural(vector) for name, vector in deserved.items()}


def _raise(
    old: Mapping[str, float], remaining: Mapping[str, float], wants: Wants, part: float
) -> dict[str, float]:
    new = dict(old)
    for name, amount in remaining.items():
        new[name] = new.get(name, 0.0) + amount * part
    for name, amount in new.items():
        ceiling = wants.ceiling.get(name, 0.0 if name in (CPU, MEMORY) else amount)
        new[name] = min(amount, ceiling, wants.requested.get(name, 0.0))
    for name, amount in wants.guarantee.items():
        new[name] = max(new.get(name, 0.0), amount)
    return new


def _within(left: Vector, right: Vector) -> bool:
    return all(
        amount < right.get(name, 0.0) or abs(amount - right.get(name, 0.0)) < _EMPTY
        for name, amount in left.items()
    )


def _is_empty(vector: Vector) -> bool:
    return all(amount < _EMPTY or name == PODS for name, amount in vector.items())


def _raw(vector: Vector) -> dict[str, float]:
    """Count in Volcano's units."""
    return {n: float(amount) * (1 if n in WHOLE_UNITS else 1000) for n, amount in vector.items()}


def _natural(vector: Vector) -> dict[str, float]:
    return {n: amount / (1 if n in WHOLE_UNITS else 1000) for n, amount in vector.items()}

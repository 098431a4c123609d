"""Comparing resource vectors: exactly, or with Volcano's tolerance.

A name that is absent counts as zero. Volcano's vectors always have cpu and memory and count
`pods` among the rest; ours leave `pods` out of everything that is about shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from extender.model.resources import CPU, MEMORY, PODS

#: Whole numbers, except where Volcano's way is asked for.
Vector: TypeAlias = Mapping[str, float]

#: Volcano counts everything but these three in thousandths.
WHOLE_UNITS = frozenset({CPU, MEMORY, PODS})


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The comparisons the plugins judge by."""

    #: The difference, in its own units, below which two amounts are the same.
    tolerance: float
    #: Whether `pods` is no dimension of shares.
    skips_pods: bool

    def close(self, name: str) -> float:
        """Give the difference below which two amounts of *name* are the same."""
        return self.tolerance if name in WHOLE_UNITS else self.tolerance / 1000

    def names(self, vector: Vector) -> list[str]:
        """Name the dimensions of *vector* that take part in shares."""
        return [
            name
            for name, amount in vector.items()
            if amount > 0 and amount >= self.close(name) and self.counts(name)
        ]

    def counts(self, name: str) -> bool:
        """Ask whether *name* is a dimension of shares."""
        return not (self.skips_pods and name == PODS)

    def share(self, allocated: Vector, whole: Vector) -> float:
        """Give the dominant share: the largest part that *allocated* has of any resource."""
        largest = 0.0
        for name, amount in whole.items():
            part = allocated.get(name, 0)
            if part > 0 and amount > 0 and (name != PODS or not self.skips_pods):
                share = part / amount
                if share > largest and amount >= self.close(name):
                    largest = share
        return largest

    def within(self, left: Vector, right: Vector) -> bool:
        """Ask whether *left* is at most *right* in every dimension."""
        for name, amount in left.items():
            limit = right.get(name, 0)
            if amount > limit and amount - limit >= self.close(name) and self.counts(name):
                return False
        return True

    def is_empty(self, vector: Vector) -> bool:
        """Ask whether nothing but pods is asked for."""
        return set(self.names(vector)) <= {PODS}


EXACT = Arithmetic(tolerance=0.0, skips_pods=True)
VOLCANOS = Arithmetic(tolerance=0.1, skips_pods=False)


def excess(left: Vector, right: Vector, asked: Vector) -> list[str]:
    """Name the dimensions of *asked* in which *left* is more than *right*; pods never count."""
    return [
        name
        for name, amount in asked.items()
        if amount > 0 and name != PODS and left.get(name, 0) > right.get(name, 0)
    ]


def within_somewhere(maths: Arithmetic, left: Vector, right: Vector, asked: Vector) -> bool:
    """Ask whether *left* is at most *right* in some dimension of *asked* that either has."""
    for name, amount in asked.items():
        have, limit, close = left.get(name, 0), right.get(name, 0), maths.close(name)
        if amount <= 0 or name == PODS or max(have, limit) <= 0 or max(have, limit) < close:
            continue
        if have <= limit or have - limit < close:
            return True
    return False


def exceeds_somewhere(maths: Arithmetic, left: Vector, right: Vector, asked: Vector) -> bool:
    """Ask whether *left* is more than *right* in a dimension of *asked* that *right* names."""
    for name, amount in asked.items():
        if amount <= 0 or name == PODS or name not in right:
            continue
        limit = right[name]
        if name in (CPU, MEMORY) and (limit <= 0 or limit < maths.close(name)):
            continue
        if left.get(name, 0) > limit:
            return True
    return False

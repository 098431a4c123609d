"""Amounts of cpu, memory and all other resources, exact and immutable.

cpu is counted in thousandths, every other resource in whole units (bytes, devices, pods).
`pods` is a resource like any other here. The policy decides whether it counts in shares.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

from extender.errors import InvalidQuantity

#: Larger amounts are cut to this, so that sums over all nodes stay within 64 bits.
LARGEST = 2**50
_FORM = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|([KMGTPE]i|[numkMGTPE])?)"
)
_MOST_DIGITS = 64
_BINARY = {
    suffix: Fraction(1024**power)
    for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
}
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FACTOR = _BINARY | {suffix: Fraction(10) ** power for suffix, power in _POWERS.items()}


# Typed, because 1.0 is a quantity and True, which is equal to it, is not.
@lru_cache(maxsize=4096, typed=True)
def parse_quantity(text: str | int | float) -> Fraction:
    """Parse a quantity exactly."""
    try:
        written = str(text)
    except ValueError as error:
        raise InvalidQuantity("a number of thousands of digits") from error
    form = _FORM.fullmatch(written) if len(written) <= _MOST_DIGITS else None
    if form is None or isinstance(text, bool):
        raise InvalidQuantity(text)
    digits, exponent, suffix = form.groups()
    if exponent:
        return Fraction(digits) * Fraction(10) ** int(exponent)
    return Fraction(digits) * _FACTOR[suffix] if suffix else Fraction(digits)


def parse_whole(text: str | int | float) -> int:
    """Parse a quantity in whole units, rounded up."""
    return _within_limits(ceil(parse_quantity(text)))


def parse_milli(text: str | int | float) -> int:
    """Parse a quantity in thousandths, rounded up."""
    return _within_limits(ceil(parse_quantity(text) * 1000))


def write_milli(amount: int) -> str:
    """Format thousandths: `1500` becomes `1500m`, `2000` becomes `2`."""
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def write_bytes(amount: int) -> str:
    """Format bytes with the largest binary suffix that keeps the number whole."""
    for suffix, factor in reversed(_BINARY.items()):
        if amount and amount % factor == 0:
            return f"{amount // int(factor)}{suffix}"
    return str(amount)


def _within_limits(amount: int) -> int:
    return max(-LARGEST, min(LARGEST, amount))


CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
#: ResourceQuotas have two more names for cpu.
_IN_MILLI = (CPU, "requests.cpu", "limits.cpu")
_IN_BYTES = (MEMORY, "ephemeral-storage", "storage")


class Resources(Mapping[str, int]):
    """A frozen sparse vector; a name that is absent counts as zero."""

    __slots__ = ("_amounts", "_hash")

    def __init__(self, amounts: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        self._amounts: dict[str, int] = dict(amounts)
        self._hash: int | None = None

    @classmethod
    def parse(cls, quantities: Mapping[str, Any]) -> Resources:
        """Parse a Kubernetes resource list such as `{"cpu": "500m", "memory": "1Gi"}`."""
        return cls(
            {
                name: parse_milli(text) if name in _IN_MILLI else parse_whole(text)
                for name, text in quantities.items()
            }
        )

    def write(self) -> dict[str, str]:
        """Format the amounts as a Kubernetes resource list."""
        return {name: write_amount(name, amount) for name, amount in self._amounts.items()}

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def items(self) -> ItemsView[str, int]:
        """Return the pairs; the view of `dict` is several times faster than that of `Mapping`."""
        return self._amounts.items()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the amount of *name*, else *default*."""
        return self._amounts.get(name, default)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._amounts.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._amounts == other._amounts

    def __add__(self, other: Resources) -> Resources:
        total = dict(self._amounts)
        for name, amount in other._amounts.items():
            total[name] = total.get(name, 0) + amount
        return Resources(total)

    def __sub__(self, other: Resources) -> Resources:
        rest = dict(self._amounts)
        for name, amount in other._amounts.items():
            rest[name] = rest.get(name, 0) - amount
        return Resources(rest)

    def __neg__(self) -> Resources:
        return Resources({name: -amount for name, amount in self._amounts.items()})

    def __mul__(self, times: int) -> Resources:
        return Resources({name: amount * times for name, amount in self._amounts.items()})

    def add_to(self, total: dict[str, int]) -> None:
        """Add every amount to *total* in place; faster than `+` for long sums."""
        for name, amount in self._amounts.items():
            total[name] = total.get(name, 0) + amount

    def amount(self, name: str) -> int:
        """Return the amount of *name*, zero when absent."""
        return self._amounts.get(name, 0)

    def at_least(self, floor: Resources) -> Resources:
        """Return these amounts, raised to those of *floor* where they are lower."""
        raised = dict(self._amounts)
        for name, amount in floor._amounts.items():
            raised[name] = max(raised.get(name, 0), amount)
        return Resources(raised)

    def at_most(self, ceiling: Resources) -> Resources:
        """Return these amounts, lowered to those that *ceiling* names; the others stay."""
        return Resources(
            {
                name: min(amount, ceiling._amounts.get(name, amount))
                for name, amount in self._amounts.items()
            }
        )

    def beyond(self, other: Resources) -> Resources:
        """Return what exceeds *other*, never below zero."""
        return Resources(
            {
                name: max(0, amount - other._amounts.get(name, 0))
                for name, amount in self._amounts.items()
            }
        )

    def without(self, *names: str) -> Resources:
        """Return the amounts without *names*."""
        return Resources({name: a for name, a in self._amounts.items() if name not in names})

    def positive(self) -> Resources:
        """Return the amounts that are above zero."""
        return Resources({name: amount for name, amount in self._amounts.items() if amount > 0})

    def fits_in(self, capacity: Resources) -> bool:
        """Return whether no amount exceeds that of *capacity*."""
        return all(amount <= capacity.amount(name) for name, amount in self._amounts.items())

    def __repr__(self) -> str:
        return f"Resources({self._amounts!r})"


NOTHING = Resources()


def total(amounts: Iterable[Resources]) -> Resources:
    """Return the sum of *amounts*; `NOTHING` itself when there are none."""
    added: dict[str, int] = {}
    for each in amounts:
        each.add_to(added)
    return Resources(added) if added else NOTHING


def write_amount(name: str, amount: int) -> str:
    """Format an amount as Kubernetes does: `cpu` 1500 is `1500m`, `memory` 2**30 is `1Gi`."""
    kind = name.removeprefix("requests.").removeprefix("limits.")
    if kind == CPU:
        return write_milli(amount)
    if kind in _IN_BYTES or kind.startswith("hugepages-"):
        return write_bytes(amount)
    return str(amount)

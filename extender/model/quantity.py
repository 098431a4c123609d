"""Kubernetes quantities, read exactly and written as kubectl would.

Reading is strict, because a guess about an amount is a guess about somebody's job: surrounding
blanks, unknown suffixes, several dots and absurd exponents are errors. Fractions of the unit
asked for round up, as the API server does; amounts saturate at `LARGEST`, which no cluster has.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

from extender.errors import BadQuantity

#: Amounts beyond this are cut to it, so that sums over all nodes stay within 64 bits.
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


# By type too: 1.0 is an amount, and true, which is equal to it, is none.
@lru_cache(maxsize=4096, typed=True)
def parse(text: str | int | float) -> Fraction:
    """Read a quantity exactly."""
    try:
        written = str(text)
    except ValueError as error:
        raise BadQuantity("a number of thousands of digits") from error
    form = _FORM.fullmatch(written) if len(written) <= _MOST_DIGITS else None
    if form is None or isinstance(text, bool):
        raise BadQuantity(text)
    digits, exponent, suffix = form.groups()
    if exponent:
        return Fraction(digits) * Fraction(10) ** int(exponent)
    return Fraction(digits) * _FACTOR[suffix] if suffix else Fraction(digits)


def whole(text: str | int | float) -> int:
    """Read a quantity in whole units, rounded up."""
    return _within_limits(ceil(parse(text)))


def milli(text: str | int | float) -> int:
    """Read a quantity in thousandths, rounded up."""
    return _within_limits(ceil(parse(text) * 1000))


def write_milli(amount: int) -> str:
    """Write thousandths: `1500` becomes `1500m`, `2000` becomes `2`."""
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def write_bytes(amount: int) -> str:
    """Write bytes with the largest binary suffix that keeps the number whole."""
    for suffix, factor in reversed(_BINARY.items()):
        if amount and amount % factor == 0:
            return f"{amount // int(factor)}{suffix}"
    return str(amount)


def _within_limits(amount: int) -> int:
    return max(-LARGEST, min(LARGEST, amount))

"""Quantities: an exact number, or a refusal with one sentence, the same each time."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import ceil
from random import Random

from extender.errors import InvalidQuantity
from extender.model.resources import LARGEST, Resources, parse_quantity, write_amount
from tests.nightly.fuzz.edge import Edge, must, must_be_sentence

_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_REAL = (
    "1", "500m", "1.5Gi", "3e6", "0", "-1", "+2", ".5", "128974848", "1E3", "1e-3", "12E", "5.",
)  # fmt: skip
_NAMES = ("cpu", "memory", "pods", "example.com/card")


class Quantities(Edge):
    """Input: a quantity, which must be read as Kubernetes reads it."""

    name = "quantities"
    count = 6000
    suffix = ".txt"
    longest = 6000
    words = tuple(
        each.encode()
        for each in (*_DECIMAL, *_BINARY, "e", "E", ".", "+", "-", "_", "\u0663", " ", "e99", "inf")
    )

    def real(self) -> list[bytes]:
        return [each.encode() for each in _REAL]

    def made(self, rng: Random) -> bytes:
        digits = "".join(rng.choices("0123456789", k=rng.choice((0, 1, 3, 17, 40, 70, 5000))))
        sign, dot = rng.choice(("", "", "+", "-", "--")), rng.choice(("", "", ".", ".5", ".."))
        ends = ("", *_DECIMAL, *_BINARY, "e3", "E-3", "e", "e9999", "Kii", "K", "ki", "\n", " ")
        return f"{sign}{digits}{dot}{rng.choice(ends)}".encode()

    def judge(self, data: bytes) -> None:
        text = data.decode(errors="surrogateescape")
        self._judge(text)
        try:
            number = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(number, int | float) and not isinstance(number, bool):
            self._judge(number)

    def _judge(self, text: str | int | float) -> None:
        try:
            read = parse_quantity(text)
        except InvalidQuantity as error:
            must_be_sentence(str(error), "the refusal")
            must(_is_refused(text), "a refused quantity is accepted the second time")
            return
        must(read == _exact(str(text)), "another amount is read")
        for name in _NAMES:
            amount = Resources.parse({name: text})[name]
            must(isinstance(amount, int), "an amount is no integer")
            exact = ceil(read * 1000 if name == "cpu" else read)
            bounds = -LARGEST, LARGEST
            must(amount == max(bounds[0], min(bounds[1], exact)), "an amount is not what was read")
            again = Resources.parse({name: write_amount(name, amount)})[name]
            must(again == amount, "a written amount is read as another")
        parse_quantity(float(1))
        must(_is_refused(True), "true is read as an amount")


def _is_refused(text: str | int | float) -> bool:
    try:
        parse_quantity(text)
    except InvalidQuantity:
        return True
    return False


def _exact(text: str) -> Fraction | None:
    for suffix, power in (*_BINARY.items(), *_DECIMAL.items()):
        number = text.removesuffix(suffix)
        if number != text:
            factor = Fraction(1024) ** power if suffix in _BINARY else Fraction(10) ** power
            return Fraction(Decimal(number)) * factor
    try:
        return Fraction(Decimal(text))
    except InvalidOperation:
        return None

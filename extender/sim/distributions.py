"""Numbers, amounts and times as people write them in a scenario, and those that are drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import exp, isfinite
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from extender.errors import InvalidInput
from extender.model.resources import Resources
from extender.text import as_text

_SPANS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")


class Clause(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="kebab"):
    """A part of a scenario, in which nothing may stand that nobody reads."""


class Distribution(Clause, kw_only=True):
    """A number that is drawn: evenly between two, one of several, or around a median."""

    between: tuple[str | float, str | float] | None = None
    one_of: Annotated[list[str | float], Meta(min_length=1, max_length=1000)] | None = None
    median: str | float | None = None
    spread: Annotated[float, Meta(ge=0, le=5)] = 1.0


def draw(what: str | float | Distribution, rng: Random, name: str) -> float:
    """Give the number, or draw one."""
    read_ = _number if name == "size" else seconds
    if not isinstance(what, Distribution):
        return read_(what, name)
    if sum(each is not None for each in (what.between, what.one_of, what.median)) != 1:
        raise InvalidInput(
            f"{name}: nothing, or too much, to draw from; give between, one-of or median"
        )
    if what.between is not None:
        low, high = (read_(each, name) for each in what.between)
        if low > high:
            raise InvalidInput(
                f"{name}: between {low:g} and {high:g} is nothing; give the smaller first"
            )
        return rng.uniform(low, high) if name != "size" else rng.randint(round(low), round(high))
    if what.one_of is not None:
        return read_(rng.choice(what.one_of), name)
    return read_(what.median, name) * exp(rng.gauss(0.0, what.spread))


def _number(given: Any, name: str) -> float:
    number = _finite(given)
    if number is not None:
        return number
    raise InvalidInput(f"{name}: {as_text(given)[:60]!r} is no number of pods; write it like 8")


def _finite(given: Any) -> float | None:
    """Give a number of 0 or more that computers can count to, None for anything else."""
    try:
        number = float(given) if isinstance(given, int | float) else -1.0
    except OverflowError:
        return None
    return number if isfinite(number) and number >= 0 else None


def seconds(written_: Any, name: str) -> float:
    """Read a span of time: a number of seconds, or `90s`, `5m`, `2h`, `1d`."""
    found = _SPAN.fullmatch(written_.strip()) if isinstance(written_, str) else None
    number = _finite(float(found[1]) * _SPANS[found[2] or "s"] if found else written_)
    if number is None:
        shown = as_text(written_)[:60]
        raise InvalidInput(f"{name}: {shown!r} is no time; write 90s, 5m, 2h or 1d")
    return number


def amounts(given: Mapping[str, str | int | float], **more: int) -> Resources:
    """Read a resource list."""
    found = Resources({**Resources.parse(given), **more})
    for name, amount in found.items():
        if amount < 0:
            raise InvalidInput(f"{name[:60]}: {given[name]} is less than nothing; give 0 or more")
    return found

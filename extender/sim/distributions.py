"""Numbers, amounts and durations as a scenario writes them, and random ones."""

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
    """A part of a scenario, which rejects unknown fields."""


class Distribution(Clause, kw_only=True):
    """A random number: uniform between two, one of several, or log-normal around a median."""

    between: tuple[str | float, str | float] | None = None
    one_of: Annotated[list[str | float], Meta(min_length=1, max_length=1000)] | None = None
    median: str | float | None = None
    spread: Annotated[float, Meta(ge=0, le=5)] = 1.0


def draw(what: str | float | Distribution, rng: Random, name: str) -> float:
    """Return the number, or draw one from the distribution."""
    parse = _number if name == "size" else seconds
    if not isinstance(what, Distribution):
        return parse(what, name)
    if sum(each is not None for each in (what.between, what.one_of, what.median)) != 1:
        raise InvalidInput(f"{name}: set exactly one of between, one-of and median")
    if what.between is not None:
        low, high = (parse(each, name) for each in what.between)
        if low > high:
            raise InvalidInput(
                f"{name}: between {low:g} and {high:g} is empty; write the smaller number first"
            )
        return rng.uniform(low, high) if name != "size" else rng.randint(round(low), round(high))
    if what.one_of is not None:
        return parse(rng.choice(what.one_of), name)
    return parse(what.median, name) * exp(rng.gauss(0.0, what.spread))


def _number(given: Any, name: str) -> float:
    number = _finite(given)
    if number is not None:
        return number
    raise InvalidInput(f"{name}: {as_text(given)[:60]!r} is not a number of pods; write it like 8")


def _finite(given: Any) -> float | None:
    """Return *given* as a finite number of at least 0, None for anything else."""
    try:
        number = float(given) if isinstance(given, int | float) else -1.0
    except OverflowError:
        return None
    return number if isfinite(number) and number >= 0 else None


def seconds(given: Any, name: str) -> float:
    """Parse a duration: a number of seconds, or `90s`, `5m`, `2h`, `1d`."""
    found = _SPAN.fullmatch(given.strip()) if isinstance(given, str) else None
    number = _finite(float(found[1]) * _SPANS[found[2] or "s"] if found else given)
    if number is None:
        shown = as_text(given)[:60]
        raise InvalidInput(f"{name}: {shown!r} is not a duration; write 90s, 5m, 2h or 1d")
    return number


def amounts(given: Mapping[str, str | int | float], **more: int) -> Resources:
    """Parse a resource list."""
    found = Resources({**Resources.parse(given), **more})
    for name, amount in found.items():
        if amount < 0:
            raise InvalidInput(f"{name[:60]}: {given[name]} is negative; write 0 or more")
    return found

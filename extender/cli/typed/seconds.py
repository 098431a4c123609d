"""Seconds as a flag: a number that a clock can count."""

from __future__ import annotations

import math
from typing import Any

import click


class Seconds(click.FloatRange):
    """A range of seconds; `nan` is a float too, but no time."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Give the number, or say what it should have been."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return float(number)

"""Polls a condition with a timeout and a helpful error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from .api import ApiError

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T],
    seconds: float,
    what: str,
    *,
    seeing: Callable[[], object] | None = None,
    every_s: float = 0.02,
) -> T:
    """Poll *condition* until it is true, and return its value.

    A false value, a failed `assert` and an API error all mean "not yet". On timeout the error
    shows the last of these, or what *seeing* returns.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = condition()
            if answer:
                return answer
            saw: object = answer
        except (AssertionError, ApiError) as not_yet:
            saw = str(not_yet)
        if time.monotonic() >= deadline:
            break
        time.sleep(every_s)
    if seeing is not None:
        saw = seeing()
    raise AssertionError(f"{what}: not within {seconds:g} s; last seen: {saw}")

"""Waiting for something to become true, with a deadline and a useful complaint."""

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
    """Ask *condition* until it holds and give what it returned.

    A false answer, a failed `assert` inside it and an API error all mean "not yet". When time is
    up the complaint shows the last of these, or what *seeing* returns then.
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

"""A loop whose time the test advances."""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Any, cast

from extender.sim.clock import VirtualClock


class ManualLoop:
    """Runs no coroutine, only callbacks at their time; none is ever cancelled."""

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def time(self) -> float:
        return self.clock.monotonic()

    def call_later(self, delay_s: float, callback: Callable[[], Any]) -> TimerHandle:
        self.clock.call_later(delay_s, callback)
        return cast(TimerHandle, object())

    def call_at(self, when: float, callback: Callable[[], Any]) -> TimerHandle:
        return self.call_later(when - self.time(), callback)

"""The timer of the barrier, kept by an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LoopTimer:
    """Calls back from the thread of *loop*; quietly does nothing once that is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back once after *delay_s*."""
        self.call_soon(lambda: self._later(delay_s, callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back once, as soon as the loop has time."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._loop.call_later(delay_s, callback)

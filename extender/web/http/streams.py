"""Who listens for news: few connections that stay, each for a while, told little and seldom.

What is told is only that there is news; whoever wants it asks for the page again, as anybody does.
So a listener costs some bytes a second, sees nothing that pages do not show, and whoever reads too
slowly misses words and no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

#: The newest are kept: the others come again, or ask for the page from time to time.
MOST = 32
#: A connection ends after this, whoever it is; browsers come back by themselves.
LIFE_S = 50.0
_LOOK_S = 1.0
#: While nothing is new they hear this often that we live.
_BEAT_S = 5.0
#: How a browser is told when to come back.
RETRY = b"retry: 1000\n\n"


class Listens(Protocol):
    """A connection that stays."""

    def tell(self, event: bytes) -> None:
        """Send an event, unless it still has some to read."""

    def hang_up(self) -> None:
        """End after what was written."""


class Streams:
    """Those of one port; everything happens on its loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pulse: Callable[[], bytes],
        *,
        life_s: float = LIFE_S,
        most: int = MOST,
    ) -> None:
        self._loop = loop
        self._pulse = pulse
        self.life_s = life_s
        self._most = most
        #: With the moment at which each ends, the first to end first.
        self._open: dict[Listens, float] = {}
        self._last = b""
        self._told_at = float("-inf")
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, listener: Listens) -> None:
        """Tell *listener* where we are, and from now on what is new."""
        self._open[listener] = self._loop.time() + self.life_s
        listener.tell(RETRY + self._event())
        while len(self._open) > self._most:
            self._end(next(iter(self._open)))
        if self._looking is None:
            self._looking = self._loop.call_later(_LOOK_S, self._look)

    def discard(self, listener: Listens) -> None:
        """Forget one that has left."""
        self._open.pop(listener, None)

    def close(self) -> None:
        """End them all."""
        for each in tuple(self._open):
            self._end(each)
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _end(self, listener: Listens) -> None:
        del self._open[listener]
        listener.hang_up()

    def _event(self) -> bytes:
        try:
            return self._pulse()
        except Exception:
            # Who hears nothing new asks for the page, and that says what is wrong.
            log.exception("pulse failed")
            return b": \n\n"

    def _look(self) -> None:
        now = self._loop.time()
        for each, until in tuple(self._open.items()):
            if until <= now:
                self._end(each)
        event = self._event() if self._open else self._last
        if event != self._last or now - self._told_at >= _BEAT_S:
            self._last, self._told_at = event, now
            for each in tuple(self._open):
                each.tell(event)
        self._looking = self._loop.call_later(_LOOK_S, self._look) if self._open else None

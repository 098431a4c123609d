"""The event loop, for those who live in other threads: a timer, and errands with an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from extender.errors import ShuttingDown

log = logging.getLogger(__name__)

#: How often somebody who waits for the loop looks whether it is still there.
_LOOK_S = 0.2
#: How soon a round that left something over is followed by the next.
_MORE_S = 0.005


class LoopTimer:
    """Calls back from the thread of *loop*; quietly does nothing once that is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back once after *delay_s*."""
        self.call_soon(partial(self._loop.call_later, delay_s, callback))

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back once, as soon as the loop has time."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


class Errands:
    """Has something done by the loop and waits for the answer; not for the loop's own thread."""

    def __init__(self, timer: LoopTimer) -> None:
        self._timer = timer
        self._is_over = False

    def __call__(self, step: Callable[[], bool]) -> bool:
        """Give what *step* gives, or raise what it raises."""
        answer: Future[bool] = Future()
        self._timer.call_soon(lambda: _do(step, answer))
        while not self._is_over:
            try:
                return answer.result(_LOOK_S)
            except TimeoutError:
                continue
        raise ShuttingDown("the event loop takes no more errands")

    def end(self) -> None:
        """Let nobody wait any longer: the loop is about to stop."""
        self._is_over = True


class Rounds:
    """Has something done again and again by the loop, sooner when there is more to do."""

    def __init__(self, timer: LoopTimer, step: Callable[[], bool], *, every_s: float) -> None:
        self._timer = timer
        #: True when it left something over.
        self._step = step
        self._every_s = every_s
        self._is_over = False

    def start(self) -> None:
        """Begin."""
        self._timer.call_later(self._every_s, self._go)

    def stop(self) -> None:
        """End."""
        self._is_over = True

    def _go(self) -> None:
        if self._is_over:
            return
        try:
            more = self._step()
        except Exception:
            # One bad round must not be the last.
            log.exception("a round failed")
            more = False
        self._timer.call_later(_MORE_S if more else self._every_s, self._go)


def _do(step: Callable[[], bool], answer: Future[bool]) -> None:
    try:
        answer.set_result(step())
    except Exception as error:
        answer.set_exception(error)

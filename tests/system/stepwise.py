"""Work in its own thread that stops at every checkpoint until the test continues it.

Two of them never run at once: `go_on` waits until the next checkpoint is reached.
So every interleaving of two threads is a list of steps, and can be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Abandoned(BaseException):
    """The story ended in the middle of the work."""


class Stepwise:
    """One piece of work, done from checkpoint to checkpoint."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._go = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._is_abandoned = False
        self.is_over = False
        #: The last checkpoint reached.
        self.at = ""
        self._thread = threading.Thread(target=self._run, name="stepwise", daemon=True)
        self._thread.start()

    def checkpoint(self, name: str) -> None:
        """Stop, if the calling thread is that of the work."""
        if threading.current_thread() is not self._thread:
            return
        self.at = name
        self._stands.release()
        self._wait()

    def go_on(self) -> bool:
        """Do the work up to the next checkpoint; False when it is done."""
        if self.is_over:
            return False
        self._go.release()
        self._stands.acquire()
        if self.is_over:
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return not self.is_over

    def finish(self) -> None:
        while self.go_on():
            pass

    def abandon(self) -> None:
        self._is_abandoned = True
        self.finish()

    def _wait(self) -> None:
        self._go.acquire()
        if self._is_abandoned:
            raise _Abandoned

    def _run(self) -> None:
        try:
            self._wait()
            self._work()
        except _Abandoned:
            pass
        except BaseException as error:
            self._error = error
        self.is_over = True
        self._stands.release()

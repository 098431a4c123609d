"""The thread that keeps the lease, from the start to the end."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from extender.leadership.succession import Succession

log = logging.getLogger(__name__)

#: After a step that stumbled.
AGAIN_S = 1.0
#: How long the end waits for a step under way.
_LAST_S = 5.0


class KeepsLease(Protocol):
    """Our own lease, or one that we follow."""

    def step(self) -> float:
        """Do what is due and give the seconds until the next step."""

    def release(self) -> None:
        """Give it back if it is ours."""


class Campaign:
    """Steps until told to stop."""

    def __init__(
        self, lease: KeepsLease, succession: Succession, *, again_s: float = AGAIN_S
    ) -> None:
        self._lease = lease
        self._succession = succession
        self._again_s = again_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def resign(self) -> None:
        """End the term, then give the lease back; waits for the API server, but not for ever."""
        self._succession.resign()
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=_LAST_S)
        # While a renewal is under way nobody could tell whose word is the last.
        if not self._thread.is_alive():
            self._lease.release()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                pause_s = self._lease.step()
            except Exception:
                # Without a next step the term ends by itself, and would never begin again.
                log.exception("lease step failed")
                pause_s = self._again_s
            self._stopping.wait(pause_s)

"""Asks the API server every few seconds whether it is there, because watches do not tell in time.

A watch on which nothing happens speaks once a minute. A stalled API server, or a line that swallows
everything, looks just like that; meanwhile we would answer from a mirror that grows old. So one
question goes out over a connection of the pool, and any answer will do, also "no" or "not ready".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from extender.cache.freshness import Freshness
from extender.errors import ApiError
from extender.kube.client import ApiClient
from extender.logs import event
from extender.ports import Clock

log = logging.getLogger(__name__)
#: How often we ask while there are answers.
EVERY_S = 3.0
#: How soon we ask again when there was none.
AGAIN_S = 1.0
#: How long we wait for an answer.
PATIENCE_S = 4.0
#: Open to everybody who is let in, never queued behind other requests, and no object is read.
PATH = "/readyz"


class HealthProbe:
    """Tells *freshness* of every answer; calls *on_return* after the API server had been mute."""

    def __init__(
        self,
        access: ApiClient,
        freshness: Freshness,
        clock: Clock,
        on_return: Callable[[], None],
        *,
        every_s: float = EVERY_S,
        again_s: float = AGAIN_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._access = access
        self._freshness = freshness
        self._clock = clock
        self._on_return = on_return
        self._every_s = every_s
        self._again_s = again_s
        self._patience_s = patience_s
        self._was_told = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._freshness.expect_probe(self._clock.monotonic())
        self._thread.start()

    def stop(self) -> None:
        """End; a question that is under way is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            try:
                self._ask()
                self._felt()
                pause_s = self._every_s
            except ApiError as error:
                self._missed(str(error))
                pause_s = self._again_s
            except Exception as error:
                # Our own mistake; without a pulse nothing is answered, so somebody will look.
                log.exception("pulse failed")
                self._missed(f"{type(error).__name__}: {error}")
                pause_s = self._every_s

    def _ask(self) -> None:
        self._access.response("GET", PATH, wait_s=self._patience_s)

    def _felt(self) -> None:
        mute_s = self._freshness.probe_answered(self._clock.monotonic())
        if mute_s:
            sentence = "API server answers again"
            event(log, logging.WARNING, sentence, silent_s=round(mute_s, 1))
            self._was_told = False
            self._on_return()

    def _missed(self, why: str) -> None:
        self._freshness.probe_failed(why)
        if self._was_told or not self._freshness.is_silent(self._clock.monotonic()):
            return
        self._was_told = True
        event(log, logging.ERROR, "API server does not answer; nothing is decided", why=why)

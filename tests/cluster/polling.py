"""Calls a function periodically during a block, as kubelets and kube-proxies poll."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from .api import ApiError


class Poller:
    """Calls *poll* every *every_s* seconds in a thread of its own, during a `with` block.

    Errors of the API server are ignored. Any other error ends the thread and fails the block.
    """

    def __init__(self, poll: Callable[[], None], every_s: float) -> None:
        self._poll = poll
        self._every_s = every_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)
        self._error: Exception | None = None

    @property
    def has_ended(self) -> bool:
        return self._ends.is_set()

    def pause(self) -> None:
        """Wait until the next poll, or the end of the block."""
        self._ends.wait(self._every_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._error is not None and error[:1] in ((), (None,)):
            raise self._error

    def _run(self) -> None:
        try:
            while not self._ends.wait(self._every_s):
                with suppress(ApiError):
                    self._poll()
        except Exception as error:
            self._error = error

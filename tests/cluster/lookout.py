"""Looks again and again while a block runs, as kubelets and kube-proxies do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from .api import ApiError


class Lookout:
    """Calls *look* every so often, in a thread of its own, from entering the block to leaving it.

    While the API server is away there is nothing to see. Any other error ends the looking, and the
    block fails with it: a test should not have to find out why nothing happens any more.
    """

    def __init__(self, look: Callable[[], None], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="lookout", daemon=True)
        self._error: Exception | None = None

    @property
    def is_over(self) -> bool:
        return self._ends.is_set()

    def pause(self) -> None:
        """Wait until it is time to look again, or all is over."""
        self._ends.wait(self._every_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._error is not None and error[:1] in ((), (None,)):
            raise self._error

    def _look_on(self) -> None:
        try:
            while not self._ends.wait(self._every_s):
                with suppress(ApiError):
                    self._look()
        except Exception as error:
            self._error = error

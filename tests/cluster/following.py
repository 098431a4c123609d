"""Follows one kind of object from outside: a list, then its watch, whatever happens between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from .api import Api, ApiError, Object, Watch

_AGAIN_S = 0.05


class Following:
    """Tells *hear* of every event and *look* of every list, in a thread of its own.

    A watch that ends goes on from where it ended, so a restart of the API server loses nothing;
    only when that past has been forgotten (compaction) is everything listed anew.
    """

    def __init__(
        self,
        api: Api,
        resource: str,
        namespace: str | None = None,
        *,
        hear: Callable[[str, Object], None],
        look: Callable[[Object], None],
        fields: str = "",
    ) -> None:
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._fields = fields
        self._hear = hear
        self._look = look
        self._version = ""
        self._watch: Watch | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name=f"follow {resource}", daemon=True)
        #: Why it follows no more, though nobody ended it.
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self._list()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        if self._watch is not None:
            self._watch.stop()
        self._thread.join(timeout=10)

    def _go_on(self) -> None:
        try:
            while not self._ends.is_set():
                try:
                    self._follow()
                except ApiError as error:
                    if error.status == 410:
                        self._version = ""
                    self._ends.wait(_AGAIN_S)
        except Exception as error:
            self.error = error
            raise

    def _follow(self) -> None:
        if not self._version:
            self._list()
        with self._api.watch(
            self._resource,
            self._namespace,
            fields=self._fields,
            resource_version=self._version,
        ) as self._watch:
            if self._ends.is_set():
                return
            for kind, thing in self._watch:
                if kind == "ERROR":
                    # Most often it is too old by now; what else it may be, a list mends.
                    self._version = ""
                    return
                self._hear(kind, thing)
                self._version = thing["metadata"]["resourceVersion"]

    def _list(self) -> None:
        listed = self._api.listing(self._resource, self._namespace, fields=self._fields)
        self._look(listed)
        self._version = listed["metadata"]["resourceVersion"]

"""Lists and watches one resource, independently of the extender."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from .api import Api, ApiError, Object, Watch

_AGAIN_S = 0.05


class ListWatch:
    """Calls *on_event* for every watch event and *on_list* for every list, in a thread of its own.

    A watch that ends is resumed where it ended, so a restart of the API server loses no event;
    everything is listed again only if the history was compacted.
    """

    def __init__(
        self,
        api: Api,
        resource: str,
        namespace: str | None = None,
        *,
        on_event: Callable[[str, Object], None],
        on_list: Callable[[Object], None],
        fields: str = "",
    ) -> None:
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._fields = fields
        self._on_event = on_event
        self._on_list = on_list
        self._version = ""
        self._watch: Watch | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow {resource}", daemon=True)
        #: The error that ended the thread.
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

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                try:
                    self._watch_once()
                except ApiError as error:
                    if error.status == 410:
                        self._version = ""
                    self._ends.wait(_AGAIN_S)
        except Exception as error:
            self.error = error
            raise

    def _watch_once(self) -> None:
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
                    # Usually the version is too old; a list corrects any other error too.
                    self._version = ""
                    return
                self._on_event(kind, thing)
                self._version = thing["metadata"]["resourceVersion"]

    def _list(self) -> None:
        listed = self._api.listing(self._resource, self._namespace, fields=self._fields)
        self._on_list(listed)
        self._version = listed["metadata"]["resourceVersion"]

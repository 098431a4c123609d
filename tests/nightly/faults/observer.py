"""An independent observer: it watches the API server itself, and records every change."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Self

from tests.cluster.api import Api, ApiError, Object
from tests.cluster.list_watch import ListWatch
from tests.cluster.polling import Poller
from tests.objects import POD_GROUPS, QUEUES

from .record import API_SERVER, Away, Back, Change, Record
from .watch_decoder import WatchDecoder

#: Interval and timeout of the probe of the API server.
_PROBE_S = 0.2
_PROBE_TIMEOUT_S = 1.0
_RESOURCES = {"nodes": "nodes", "queues": QUEUES, "podgroups": POD_GROUPS, "pods": "pods"}


class Observer:
    """Records all changes of pods, PodGroups, nodes and queues, during a `with` block.

    It survives restarts of the API server, and records when the API server does not answer.
    """

    def __init__(self, api: Api, record: Record, scheduler_name: str = "gang-scheduler") -> None:
        self._record = record
        self._probe_api = api.with_timeout(_PROBE_TIMEOUT_S)
        # Each resource has its own thread with its own state.
        self._sightings = {kind: WatchDecoder(scheduler_name) for kind in _RESOURCES}
        self._watches = [
            ListWatch(
                api,
                resource,
                on_event=partial(self._on_event, kind),
                on_list=partial(self._on_list, kind),
            )
            for kind, resource in _RESOURCES.items()
        ]
        self._poller = Poller(self._probe, _PROBE_S)
        self._is_away = False
        self._answered_at = record.now()
        self._running = ExitStack()

    def __enter__(self) -> Self:
        for watch in self._watches:
            self._running.enter_context(watch)
        self._running.enter_context(self._poller)
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(None, None, None)
        self._probe_api.close()
        broken = [each.error for each in self._watches if each.error is not None]
        if broken and error[0] is None:
            raise broken[0]

    def _on_event(self, kind: str, event: str, thing: Object) -> None:
        self._note(self._sightings[kind].see(kind, event, thing, self._record.now()))

    def _on_list(self, kind: str, listed: Object) -> None:
        self._note(self._sightings[kind].see_all(kind, listed, self._record.now()))

    def _note(self, changes: list[Change]) -> None:
        self._record.note(*changes)

    def _probe(self) -> None:
        try:
            self._probe_api.answers("/readyz")
        except ApiError:
            if not self._is_away:
                # In favour of the extender: since the last response.
                self._is_away = True
                self._record.note(Away(at=self._answered_at, who=API_SERVER))
            return
        self._answered_at = self._record.now()
        if self._is_away:
            self._is_away = False
            self._record.note(Back(at=self._answered_at, who=API_SERVER))

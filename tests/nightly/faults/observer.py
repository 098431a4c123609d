"""An outside witness: watches of its own straight at the API server, every moment in a record."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Self

from tests.cluster.api import Api, ApiError, Object
from tests.cluster.list_watch import ListWatch
from tests.cluster.polling import Poller
from tests.objects import POD_GROUPS, QUEUES

from .record import API_SERVER, Away, Back, Change, Record
from .sightings import Sightings

#: How often the API server is asked whether it is there, and how long it may take to say so.
_PULSE_S = 0.2
_SILENT_S = 1.0
_RESOURCES = {"nodes": "nodes", "queues": QUEUES, "podgroups": POD_GROUPS, "pods": "pods"}


class Observer:
    """Notes all that happens to pods, PodGroups, nodes and queues, for a `with` block.

    It survives restarts of the API server, and notes from when to when that answered nobody.
    """

    def __init__(self, api: Api, record: Record, scheduler_name: str = "gang-scheduler") -> None:
        self._record = record
        self._pulse_api = api.with_timeout(_SILENT_S)
        # Each kind is followed in a thread of its own, and what that remembers is its own.
        self._sightings = {kind: Sightings(scheduler_name) for kind in _RESOURCES}
        self._followings = [
            ListWatch(
                api,
                resource,
                on_event=partial(self._on_event, kind),
                on_list=partial(self._on_list, kind),
            )
            for kind, resource in _RESOURCES.items()
        ]
        self._pulse = Poller(self._feel, _PULSE_S)
        self._is_away = False
        self._answered_at = record.now()
        self._running = ExitStack()

    def __enter__(self) -> Self:
        for following in self._followings:
            self._running.enter_context(following)
        self._running.enter_context(self._pulse)
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(None, None, None)
        self._pulse_api.close()
        broken = [each.error for each in self._followings if each.error is not None]
        if broken and error[0] is None:
            raise broken[0]

    def _on_event(self, kind: str, event: str, thing: Object) -> None:
        self._note(self._sightings[kind].see(kind, event, thing, self._record.now()))

    def _on_list(self, kind: str, listed: Object) -> None:
        self._note(self._sightings[kind].see_all(kind, listed, self._record.now()))

    def _note(self, changes: list[Change]) -> None:
        self._record.note(*changes)

    def _feel(self) -> None:
        try:
            self._pulse_api.answers("/readyz")
        except ApiError:
            if not self._is_away:
                # In doubt for the accused: since it last answered.
                self._is_away = True
                self._record.note(Away(at=self._answered_at, who=API_SERVER))
            return
        self._answered_at = self._record.now()
        if self._is_away:
            self._is_away = False
            self._record.note(Back(at=self._answered_at, who=API_SERVER))

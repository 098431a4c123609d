"""The current findings, and their events.

Series, API, command and condition show a finding at once. The event waits for a moment, because
applying a tree of queues may write the child before its parent. It is repeated once an hour while
the finding stays, because the API server drops events after an hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeAlias

from extender.findings.finding import NAMESPACE, QUEUE, Finding
from extender.logs import RateLimitedLog, event
from extender.model.snapshot import Snapshot
from extender.ports import Clock, EventRecord, EventWriter, ObjectReference

log = logging.getLogger(__name__)
#: A finding that lasts so long gets an event.
SETTLE_S = 2.0
#: The event is repeated after this; the API server keeps events for an hour.
AGAIN_S = 3600.0
#: Limit of the error text.
_LONGEST = 300
#: Identifies a finding while its figures change.
_Key: TypeAlias = tuple[str, str, str]


class Findings:
    """Owned by the reporting thread; any thread may read the reference *current*."""

    def __init__(
        self,
        audit: Callable[[Snapshot], Sequence[Finding]],
        events: EventWriter,
        clock: Clock,
    ) -> None:
        self._audit = audit
        self._events = events
        self._clock = clock
        #: The current findings; None before the first audit.
        self.current: Sequence[Finding] | None = None
        self._by_queue: Mapping[str, Sequence[Finding]] = {}
        self._seen: Snapshot | None = None
        #: When the event of each is due next.
        self._due: dict[_Key, float] = {}
        self._limited_log = RateLimitedLog(log)

    def update(self, snapshot: Snapshot, now: float) -> None:
        """Audit a snapshot."""
        self._seen = snapshot
        try:
            found = self._audit(snapshot)
        except Exception as error:
            # Objects in the cluster must not stop the reporting about gangs.
            self._failed(error)
            return
        if found == self.current:
            return
        self.current = found
        by_queue: dict[str, list[Finding]] = {}
        for each in found:
            if each.kind == QUEUE:
                by_queue.setdefault(each.name, []).append(each)
        self._by_queue = by_queue
        self._due = {_key(each): self._due.get(_key(each), now + SETTLE_S) for each in found}

    def forget(self) -> None:
        """Drop the findings: without an audit while others lead, they may be fixed meanwhile."""
        self.current, self._by_queue, self._seen, self._due = None, {}, None, {}

    def _failed(self, error: Exception) -> None:
        if self.current is None:
            self.current = ()
        why = f"{type(error).__name__}: {error}"[:_LONGEST]
        self._limited_log.event(logging.ERROR, "findings cannot be computed", why=why)

    def about_queue(self, name: str) -> Sequence[Finding]:
        """Return the findings about one queue."""
        return self._by_queue.get(name, ())

    def write_due(self, now: float) -> float:
        """Write the events that are due; return when the next one is due."""
        for each in self.current or ():
            if self._due[_key(each)] <= now:
                self._due[_key(each)] = now + AGAIN_S
                self._announce(each)
        return min(self._due.values(), default=inf)

    def _announce(self, found: Finding) -> None:
        event(
            log,
            logging.WARNING,
            "misconfiguration found",
            kind=found.kind,
            name=found.name,
            reason=found.reason,
            why=found.message,
        )
        subject = self._subject(found)
        if subject is None or not subject.uid:
            return  # the object does not exist in the API server
        self._events.write(
            EventRecord(
                subject=subject,
                reason=found.reason,
                message=found.message,
                warning=True,
                at=self._clock.now(),
            )
        )

    def _subject(self, found: Finding) -> ObjectReference | None:
        if self._seen is None:
            return None
        if found.kind == QUEUE and found.name in self._seen.queues:
            return ObjectReference.of_queue(self._seen.queues[found.name])
        if found.kind == NAMESPACE and found.name in self._seen.namespaces:
            return ObjectReference.of_namespace(self._seen.namespaces[found.name])
        return None


def _key(found: Finding) -> _Key:
    return found.kind, found.name, found.reason

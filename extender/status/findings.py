"""What makes no sense in the cluster now, and when people were told.

A finding is shown at once where people ask: series, API, command, condition. The event waits for a
moment: whoever applies a family of queues at once writes the child before the parent. It is not
said again while the finding stays, but for once an hour: by then the API server has forgotten it.
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
#: A finding that lasts so long is told.
SETTLE_S = 2.0
#: And again when it still stands after so long; the API server keeps events for an hour.
AGAIN_S = 3600.0
#: Of what an error says.
_LONGEST = 300
#: What the same finding keeps while its figures change.
_Key: TypeAlias = tuple[str, str, str]


class Findings:
    """Belongs to the thread that reports; *current* is one reference that anybody may read."""

    def __init__(
        self,
        audit: Callable[[Snapshot], Sequence[Finding]],
        announcer: EventWriter,
        clock: Clock,
    ) -> None:
        self._audit = audit
        self._announcer = announcer
        self._clock = clock
        #: What makes no sense now; None before anybody looked.
        self.current: Sequence[Finding] | None = None
        self._by_queue: Mapping[str, Sequence[Finding]] = {}
        self._seen: Snapshot | None = None
        #: When each is to be told next.
        self._due: dict[_Key, float] = {}
        self._seldom = RateLimitedLog(log)

    def look(self, snapshot: Snapshot, now: float) -> None:
        """Take a snapshot in."""
        self._seen = snapshot
        try:
            found = self._audit(snapshot)
        except Exception as error:
            # What is written in the cluster must not stop whoever tells of gangs.
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
        """Forget what was found: while others lead, nobody looks, and it may have been mended."""
        self.current, self._by_queue, self._seen, self._due = None, {}, None, {}

    def _failed(self, error: Exception) -> None:
        if self.current is None:
            self.current = ()
        why = f"{type(error).__name__}: {error}"[:_LONGEST]
        self._seldom.event(logging.ERROR, "findings cannot be looked for", why=why)

    def about_queue(self, name: str) -> Sequence[Finding]:
        """Give what was found about one queue."""
        return self._by_queue.get(name, ())

    def tell(self, now: float) -> float:
        """Tell whatever is due; give when something is due again."""
        for each in self.current or ():
            if self._due[_key(each)] <= now:
                self._due[_key(each)] = now + AGAIN_S
                self._announce(each)
        return min(self._due.values(), default=inf)

    def _announce(self, found: Finding) -> None:
        event(
            log,
            logging.WARNING,
            "makes no sense as it is written",
            kind=found.kind,
            name=found.name,
            reason=found.reason,
            why=found.message,
        )
        subject = self._subject(found)
        if subject is None or not subject.uid:
            return  # nobody wrote it; it is ours alone
        self._announcer.write(
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

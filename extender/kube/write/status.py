"""Writes the status of PodGroups and Queues, and Events.

Some CRDs have a status subresource and some, such as Volcano's own PodGroup, do not. The responses
for a kind show which. That is remembered until a response shows otherwise, because CRDs can be
replaced while we run.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
from cachetools import LRUCache

from extender.clock import RateLimit, timestamp
from extender.errors import ApiError, NamespaceTerminating, NotFound, NotLeader
from extender.kube.client import MERGE, ApiClient, RateLimitedWorkers
from extender.kube.errors import is_conflict
from extender.kube.pipeline import object_path
from extender.leader.fencing import FencingToken
from extender.logs import RateLimitedLog, event
from extender.metrics import Metrics, init_labels
from extender.model.gang import VERSIONS
from extender.ports import AlwaysLeader, EventRecord, Fencing, ObjectReference

#: Queues whose version is remembered, least recently written first out; more than there are.
_REMEMBERED = 10_000
_PLURALS = {"PodGroup": "podgroups", "Queue": "queues"}
Status = Mapping[str, Any]


class ApiStatusWriter(RateLimitedWorkers):
    """The `StatusWriter` of a real cluster."""

    def __init__(
        self,
        client: ApiClient,
        *,
        wait: Callable[[float], object] | None = None,
        fencing: Fencing | None = None,
    ) -> None:
        super().__init__(client, wait=wait, fencing=fencing)
        #: (dialect, kind) -> whether it has a status subresource, once known.
        self._has_status: dict[tuple[str, str], bool] = {}
        #: uid of a queue -> the version of it that was last read or written.
        self._versions: dict[str, str] = {}

    def read(self, subject: ObjectReference) -> Future[Status | None]:
        """Return the status that the API server has."""
        return self._workers.submit(self._read, subject)

    def write(self, subject: ObjectReference, status: Status) -> Future[Status | None]:
        """Merge *status* into the object and return its whole status."""
        fencing = FencingToken(self._fencing, self._fencing.current())
        return self._workers.submit(self._write, subject, status, fencing)

    def _read(self, subject: ObjectReference) -> Status | None:
        self._wait(self._rate.acquire())
        try:
            body = self._client.request("GET", _status_path(subject))
        except NotFound:
            return None
        return self._status(body, subject)

    def _write(
        self, subject: ObjectReference, status: Status, fencing: FencingToken
    ) -> Status | None:
        self._wait(self._rate.acquire())
        kind = (subject.dialect, subject.kind)
        # The uid makes the API server refuse if the object was replaced by another one.
        metadata = {"uid": subject.uid}
        version = self._versions.get(subject.uid)
        if "state" in status and version is not None:
            # Administrators write the state too, and theirs takes precedence.
            metadata["resourceVersion"] = version
        patch = {"metadata": metadata, "status": status}
        for _ in range(2):
            if self._has_status.get(kind, True):
                try:
                    written = self._merge(
                        f"{_status_path(subject)}/status", patch, subject, fencing
                    )
                    self._has_status[kind] = True
                    return written
                except NotFound:
                    # Either the object or the subresource does not exist. Only an existing object
                    # is patched as a whole: otherwise a refusal would be reported as a missing
                    # permission, which we do not need.
                    if self._read(subject) is None:
                        return None
            try:
                written = self._merge(_status_path(subject), patch, subject, fencing)
            except NotFound:
                return None
            self._has_status[kind] = False
            if written is None or _is_stored(status, written):
                break
            # A kind with the subresource silently drops a status that comes with the object.
            del self._has_status[kind]
        return written

    def _merge(
        self, path: str, patch: object, subject: ObjectReference, fencing: FencingToken
    ) -> Status | None:
        try:
            body = self._client.request("PATCH", path, patch, content_type=MERGE, fencing=fencing)
        except ApiError as error:
            if is_conflict(error):
                return None
            raise
        return self._status(body, subject)

    def _status(self, body: bytes, subject: ObjectReference) -> Status | None:
        document: Any = msgspec.json.decode(body)
        metadata = document["metadata"]
        if metadata.get("uid") != subject.uid:
            return None
        if subject.kind == "Queue" and "resourceVersion" in metadata:
            self._versions.pop(subject.uid, None)  # so that it is the last to be dropped
            self._versions[subject.uid] = metadata["resourceVersion"]
            if len(self._versions) > _REMEMBERED:  # of queues that were deleted long ago
                for uid in list(self._versions)[: _REMEMBERED // 2]:
                    self._versions.pop(uid, None)
        return _valid(document.get("status"))


def _status_path(subject: ObjectReference) -> str:
    plural = _PLURALS[subject.kind]
    return object_path(subject.dialect, plural, subject.namespace, subject.name)


def _valid(status: object) -> Status:
    """Return *status* without invalid parts: where a CRD has no schema, tenants may write any."""
    if not isinstance(status, dict):
        return {}
    if "conditions" not in status:
        return status
    conditions = status["conditions"]
    kept = [
        each
        for each in (conditions if isinstance(conditions, list) else ())
        if isinstance(each, dict) and isinstance(each.get("type"), str)
    ]
    return {**status, "conditions": kept}


def _is_stored(status: Status, stored: Status) -> bool:
    """Return whether *stored* has what we wrote, as far as its CRD has fields for it."""
    conditions, reasons = stored.get("conditions"), _reasons(status)
    return stored.get("phase") == status.get("phase") and (
        not conditions or reasons <= _reasons(stored)
    )


def _reasons(status: Status) -> set[tuple[str, str]]:
    conditions = status.get("conditions") or ()
    return {(each["type"], str(each.get("reason", ""))) for each in conditions}


log = logging.getLogger(__name__)
PER_S = 25.0
BURST = 100
#: The limit of Events about one object: a burst, then one in each interval.
EVENT_BURST = 12
EVENT_INTERVAL_S = 60.0
_QUEUE_SIZE = 2_000
_REMEMBERED_EVENTS = 4_096
_LONGEST_MESSAGE = 1_024
_COMPONENT = "gang-extender"


@dataclass(slots=True)
class _WrittenEvent:
    """An Event that we have written."""

    name: str
    count: int


class ApiEventWriter:
    """The `EventWriter` of a real cluster: a queue and a thread."""

    def __init__(
        self,
        client: ApiClient,
        metrics: Metrics,
        *,
        wait: Callable[[float], object] | None = None,
        fencing: Fencing | None = None,
    ) -> None:
        self._client = client
        self._fencing = fencing or AlwaysLeader()
        self._metrics = metrics
        self._limited_log = RateLimitedLog(log)
        init_labels(
            metrics.status_writes,
            *(("Event", it) for it in ("written", "failed", "gone", "dropped")),
        )
        self._rate = RateLimit(PER_S, BURST)
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._queue: queue.Queue[tuple[EventRecord, FencingToken] | None] = queue.Queue(_QUEUE_SIZE)
        # Both are used in the thread alone.
        self._written: LRUCache[tuple[str, str], _WrittenEvent] = LRUCache(_REMEMBERED_EVENTS)
        self._rates: LRUCache[str, RateLimit] = LRUCache(_REMEMBERED_EVENTS)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread at once; queued records are dropped."""
        self._stopping.set()
        self.finish()

    def finish(self) -> None:
        """End the thread when the queue is empty."""
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(timeout=5)

    def write(self, record: EventRecord) -> None:
        """Queue *record*; rate-limited, fire and forget."""
        try:
            self._queue.put_nowait((record, FencingToken(self._fencing, self._fencing.current())))
        except queue.Full:
            self._count("dropped")

    def _run(self) -> None:
        while (queued := self._queue.get()) is not None and not self._stopping.is_set():
            try:
                self.send(*queued)
            except NotLeader:
                self._count("dropped")
            except (NotFound, NamespaceTerminating) as error:
                # Its namespace is terminating or deleted, so the Event is not missed.
                self._count("gone")
                event(log, logging.DEBUG, "event not written", why=str(error))
            except ApiError as error:
                self._count("failed")
                why, status = str(error), error.status
                self._limited_log.event(logging.WARNING, "event not written", status, why=why)
            except Exception:
                self._count("failed")
                log.exception("event not written")

    def send(self, record: EventRecord, fencing: FencingToken) -> None:
        """Write *record* now, unless its object has had too many Events.

        Raises `NotLeader` when the term of the record has ended: it may no longer be true.
        """
        fencing.check()
        if self._is_over_limit(record.subject):
            self._count("dropped")
            return
        self._wait(self._rate.acquire())
        key = (record.subject.uid, record.reason)
        known = self._written.get(key)
        if known is None or not self._increment(record, known, fencing):
            known = self._create(record, fencing)
        self._written[key] = known
        self._count("written")

    def _is_over_limit(self, subject: ObjectReference) -> bool:
        if subject.uid not in self._rates:
            self._rates[subject.uid] = RateLimit(1 / EVENT_INTERVAL_S, EVENT_BURST)
        return not self._rates[subject.uid].try_acquire()

    def _create(self, record: EventRecord, fencing: FencingToken) -> _WrittenEvent:
        subject = record.subject
        # Events about objects without a namespace belong to the default namespace.
        namespace = subject.namespace or "default"
        prefix = subject.name[:200].rstrip("-.")  # no part of a name may end so
        name = f"{prefix}.{uuid4().hex[:16]}"
        at = timestamp(record.at)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": _reference(subject),
            "reason": record.reason,
            "message": record.message[:_LONGEST_MESSAGE],
            "type": "Warning" if record.warning else "Normal",
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": _COMPONENT,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        self._client.request("POST", _events_path(namespace), body, fencing=fencing)
        return _WrittenEvent(name, 1)

    def _increment(self, record: EventRecord, known: _WrittenEvent, fencing: FencingToken) -> bool:
        """Increment the count of an Event; returns False when the API server has dropped it."""
        change = {
            "count": known.count + 1,
            "message": record.message[:_LONGEST_MESSAGE],
            "lastTimestamp": timestamp(record.at),
        }
        path = f"{_events_path(record.subject.namespace or 'default')}/{known.name}"
        try:
            self._client.request("PATCH", path, change, content_type=MERGE, fencing=fencing)
        except NotFound:
            return False
        known.count += 1
        return True

    def _count(self, outcome: str) -> None:
        self._metrics.status_writes.labels("Event", outcome).inc()


def _events_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/events"


def _reference(subject: ObjectReference) -> dict[str, str]:
    version = f"{subject.dialect}/{VERSIONS[subject.dialect]}" if subject.dialect else "v1"
    reference = {
        "apiVersion": version,
        "kind": subject.kind,
        "name": subject.name,
        "uid": subject.uid,
    }
    if subject.namespace:
        reference["namespace"] = subject.namespace
    return reference

"""Status of PodGroups and Queues, read and merged into what the API server has.

Some CRDs have a status subresource and some, Volcano's own PodGroup among them, do not. A kind
tells by its answers which it is, and that is remembered until it answers otherwise: CRDs are
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
from extender.kube.client import MERGE, RateLimitedWorkers, SendsRequests, is_conflict
from extender.kube.pipeline import object_path
from extender.logs import RateLimitedLog, event
from extender.metrics import Metrics, init_labels
from extender.model.gang import VERSIONS
from extender.ports import AlwaysLeader, EventRecord, Fencing, ObjectReference

#: Queues whose version is remembered, those last written the longest: more than there are.
_REMEMBERED = 10_000
_PLURALS = {"PodGroup": "podgroups", "Queue": "queues"}
Status = Mapping[str, Any]


class ApiStatusWriter(RateLimitedWorkers):
    """The `StatusWriter` of the real cluster."""

    def __init__(
        self,
        access: SendsRequests,
        *,
        wait: Callable[[float], object] | None = None,
        mandate: Fencing | None = None,
    ) -> None:
        super().__init__(access, wait=wait, mandate=mandate)
        #: (dialect, kind) -> whether it has a status subresource, once known.
        self._has_status: dict[tuple[str, str], bool] = {}
        #: uid of a queue -> the version of it that was read or written last.
        self._versions: dict[str, str] = {}

    def read(self, subject: ObjectReference) -> Future[Status | None]:
        """Give the status as the API server has it."""
        return self._workers.submit(self._read, subject)

    def write(self, subject: ObjectReference, status: Status) -> Future[Status | None]:
        """Merge *status* into what is there and give the whole."""
        return self._workers.submit(self._write, subject, status, self._mandate.current())

    def _read(self, subject: ObjectReference) -> Status | None:
        self._wait(self._pace.acquire())
        try:
            body = self._access.request("GET", _status_path(subject))
        except NotFound:
            return None
        return self._status(body, subject)

    def _write(self, subject: ObjectReference, status: Status, term: int) -> Status | None:
        self._wait(self._pace.acquire())
        # It may have waited behind thousands, and another may have led and written meanwhile.
        self._must_hold(term)
        kind = (subject.dialect, subject.kind)
        # The uid makes the API server refuse if the object is another one by now.
        metadata = {"uid": subject.uid}
        version = self._versions.get(subject.uid)
        if "state" in status and version is not None:
            # Administrators write it too, and theirs counts.
            metadata["resourceVersion"] = version
        patch = {"metadata": metadata, "status": status}
        for _ in range(2):
            if self._has_status.get(kind, True):
                try:
                    written = self._merge(f"{_status_path(subject)}/status", patch, subject)
                    self._has_status[kind] = True
                    return written
                except NotFound:
                    # The object, or the subresource? A right to patch whole objects is not asked
                    # for where it may be the former: a refusal would be named as a missing right.
                    if self._read(subject) is None:
                        return None
            try:
                written = self._merge(_status_path(subject), patch, subject)
            except NotFound:
                return None
            self._has_status[kind] = False
            if written is None or _has_arrived(status, written):
                break
            # A kind that has the subresource drops a status that comes with the object, and
            # says nothing.
            del self._has_status[kind]
        return written

    def _merge(self, path: str, patch: object, subject: ObjectReference) -> Status | None:
        try:
            body = self._access.request("PATCH", path, patch, content_type=MERGE)
        except ApiError as error:
            if is_conflict(error):
                return None
            raise
        return self._status(body, subject)

    def _status(self, body: bytes, subject: ObjectReference) -> Status | None:
        thing: Any = msgspec.json.decode(body)
        about = thing["metadata"]
        if about.get("uid") != subject.uid:
            return None
        if subject.kind == "Queue" and "resourceVersion" in about:
            self._versions.pop(subject.uid, None)  # so that it is the last to be forgotten
            self._versions[subject.uid] = about["resourceVersion"]
            if len(self._versions) > _REMEMBERED:  # of queues that are long gone
                for uid in list(self._versions)[: _REMEMBERED // 2]:
                    self._versions.pop(uid, None)
        return _sensible(thing.get("status"))


def _status_path(subject: ObjectReference) -> str:
    plural = _PLURALS[subject.kind]
    return object_path(subject.dialect, plural, subject.namespace, subject.name)


def _sensible(status: object) -> Status:
    """Leave out what no status has: where a CRD has no schema, tenants may write anything."""
    if not isinstance(status, dict):
        return {}
    if "conditions" not in status:
        return status
    said = status["conditions"]
    kept = [
        each
        for each in (said if isinstance(said, list) else ())
        if isinstance(each, dict) and isinstance(each.get("type"), str)
    ]
    return {**status, "conditions": kept}


def _has_arrived(wanted: Status, there: Status) -> bool:
    """Ask whether *there* says what we wrote, as far as its CRD has a place for it."""
    said, reasons = there.get("conditions"), _reasons(wanted)
    return there.get("phase") == wanted.get("phase") and (not said or reasons <= _reasons(there))


def _reasons(status: Status) -> set[tuple[str, str]]:
    said = status.get("conditions") or ()
    return {(each["type"], str(each.get("reason", ""))) for each in said}


log = logging.getLogger(__name__)
PER_S = 25.0
BURST = 100
#: Notices about one object: so many at once, then one in so many seconds.
BUSY_OBJECTS = 12
QUIET_S = 60.0
_WAITING = 2_000
_REMEMBERED_EVENTS = 4_096
_LONGEST_MESSAGE = 1_024
_COMPONENT = "gang-extender"


@dataclass(slots=True)
class _Told:
    """An Event that exists, as far as we know."""

    name: str
    count: int


class ApiEventWriter:
    """The `Announcer` of the real cluster: a queue and a thread."""

    def __init__(
        self,
        access: SendsRequests,
        metrics: Metrics,
        *,
        wait: Callable[[float], object] | None = None,
        mandate: Fencing | None = None,
    ) -> None:
        self._access = access
        self._mandate = mandate or AlwaysLeader()
        self._metrics = metrics
        self._seldom = RateLimitedLog(log)
        init_labels(
            metrics.status_writes,
            *(("Event", it) for it in ("written", "failed", "gone", "dropped")),
        )
        self._pace = RateLimit(PER_S, BURST)
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        #: Each with the term in which it was ordered.
        self._notices: queue.Queue[tuple[EventRecord, int] | None] = queue.Queue(_WAITING)
        # Both belong to the thread.
        self._told: LRUCache[tuple[str, str], _Told] = LRUCache(_REMEMBERED_EVENTS)
        self._talk: LRUCache[str, RateLimit] = LRUCache(_REMEMBERED_EVENTS)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """End at once; what waits is not said any more."""
        self._stopping.set()
        self.finish()

    def finish(self) -> None:
        """End when everything that waits has been said."""
        with suppress(queue.Full):
            self._notices.put_nowait(None)
        self._thread.join(timeout=5)

    def write(self, notice: EventRecord) -> None:
        """Queue *notice*; rate-limited, fire and forget."""
        try:
            self._notices.put_nowait((notice, self._mandate.current()))
        except queue.Full:
            self._count("dropped")

    def _run(self) -> None:
        while (ordered := self._notices.get()) is not None and not self._stopping.is_set():
            try:
                self.send(*ordered)
            except NotLeader:
                self._count("dropped")
            except (NotFound, NamespaceTerminating) as error:
                # Its namespace is going or gone, and whoever deleted that knows.
                self._count("gone")
                event(log, logging.DEBUG, "event not written", why=str(error))
            except ApiError as error:
                self._count("failed")
                why, status = str(error), error.status
                self._seldom.event(logging.WARNING, "event not written", status, why=why)
            except Exception:
                self._count("failed")
                log.exception("event not written")

    def send(self, notice: EventRecord, term: int | None = None) -> None:
        """Write *notice* now, unless its object has been talked about too much.

        `OutOfTerm` when the *term* in which it was ordered is over: by now it may be untrue.
        """
        self._must_hold(term)
        if self._is_too_much(notice.subject):
            self._count("dropped")
            return
        self._wait(self._pace.acquire())
        self._must_hold(term)
        key = (notice.subject.uid, notice.reason)
        told = self._told.get(key)
        if told is None or not self._again(notice, told):
            told = self._create(notice)
        self._told[key] = told
        self._count("written")

    def _must_hold(self, term: int | None) -> None:
        if term is not None and not self._mandate.holds(term):
            raise NotLeader("the term in which it was ordered is over")

    def _is_too_much(self, subject: ObjectReference) -> bool:
        if subject.uid not in self._talk:
            self._talk[subject.uid] = RateLimit(1 / QUIET_S, BUSY_OBJECTS)
        return not self._talk[subject.uid].try_acquire()

    def _create(self, notice: EventRecord) -> _Told:
        about = notice.subject
        # Events about what belongs to no namespace live in the default one.
        namespace = about.namespace or "default"
        about_whom = about.name[:200].rstrip("-.")  # no part of a name ends so
        name = f"{about_whom}.{uuid4().hex[:16]}"
        at = timestamp(notice.at)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": _reference(about),
            "reason": notice.reason,
            "message": notice.message[:_LONGEST_MESSAGE],
            "type": "Warning" if notice.warning else "Normal",
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": _COMPONENT,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        self._access.request("POST", _events_path(namespace), body)
        return _Told(name, 1)

    def _again(self, notice: EventRecord, told: _Told) -> bool:
        """Raise the count of an Event; False when the API server has forgotten it."""
        change = {
            "count": told.count + 1,
            "message": notice.message[:_LONGEST_MESSAGE],
            "lastTimestamp": timestamp(notice.at),
        }
        path = f"{_events_path(notice.subject.namespace or 'default')}/{told.name}"
        try:
            self._access.request("PATCH", path, change, content_type=MERGE)
        except NotFound:
            return False
        told.count += 1
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

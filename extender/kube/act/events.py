"""Events: one line on the object people look at, and a count where it is said again.

The same word about the same object raises the count of one Event. An object about which too much
is said falls silent for a while: its status still tells the present state.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from cachetools import LRUCache

from extender.errors import ApiError, Gone, OutOfTerm, Terminating
from extender.kube.api.client import MERGE, Asks
from extender.logs import Seldom, event
from extender.metrics import Metrics, expect
from extender.model.dialect import VERSIONS
from extender.ports import Mandate, Notice, OpenMandate, Subject
from extender.timing.clock import Pace, timestamp

log = logging.getLogger(__name__)

PER_S = 25.0
BURST = 100
#: Notices about one object: so many at once, then one in so many seconds.
TALKATIVE = 12
QUIET_S = 60.0

_WAITING = 2_000
_REMEMBERED = 4_096
_LONGEST_MESSAGE = 1_024
_COMPONENT = "gang-extender"


@dataclass(slots=True)
class _Told:
    """An Event that exists, as far as we know."""

    name: str
    count: int


class ApiAnnouncer:
    """The `Announcer` of the real cluster: a queue and a thread."""

    def __init__(
        self,
        access: Asks,
        metrics: Metrics,
        *,
        wait: Callable[[float], object] | None = None,
        mandate: Mandate | None = None,
    ) -> None:
        self._access = access
        self._mandate = mandate or OpenMandate()
        self._metrics = metrics
        self._seldom = Seldom(log)
        expect(
            metrics.status_writes,
            *(("Event", it) for it in ("written", "failed", "gone", "dropped")),
        )
        self._pace = Pace(PER_S, BURST)
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        #: Each with the term in which it was ordered.
        self._notices: queue.Queue[tuple[Notice, int] | None] = queue.Queue(_WAITING)
        # Both belong to the thread.
        self._told: LRUCache[tuple[str, str], _Told] = LRUCache(_REMEMBERED)
        self._talk: LRUCache[str, Pace] = LRUCache(_REMEMBERED)
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

    def announce(self, notice: Notice) -> None:
        """Queue *notice*; rate-limited, fire and forget."""
        try:
            self._notices.put_nowait((notice, self._mandate.current()))
        except queue.Full:
            self._count("dropped")

    def _run(self) -> None:
        while (ordered := self._notices.get()) is not None and not self._stopping.is_set():
            try:
                self.say(*ordered)
            except OutOfTerm:
                self._count("dropped")
            except (Gone, Terminating) as error:
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

    def say(self, notice: Notice, term: int | None = None) -> None:
        """Write *notice* now, unless its object has been talked about too much.

        `OutOfTerm` when the *term* in which it was ordered is over: by now it may be untrue.
        """
        self._must_hold(term)
        if self._is_too_much(notice.subject):
            self._count("dropped")
            return
        self._wait(self._pace.turn())
        self._must_hold(term)
        key = (notice.subject.uid, notice.reason)
        told = self._told.get(key)
        if told is None or not self._again(notice, told):
            told = self._create(notice)
        self._told[key] = told
        self._count("written")

    def _must_hold(self, term: int | None) -> None:
        if term is not None and not self._mandate.holds(term):
            raise OutOfTerm("the term in which it was ordered is over")

    def _is_too_much(self, subject: Subject) -> bool:
        if subject.uid not in self._talk:
            self._talk[subject.uid] = Pace(1 / QUIET_S, TALKATIVE)
        return not self._talk[subject.uid].may_go()

    def _create(self, notice: Notice) -> _Told:
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
        self._access.request("POST", _path(namespace), body)
        return _Told(name, 1)

    def _again(self, notice: Notice, told: _Told) -> bool:
        """Raise the count of an Event; False when the API server has forgotten it."""
        change = {
            "count": told.count + 1,
            "message": notice.message[:_LONGEST_MESSAGE],
            "lastTimestamp": timestamp(notice.at),
        }
        path = f"{_path(notice.subject.namespace or 'default')}/{told.name}"
        try:
            self._access.request("PATCH", path, change, content_type=MERGE)
        except Gone:
            return False
        told.count += 1
        return True

    def _count(self, outcome: str) -> None:
        self._metrics.status_writes.labels("Event", outcome).inc()


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/events"


def _reference(subject: Subject) -> dict[str, str]:
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

"""Writes status and events about the plan, on change only, in a thread of its own.

The planning thread hands over each cycle and goes on at once. Writes lag by the time that a status
needs to settle, so that a gang that starts right away costs one write and no event.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from math import inf
from typing import Any

from extender.clock import timestamp
from extender.errors import ApiError, NamespaceTerminating, NotLeader
from extender.logs import RateLimitedLog, event
from extender.metrics import Metrics, init_labels
from extender.model.gang import IMPLICIT, Gang, GangKey
from extender.model.queue import QueueState
from extender.model.snapshot import Snapshot
from extender.planner.plan import STARTED, GangStatus, Plan, Verdict
from extender.ports import Clock, EventWriter, ObjectReference, StatusWriter
from extender.status import desired, transitions
from extender.status.desired import DesiredStatus, ObjectRecord, warning
from extender.status.findings import Findings
from extender.status.history import CycleResult, GangHistory
from extender.status.transitions import transition

log = logging.getLogger(__name__)
#: How often the thread checks for due work when nothing wakes it.
IDLE_S = 5.0
#: The minimum rest before each round, and the rest per second that the last round took. Plans may
#: come much faster than is useful to report, and hooks need the processor more.
REST_S = 0.1
REST = 4.0
#: With so many requests in flight, a second's worth, only changes of the main part are written.
MAX_IN_BACKGROUND = 50
#: A gang that is older than this when first seen existed before this process.
UNSEEN_S = 60.0
_STUCK = (GangStatus.WAITING, GangStatus.INVALID)
Status = Mapping[str, Any]


class Reporter:
    """Writes the status of PodGroups and Queues, and events."""

    def __init__(
        self,
        *,
        writer: StatusWriter,
        events: EventWriter,
        history: GangHistory,
        findings: Findings,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._events = events
        self._history = history
        self._findings = findings
        self._metrics = metrics
        self._clock = clock
        self._started = clock.now()
        self._limited_log = RateLimitedLog(log)
        self._seen: CycleResult | None = None
        #: The term of the records, and the time of its first cycle: the status of older objects may
        #: come from an earlier leader.
        self._terms = history.terms
        self._began = clock.now()
        #: Queues that may have series.
        self._counted: set[str] = set()
        self._gangs: dict[GangKey, ObjectRecord] = {}
        self._queues: dict[str, ObjectRecord] = {}
        #: Records with a pending write.
        self._open: set[ObjectRecord] = set()
        self._in_flight = 0
        #: Answers of the writer, handled by the thread, so that only it changes the records.
        self._answers: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)
        outcomes = ("written", "failed", "gone")
        kinds = ("PodGroup", "Queue")
        init_labels(metrics.status_writes, *((kind, word) for kind in kinds for word in outcomes))

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; the next leader writes what is not yet written."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=5)

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        """Hand over a cycle; called by the planning thread, which does not wait."""
        # A new leader sees thousands of gangs for the first time that have run for long.
        ours_since = max(self._started, snapshot.now - UNSEEN_S)
        before = self._history.last
        changes = self._history.note(snapshot, plan)
        for change in changes:
            line = transition(change, snapshot.gangs.get(change.verdict.gang), ours_since)
            if line is not None:
                event(log, logging.INFO, line.sentence, **line.facts, cycle=plan.generation)
        transitions.observe(self._metrics, before, snapshot, plan, changes)
        for name in self._counted - plan.queues.keys():
            self._metrics.forget_queue(name)
        self._counted = set(plan.queues)
        self._wake.set()

    def _run(self) -> None:
        pause, rest = IDLE_S, REST_S
        while not self._stopping.is_set():
            self._wake.wait(pause)
            self._stopping.wait(rest)
            self._wake.clear()
            started = self._clock.monotonic()
            try:
                pause = self.work()
            except Exception:
                log.exception("report failed")
                pause = IDLE_S
            rest = max(REST_S, REST * (self._clock.monotonic() - started))

    def work(self) -> float:
        """Do what is due and return the seconds until the next due work."""
        while self._answers:
            self._answers.popleft()()
        now = self._clock.monotonic()
        if self._terms != self._history.terms:
            self._forget()
        last = self._history.last
        if last is not None and last is not self._seen:
            if self._seen is None:
                self._began = last.snapshot.now
            self._findings.update(last.snapshot, now)
            self._schedule_gangs(last, now)
            self._schedule_queues(last, now)
            self._seen = last
        # The record that has waited longest comes first: the number of writes is limited.
        ordered = sorted(self._open, key=lambda record: record.schedule.due())
        due = min((self._advance(record, now) for record in ordered), default=inf)
        return min(IDLE_S, max(0.0, min(due, self._findings.write_due(now)) - now))

    def _forget(self) -> None:
        """Drop the state of an earlier term: other leaders have written since."""
        self._terms, self._seen = self._history.terms, None
        self._gangs, self._queues, self._open = {}, {}, set()
        self._findings.forget()

    def _want(self, record: ObjectRecord, content: DesiredStatus, now: float) -> None:
        record.schedule.want(content, now)
        self._open.add(record)

    def _schedule_gangs(self, last: CycleResult, now: float) -> None:
        gangs, verdicts = last.snapshot.gangs, last.plan.verdicts
        for key in self._gangs.keys() - verdicts.keys():
            self._open.discard(self._gangs.pop(key))
        for key, verdict in verdicts.items():
            gang = gangs.get(key)
            if gang is None or IMPLICIT in gang.group.name:
                continue
            record = self._gangs.get(key)
            if record is None or not record.is_about(gang, verdict):
                self._schedule_gang(gang, verdict, record, now)

    def _schedule_gang(
        self, gang: Gang, verdict: Verdict, record: ObjectRecord | None, now: float
    ) -> None:
        subject = ObjectReference.of_gang(gang)
        if subject is None:
            return
        content = desired.of_gang(gang, verdict)
        if record is None or record.subject.uid != subject.uid:
            record = self._gangs[gang.key] = ObjectRecord(subject, is_written=content is not None)
            has_started = verdict.status in STARTED and gang.group.phase is verdict.phase
            is_new = gang.group.created > self._began
            record.schedule.begin(content, is_new=is_new, has_started=has_started)
            self._warn(subject, gang)
        record.gang, record.verdict = gang, verdict
        if verdict.status in _STUCK:
            record.waiting_since = self._history.since(gang.key) or self._clock.now()
        self._want(record, content or desired.for_events(verdict), now)

    def _warn(self, subject: ObjectReference, gang: Gang) -> None:
        """Write one event about fields without effect: a gang that starts gets no other event."""
        if gang.group.remark and gang.group.created > self._began:
            self._events.write(warning(subject, gang.group.remark, self._clock.now()))

    def _schedule_queues(self, last: CycleResult, now: float) -> None:
        for name in self._queues.keys() - last.plan.queues.keys():
            self._open.discard(self._queues.pop(name))
        found = self._findings.about_queue
        for name, content in desired.of_queues(last.snapshot, last.plan, found).items():
            subject = ObjectReference.of_queue(last.snapshot.queues[name])
            record = self._queues.get(name)
            if record is None or record.subject.uid != subject.uid:
                record = self._queues[name] = ObjectRecord(subject)
            self._want(record, content, now)

    def _advance(self, record: ObjectRecord, now: float) -> float:
        """Do what is due on one record; return when it is due again."""
        if record.is_busy:
            return inf  # the write in flight may already contain what it wants
        due, wanted = record.schedule.due(), record.schedule.wanted()
        if wanted is None:
            self._open.discard(record)
        if wanted is None or due > now:
            return due
        is_full = self._in_flight >= MAX_IN_BACKGROUND and record.is_written
        if is_full and not record.schedule.is_news():
            return inf  # the answers wake this thread
        if not record.is_written:
            record.schedule.wrote({}, wanted, now)
            self._announce(record)
        elif record.schedule.known is None:
            self._await(record, self._writer.read(record.subject), self._found)
        else:
            self._write(record, wanted, record.schedule.known)
        return inf

    def _write(self, record: ObjectRecord, wanted: DesiredStatus, known: Status) -> None:
        body = desired.dated(wanted, known, timestamp(self._clock.now()))
        if record.subject.kind == "Queue" and not known.get("state"):
            # Without Volcano's controller no other writer marks a new queue as open.
            body.setdefault("state", QueueState.OPEN.value)
        written = partial(self._wrote, wanted)
        self._await(record, self._writer.write(record.subject, body), written)
        self._announce(record)

    def _announce(self, record: ObjectRecord) -> None:
        if record.verdict is None:
            return
        record_event = record.take_event(self._clock.now())
        if record_event is not None:
            self._events.write(record_event)

    def _await(
        self,
        record: ObjectRecord,
        answer: Future[Status | None],
        note: Callable[[ObjectRecord, Status], None],
    ) -> None:
        record.is_busy = True
        self._in_flight += 1

        def answered(done: Future[Status | None]) -> None:
            self._answers.append(lambda: self._note(record, done, note))
            self._wake.set()

        answer.add_done_callback(answered)

    def _note(
        self,
        record: ObjectRecord,
        done: Future[Status | None],
        note: Callable[[ObjectRecord, Status], None],
    ) -> None:
        record.is_busy = False
        self._in_flight -= 1
        try:
            status = done.result()
        except Exception as error:  # any error of one object must not stop the others
            self._count(record, "gone" if isinstance(error, NamespaceTerminating) else "failed")
            record.schedule.failed(self._clock.monotonic())
            if isinstance(error, NotLeader | NamespaceTerminating):
                return  # the present leader writes it, or it is not needed any more
            self._limited_log.event(
                logging.WARNING,
                "status not written",
                error.status if isinstance(error, ApiError) else 0,
                kind=record.subject.kind,
                name=record.subject.name,
                namespace=record.subject.namespace,
                why=str(error) or type(error).__name__,
            )
            return
        if status is None:
            # The object is gone or replaced, which the cache will show in a moment. Or another
            # writer changed it since it was read, and it must be read again.
            self._count(record, "gone")
            record.schedule.known = None
            record.schedule.failed(self._clock.monotonic())
            return
        note(record, status)

    def _found(self, record: ObjectRecord, status: Status) -> None:
        record.schedule.found(status, desired.content(status), self._clock.monotonic())
        record.last_event = desired.stuck_reason(status)

    def _wrote(self, content: DesiredStatus, record: ObjectRecord, status: Status) -> None:
        self._count(record, "written")
        record.schedule.wrote(status, content, self._clock.monotonic())

    def _count(self, record: ObjectRecord, outcome: str) -> None:
        self._metrics.status_writes.labels(record.subject.kind, outcome).inc()

"""Tells the cluster what was decided: status and events, on change only, in a thread of its own.

The planning thread hands over each pass and goes on at once. What is told lags by the moment a
status needs to settle, so that a gang that starts right away costs one write and no event.
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
from extender.planner.plan import GangStatus, Plan, Verdict
from extender.ports import Clock, EventWriter, ObjectReference, StatusWriter
from extender.status import desired, transitions
from extender.status.desired import DesiredStatus, ObjectRecord, warning
from extender.status.findings import Findings
from extender.status.history import CycleResult, GangHistory
from extender.status.transitions import transition

log = logging.getLogger(__name__)
#: How often the thread looks whether something is due when nothing wakes it.
IDLE_S = 5.0
#: How long it rests before each look, at least, and for each second the last look took: plans
#: may come much faster than anybody reads, and hooks need the processor more.
REST_S = 0.1
REST = 4.0
#: While so many requests are under way, a second's worth, only news goes out: jobs wait for it.
MAX_IN_BACKGROUND = 50
#: A gang that is older than this when we first see it started before our time.
UNSEEN_S = 60.0
_STUCK = (GangStatus.WAITING, GangStatus.INVALID)
_STARTED = (GangStatus.RUNNING, GangStatus.FINISHED)
Status = Mapping[str, Any]


class Reporter:
    """Keeps PodGroups, Queues and people up to date."""

    def __init__(
        self,
        *,
        writer: StatusWriter,
        announcer: EventWriter,
        journal: GangHistory,
        findings: Findings,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._announcer = announcer
        self._journal = journal
        self._findings = findings
        self._metrics = metrics
        self._clock = clock
        self._started = clock.now()
        self._seldom = RateLimitedLog(log)
        self._seen: CycleResult | None = None
        #: Which term the records are of, and when its first pass was seen: what is older may have
        #: been told by whoever led before.
        self._terms = journal.terms
        self._began = clock.now()
        #: Queues that may have series.
        self._counted: set[str] = set()
        self._gangs: dict[GangKey, ObjectRecord] = {}
        self._queues: dict[str, ObjectRecord] = {}
        #: Those with something to write.
        self._open: set[ObjectRecord] = set()
        self._under_way = 0
        #: What the writer answered; noted by the thread, so that only it touches the records.
        self._answers: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)
        outcomes = ("written", "failed", "gone")
        kinds = ("PodGroup", "Queue")
        init_labels(metrics.status_writes, *((kind, word) for kind in kinds for word in outcomes))

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is not yet written is written by whoever comes after us."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=5)

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        """Take a pass in; called by the planning thread, which it does not hold up."""
        # Who begins to lead sees thousands for the first time that have run for long.
        ours_since = max(self._started, snapshot.now - UNSEEN_S)
        before = self._journal.last
        changes = self._journal.note(snapshot, plan)
        for change in changes:
            passed = transition(change, snapshot.gangs.get(change.verdict.gang), ours_since)
            if passed is not None:
                event(log, logging.INFO, passed.sentence, **passed.facts, cycle=plan.generation)
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
        """Do what is due and give the seconds until something else is."""
        while self._answers:
            self._answers.popleft()()
        now = self._clock.monotonic()
        if self._terms != self._journal.terms:
            self._forget()
        last = self._journal.last
        if last is not None and last is not self._seen:
            if self._seen is None:
                self._began = last.snapshot.now
            self._findings.look(last.snapshot, now)
            self._schedule_gangs(last, now)
            self._schedule_queues(last, now)
            self._seen = last
        # The one that has waited longest goes first: not all may go.
        turns = sorted(self._open, key=lambda record: record.schedule.due())
        due = min((self._advance(record, now) for record in turns), default=inf)
        return min(IDLE_S, max(0.0, min(due, self._findings.tell(now)) - now))

    def _forget(self) -> None:
        """Take nothing of an earlier term for granted: others have led and written since."""
        self._terms, self._seen = self._journal.terms, None
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
            has_started = verdict.standing in _STARTED and gang.group.phase is verdict.phase
            is_new = gang.group.created > self._began
            record.schedule.begin(content, is_new=is_new, has_started=has_started)
            self._warn(subject, gang)
        record.gang, record.verdict = gang, verdict
        if verdict.standing in _STUCK:
            record.waiting_since = self._journal.since(gang.key) or self._clock.now()
        self._want(record, content or desired.spoken(verdict), now)

    def _warn(self, subject: ObjectReference, gang: Gang) -> None:
        """Tell once what of a new PodGroup has no effect: a gang that starts says nothing else."""
        if gang.group.remark and gang.group.created > self._began:
            self._announcer.write(warning(subject, gang.group.remark, self._clock.now()))

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
        """Do what is due on one record; give when it wants to be looked at again."""
        if record.is_busy:
            return inf  # what it wants may be there already, but for the write under way
        due, wanted = record.schedule.due(), record.schedule.wanted()
        if wanted is None:
            self._open.discard(record)
        if wanted is None or due > now:
            return due
        is_full = self._under_way >= MAX_IN_BACKGROUND and record.is_written
        if is_full and not record.schedule.is_news():
            return inf  # the answers will wake us
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
            # Without Volcano's controller nobody else says that a new queue is open.
            body.setdefault("state", QueueState.OPEN.value)
        written = partial(self._wrote, wanted)
        self._await(record, self._writer.write(record.subject, body), written)
        self._announce(record)

    def _announce(self, record: ObjectRecord) -> None:
        if record.verdict is None:
            return
        notice = record.notice(self._clock.now())
        if notice is not None:
            self._announcer.write(notice)

    def _await(
        self,
        record: ObjectRecord,
        answer: Future[Status | None],
        note: Callable[[ObjectRecord, Status], None],
    ) -> None:
        record.is_busy = True
        self._under_way += 1

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
        self._under_way -= 1
        try:
            status = done.result()
        except Exception as error:  # whatever it is, others want to be told of as well
            self._count(record, "gone" if isinstance(error, NamespaceTerminating) else "failed")
            record.schedule.failed(self._clock.monotonic())
            if isinstance(error, NotLeader | NamespaceTerminating):
                return  # whoever leads writes it, or nobody needs it any more
            self._seldom.event(
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
            # The object is gone, or another one, and the mirror will say so in a moment; or
            # somebody wrote to it since we read it, and what it says now must be read again.
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

"""The desired status of a PodGroup or Queue: pure, from a verdict and its gang.

The phases and conditions are those of the API group. A status has a main part, which users and
controllers act upon, and details, which may lag a little: counters, amounts, messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from extender.durations import Backoff
from extender.findings.finding import Finding
from extender.model.gang import (
    COSCHEDULING,
    KUBE_BATCH,
    KUBE_BATCH_INCUBATOR,
    VOLCANO,
    Gang,
    Phase,
)
from extender.model.pod import Status
from extender.model.queue import QueueState
from extender.model.reason import Happening, Reason
from extender.model.resources import PODS, Resources, write_amount
from extender.model.snapshot import Snapshot
from extender.planner.plan import STARTED, GangStatus, Plan, QueueFigures, Verdict
from extender.ports import EventRecord, ObjectReference

#: Condition of a Queue: true when it has no findings.
AS_WRITTEN = "Valid"
UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
#: The status of a waiting gang is written at once, that of a gang whose pods are being created a
#: little later, and that of a starting gang when its pods run, so that the counters are right.
WAITING_SETTLES_S = 0.25
ARRIVING_SETTLES_S = 0.6
RUNNING_SETTLES_S = 1.0
#: The message of a waiting gang should be current; counters of ended members are not urgent.
WAITING_PAUSES_S = 0.8
RUNNING_PAUSES_S = 5.0
QUEUE_PAUSES_S = 2.0
_ARRIVING = frozenset(
    {
        Reason.NOT_ENOUGH_MEMBERS,
        Reason.NOT_ENOUGH_ROLES,
        Reason.POD_GROUP_MISSING,
        Reason.SCHEDULER_SILENT,
    }
)
#: The API server accepts more, but longer messages are not useful.
_LONGEST_MESSAGE = 1024
#: Limit of the resources in one status.
_MOST_AMOUNTS = 64
#: The nearest phase where an API group lacks one.
_PHASES: Mapping[str, Mapping[Phase, str]] = {
    VOLCANO: {},
    COSCHEDULING: {Phase.INQUEUE: "Scheduling", Phase.COMPLETED: "Finished"},
    KUBE_BATCH: {Phase.INQUEUE: "Pending", Phase.COMPLETED: "Pending"},
    KUBE_BATCH_INCUBATOR: {Phase.INQUEUE: "Pending", Phase.COMPLETED: "Pending"},
}
_CONDITIONS: Mapping[str, tuple[str, ...]] = {
    VOLCANO: (UNSCHEDULABLE, SCHEDULED),
    KUBE_BATCH: (UNSCHEDULABLE,),
    KUBE_BATCH_INCUBATOR: (UNSCHEDULABLE,),
}
_QUEUE_COUNTERS = {phase: phase.value.lower() for phase in Phase}


@dataclass(frozen=True, slots=True)
class DesiredStatus:
    """A status without its times; two equal ones need no write between them."""

    main: tuple[object, ...]
    body: Mapping[str, Any]
    #: How long the main part should stand before it is written.
    settle_s: float = field(default=WAITING_SETTLES_S, compare=False)
    #: How long the first change of details only should wait after it.
    pause_s: float = field(default=WAITING_PAUSES_S, compare=False)


def of_gang(gang: Gang, verdict: Verdict) -> DesiredStatus | None:
    """Return the status of a gang's PodGroup; None when this extender does not write it."""
    dialect = gang.group.dialect
    if dialect not in _PHASES or not gang.group.uid:
        return None
    body: dict[str, Any] = {
        "phase": _PHASES[dialect].get(verdict.phase, verdict.phase.value),
        **{
            status.value.lower(): len(gang.by_status.get(status, ()))
            for status in (Status.RUNNING, Status.SUCCEEDED, Status.FAILED)
        },
    }
    conditions = [_condition(kind, verdict) for kind in _CONDITIONS.get(dialect, ())]
    if conditions:
        body["conditions"] = conditions
    status = _timed(content(body), verdict)
    if gang.placeholders:
        # A change of the main part though the text is the same as without any pods: the status
        # settles again, and in most cases the gang runs before it is written.
        return replace(status, main=(*status.main, "arriving"))
    return status


def for_events(verdict: Verdict) -> DesiredStatus:
    """Return a stand-in for a gang without a PodGroup, which schedules its events alone."""
    return _timed(DesiredStatus((verdict.status, verdict.reason), {}), verdict)


def stuck_reason(status: Mapping[str, Any]) -> str:
    """Return from a status why its gang was stuck; empty when it was not."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == UNSCHEDULABLE and condition.get("status") == "True":
            return str(condition.get("reason", ""))
    return ""


def _timed(status: DesiredStatus, verdict: Verdict) -> DesiredStatus:
    """Set how long a verdict should last before its status is written."""
    if verdict.status in (*STARTED, GangStatus.ADMITTED):
        return replace(status, settle_s=RUNNING_SETTLES_S, pause_s=RUNNING_PAUSES_S)
    settle_s = ARRIVING_SETTLES_S if verdict.reason in _ARRIVING else WAITING_SETTLES_S
    return replace(status, settle_s=settle_s)


def of_queues(
    snapshot: Snapshot, plan: Plan, found: Callable[[str], Sequence[Finding]] = lambda _: ()
) -> dict[str, DesiredStatus]:
    """Return the status of every queue, with the findings that *found* returns."""
    counters: dict[str, Counter[Phase]] = {name: Counter() for name in plan.queues}
    for key, verdict in plan.verdicts.items():
        gang = snapshot.gangs.get(key)
        if verdict.queue in counters and gang is not None and gang.group.dialect:
            counters[verdict.queue][verdict.phase] += 1
    return {
        name: _of_queue(figures, counters[name], snapshot.queues[name].state, found(name))
        for name, figures in plan.queues.items()
        if name in snapshot.queues and snapshot.queues[name].uid
    }


def content(body: Mapping[str, Any]) -> DesiredStatus:
    """Return a status, desired or from the API server, without its times."""
    conditions = [
        {key: each.get(key, "") for key in ("type", "status", "reason", "message")}
        for each in body.get("conditions", ())
    ]
    timeless = {**body, "conditions": conditions} if conditions else dict(body)
    main = [(each["type"], each["status"], each["reason"]) for each in conditions]
    return DesiredStatus((timeless.get("phase"), *main), timeless)


def dated(wanted: DesiredStatus, known: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return the merge patch that writes *wanted* over *known*.

    A condition that stays true or false keeps its transition time. Conditions of other writers are
    kept: the list is replaced as a whole. A map is not: null deletes the keys that are not wanted.
    """
    body = {key: _replacing(known.get(key), value) for key, value in wanted.body.items()}
    if "conditions" not in body:
        return body
    there = {each.get("type"): each for each in known.get("conditions") or ()}
    own = [_dated(each, there.pop(each["type"], {}), at) for each in body["conditions"]]
    return {**body, "conditions": [*there.values(), *own]}


def _replacing(before: Any, wanted: Any) -> Any:
    if isinstance(before, Mapping) and isinstance(wanted, Mapping):
        return {**dict.fromkeys(before), **wanted}
    return wanted


def _dated(condition: Mapping[str, str], before: Mapping[str, str], at: str) -> dict[str, str]:
    same = before.get("status") == condition["status"]
    since = (before.get("lastTransitionTime") if same else None) or at
    return {**condition, "lastTransitionTime": since}


def _condition(kind: str, verdict: Verdict) -> dict[str, str]:
    stuck = verdict.status in (GangStatus.WAITING, GangStatus.INVALID)
    runs = verdict.status in STARTED
    return {
        "type": kind,
        "status": "True" if (stuck if kind == UNSCHEDULABLE else runs) else "False",
        "reason": verdict.reason.value,
        "message": verdict.message[:_LONGEST_MESSAGE],
    }


def _of_queue(
    figures: QueueFigures, counters: Counter[Phase], state: QueueState, found: Sequence[Finding]
) -> DesiredStatus:
    # A closing queue is closed once its last gang is gone. This extender changes nothing else of
    # its state.
    closed = state is QueueState.CLOSING and not counters.total()
    status = content(
        {
            **({"state": QueueState.CLOSED.value} if closed else {}),
            **{word: counters[phase] for phase, word in _QUEUE_COUNTERS.items()},
            "allocated": _amounts(figures.allocated, figures.deserved),
            "deserved": _amounts(figures.deserved),
            "share": f"{figures.share:.4f}",
            "conditions": [_as_written(found)],
        }
    )
    return replace(status, pause_s=QUEUE_PAUSES_S)


def _as_written(found: Sequence[Finding]) -> dict[str, str]:
    """Return the condition about findings; Volcano's own CRD has no field for it."""
    return {
        "type": AS_WRITTEN,
        "status": "False" if found else "True",
        "reason": found[0].reason if found else "NoFindings",
        "message": "; ".join(each.message for each in found)[:_LONGEST_MESSAGE],
    }


def _amounts(resources: Resources, foremost: Container[str] = ()) -> dict[str, str]:
    """Return amounts by name, no more than an object can carry, *foremost* first.

    Pods may request as many kinds of resources as their authors can name.
    """
    names = sorted(name for name, amount in resources.items() if name != PODS or amount)
    if len(names) > _MOST_AMOUNTS:
        names.sort(key=lambda name: (name not in foremost, "/" in name, name))
    return {name: write_amount(name, resources[name]) for name in sorted(names[:_MOST_AMOUNTS])}


#: A main part that keeps changing is written this long after it should have settled.
PATIENCE_S = 0.35
#: The longest delay before a write of details only; the content defines the first one.
LAST_PAUSE_S = 60.0
#: After a write that failed.
RETRY = Backoff(2.0, LAST_PAUSE_S)
#: Shorter waits end without an event: kube-scheduler's own events show that the pods started.
WORTH_TELLING_S = 10.0
#: Reasons that need an action of a user or administrator.
_WARNINGS = frozenset(
    {
        Reason.QUEUE_NOT_FOUND,
        Reason.QUEUE_CLOSED,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.EXCEEDS_CLUSTER,
        Reason.NODE_NOT_MANAGED,
        Reason.POD_GROUP_MISSING,
        Reason.NOT_ENOUGH_ROLES,
        Reason.SCHEDULER_SILENT,
    }
)


@dataclass(slots=True)
class WriteSchedule:
    """When to write the status of one object: what is wanted and what the API server has."""

    #: What the API server has, with its times; None when it was not read yet.
    known: Mapping[str, Any] | None = None
    written: DesiredStatus | None = None
    _wanted: DesiredStatus | None = None
    #: Since when the wanted status differs from the written one.
    _since: float = inf
    _changed_at: float = 0.0
    _details_at: float = 0.0
    #: Writes of details only, since the last change of the main part.
    _quiet_writes: int = 0
    _failures: int = 0

    def begin(self, content: DesiredStatus | None, *, is_new: bool, has_started: bool) -> None:
        """Set what may be assumed about the status of a gang seen for the first time."""
        if content is None or is_new:
            self.known = {}
        elif has_started:
            # Thousands of gangs run at the start. The main part of their status is right.
            self.written = content

    def want(self, content: DesiredStatus, now: float) -> None:
        """Set the wanted status."""
        if content == self._wanted:
            return
        if self._wanted is None or content.main != self._wanted.main:
            self._changed_at = now
        self._wanted = content
        self._since = inf if self._is_settled() else min(self._since, now)

    def due(self) -> float:
        """Return when to write; infinity when there is nothing to write."""
        if self._since == inf or self._wanted is None:
            return inf
        if self.written is None or self._wanted.main != self.written.main:
            settle_s = self._wanted.settle_s
            return min(self._changed_at, self._since + PATIENCE_S) + settle_s
        return max(self._details_at, self._since)

    def is_news(self) -> bool:
        """Return whether the due write changes the main part."""
        if self.known is None or self._wanted is None:
            return False  # the present status has to be read first; an earlier leader wrote it
        return self.written is None or self._wanted.main != self.written.main

    def wanted(self) -> DesiredStatus | None:
        """Return the status to write; None when it is there already."""
        return None if self._is_settled() else self._wanted

    def found(self, status: Mapping[str, Any], content: DesiredStatus, now: float) -> None:
        """Store the status that the API server has, before the first write."""
        self.known = status
        self.written = content
        self._since = inf if self._is_settled() else min(self._since, now)

    def wrote(self, status: Mapping[str, Any], content: DesiredStatus, now: float) -> None:
        """Record that *content* was written; *status* is the whole present status."""
        is_news = self.written is None or self.written.main != content.main
        self._quiet_writes = 0 if is_news else self._quiet_writes + 1
        backoff = Backoff(content.pause_s, LAST_PAUSE_S)
        self._details_at = now + backoff.delay_s(self._quiet_writes + 1)
        self.known, self.written = status, content
        self._failures = 0
        self._since = inf if self._is_settled() else now

    def failed(self, now: float) -> None:
        """Record a failed write; it is retried later."""
        self._failures += 1
        self._since = self._changed_at = self._details_at = now + RETRY.delay_s(self._failures)

    def _is_settled(self) -> bool:
        if self._wanted is None or self.written is None:
            return self._wanted is None
        if self._wanted.main != self.written.main:
            return False
        there = self.written.body
        return all(there.get(key) == value for key, value in self._wanted.body.items())


@dataclass(slots=True, eq=False)
class ObjectRecord:
    """One object with its desired status and its last event."""

    subject: ObjectReference
    #: This extender writes its status; a pod only gets events.
    is_written: bool = True
    schedule: WriteSchedule = field(default_factory=WriteSchedule)
    gang: Gang | None = None
    verdict: Verdict | None = None
    #: A request about it is in flight.
    is_busy: bool = False
    #: The reason of the last event, empty when there was none or the gang runs.
    last_event: str = ""
    #: When its present or last wait began, in seconds since the epoch.
    waiting_since: float = 0.0

    def is_about(self, gang: Gang, verdict: Verdict) -> bool:
        """Return whether nothing has changed."""
        return gang is self.gang and (verdict is self.verdict or verdict == self.verdict)

    def take_event(self, now: float) -> EventRecord | None:
        """Return the event to write, one per change of reason."""
        verdict = self.verdict
        if verdict is None or verdict.status is GangStatus.ADMITTED:
            return None
        if verdict.status is GangStatus.FINISHED:
            self.last_event = ""
            return None  # the controller of the pods reports the end
        if verdict.status is GangStatus.RUNNING:
            waited, had_event = now - self.waiting_since, bool(self.last_event)
            self.last_event = ""
            if not had_event or waited < WORTH_TELLING_S:
                return None
            # An earlier leader wrote the event, and the wait was over before this one observed it:
            # its start is unknown.
            waiting = f" after waiting {waited:.0f} s" if self.waiting_since else ""
            return self._event(verdict, f"runs{waiting}", now)
        if verdict.reason.value == self.last_event or not (self.gang and self.gang.pods):
            return None  # nothing new, or no pod exists that waits
        self.last_event = verdict.reason.value
        return self._event(verdict, verdict.message, now)

    def _event(self, verdict: Verdict, message: str, now: float) -> EventRecord:
        return EventRecord(
            subject=self.subject,
            reason=verdict.reason.value,
            message=message,
            warning=verdict.reason in _WARNINGS,
            at=now,
        )


def warning(subject: ObjectReference, remark: str, now: float) -> EventRecord:
    """Return the event about fields of a PodGroup without effect."""
    return EventRecord(
        subject=subject,
        reason=Happening.IGNORED_FIELD.value,
        message=remark,
        warning=True,
        at=now,
    )

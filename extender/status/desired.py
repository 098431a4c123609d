"""What the status of a PodGroup or Queue should say: pure, from a verdict and its gang.

The words are the dialect's own. A status has a main part, which people and controllers act upon,
and details, which may lag a little: counters, amounts, the sentence beside a reason.
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
from extender.planner.plan import GangStatus, Plan, QueueFigures, Verdict
from extender.ports import EventRecord, ObjectReference

#: On a Queue: true when it means what it says.
AS_WRITTEN = "Valid"
UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
#: A gang that waits should say so at once, one whose pods are still being created a little later,
#: and one that starts when its pods have been seen to run, so that their counters are right.
WAITING_SETTLES_S = 0.25
ARRIVING_SETTLES_S = 0.6
RUNNING_SETTLES_S = 1.0
#: The arithmetic of a wait should be right at once; that one of many members has ended is no news.
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
#: The API server takes more, but nobody reads more.
_LONGEST_MESSAGE = 1024
#: Kinds of resources in one status.
_MOST_AMOUNTS = 64
#: Where a dialect has no word for a phase, the nearest it has.
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
#: A gang that has ended was scheduled, and stays so.
_STARTED = (GangStatus.RUNNING, GangStatus.FINISHED)
_QUEUE_COUNTERS = {phase: phase.value.lower() for phase in Phase}


@dataclass(frozen=True, slots=True)
class DesiredStatus:
    """A status without the times in it; two that are equal need no write between them."""

    main: tuple[object, ...]
    body: Mapping[str, Any]
    #: How long the main part should stand before it is written.
    settle_s: float = field(default=WAITING_SETTLES_S, compare=False)
    #: How long the first change of details only should wait after it.
    pause_s: float = field(default=WAITING_PAUSES_S, compare=False)


def of_gang(gang: Gang, verdict: Verdict) -> DesiredStatus | None:
    """Say what the status of a gang's PodGroup should be; None when it is not ours to write."""
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
    told = _timed(content(body), verdict)
    if gang.placeholders:
        # News though the words are the same as while nobody was there: it settles anew, and in
        # most cases runs before anybody is told.
        return replace(told, main=(*told.main, "arriving"))
    return told


def spoken(verdict: Verdict) -> DesiredStatus:
    """Stand in for the status of a gang that has no PodGroup to write it on."""
    return _timed(DesiredStatus((verdict.standing, verdict.reason), {}), verdict)


def stuck_reason(status: Mapping[str, Any]) -> str:
    """Read from a status why its gang was stuck; empty when it was not."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == UNSCHEDULABLE and condition.get("status") == "True":
            return str(condition.get("reason", ""))
    return ""


def _timed(told: DesiredStatus, verdict: Verdict) -> DesiredStatus:
    """Say how long a verdict should stand before anybody is told."""
    if verdict.standing in (*_STARTED, GangStatus.ADMITTED):
        return replace(told, settle_s=RUNNING_SETTLES_S, pause_s=RUNNING_PAUSES_S)
    settle_s = ARRIVING_SETTLES_S if verdict.reason in _ARRIVING else WAITING_SETTLES_S
    return replace(told, settle_s=settle_s)


def of_queues(
    snapshot: Snapshot, plan: Plan, found: Callable[[str], Sequence[Finding]] = lambda _: ()
) -> dict[str, DesiredStatus]:
    """Say what the status of every queue should be, with what was *found* wrong with it."""
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
    """Read a status, ours or the API server's, leaving out when things happened."""
    conditions = [
        {key: each.get(key, "") for key in ("type", "status", "reason", "message")}
        for each in body.get("conditions", ())
    ]
    told = {**body, "conditions": conditions} if conditions else dict(body)
    main = [(each["type"], each["status"], each["reason"]) for each in conditions]
    return DesiredStatus((told.get("phase"), *main), told)


def dated(wanted: DesiredStatus, known: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Write *wanted* out; a condition that stays true or false keeps the time it became so.

    Conditions that somebody else wrote are kept: the list is replaced as a whole.
    """
    body = dict(wanted.body)
    if "conditions" not in body:
        return body
    there = {each.get("type"): each for each in known.get("conditions") or ()}
    ours = [_dated(each, there.pop(each["type"], {}), at) for each in body["conditions"]]
    return {**body, "conditions": [*there.values(), *ours]}


def _dated(condition: Mapping[str, str], before: Mapping[str, str], at: str) -> dict[str, str]:
    same = before.get("status") == condition["status"]
    since = (before.get("lastTransitionTime") if same else None) or at
    return {**condition, "lastTransitionTime": since}


def _condition(kind: str, verdict: Verdict) -> dict[str, str]:
    stuck = verdict.standing in (GangStatus.WAITING, GangStatus.INVALID)
    runs = verdict.standing in _STARTED
    return {
        "type": kind,
        "status": "True" if (stuck if kind == UNSCHEDULABLE else runs) else "False",
        "reason": verdict.reason.value,
        "message": verdict.message[:_LONGEST_MESSAGE],
    }


def _of_queue(
    figures: QueueFigures, counters: Counter[Phase], state: QueueState, found: Sequence[Finding]
) -> DesiredStatus:
    # A queue that was told to close has closed once its last gang is gone. Nothing else about
    # its state is ours to change.
    closed = state is QueueState.CLOSING and not counters.total()
    told = content(
        {
            **({"state": QueueState.CLOSED.value} if closed else {}),
            **{word: counters[phase] for phase, word in _QUEUE_COUNTERS.items()},
            "allocated": _amounts(figures.allocated, figures.deserved),
            "deserved": _amounts(figures.deserved),
            "share": f"{figures.share:.4f}",
            "conditions": [_as_written(found)],
        }
    )
    return replace(told, pause_s=QUEUE_PAUSES_S)


def _as_written(found: Sequence[Finding]) -> dict[str, str]:
    """Say whether a queue means what it says; Volcano's own CRD has no place for it."""
    return {
        "type": AS_WRITTEN,
        "status": "False" if found else "True",
        "reason": found[0].reason if found else "NoFindings",
        "message": "; ".join(each.message for each in found)[:_LONGEST_MESSAGE],
    }


def _amounts(resources: Resources, foremost: Container[str] = ()) -> dict[str, str]:
    """Write amounts by name, but no more of them than an object can carry, *foremost* first.

    Pods may ask for as many kinds of resources as their authors can name.
    """
    names = sorted(name for name, amount in resources.items() if name != PODS or amount)
    if len(names) > _MOST_AMOUNTS:
        names.sort(key=lambda name: (name not in foremost, "/" in name, name))
    return {name: write_amount(name, resources[name]) for name in sorted(names[:_MOST_AMOUNTS])}


#: A main part that keeps changing is written this long after it should have settled.
PATIENCE_S = 0.35
#: The longest pause before a write of details only; the content says which is the first.
LAST_PAUSE_S = 60.0
#: After a write that failed.
RETRY = Backoff(2.0, LAST_PAUSE_S)
#: Shorter waits end without a word: kube-scheduler's own events show that the pods started.
WORTH_TELLING_S = 10.0
#: Reasons that time does not heal: somebody has to do something.
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
    """The status of one object: what it should be, and what is known to be there."""

    #: What the API server has, with its times; None when it was not read yet.
    known: Mapping[str, Any] | None = None
    written: DesiredStatus | None = None
    _wanted: DesiredStatus | None = None
    #: When what is wanted began to differ from what is written.
    _since: float = inf
    _changed_at: float = 0.0
    _details_at: float = 0.0
    #: Writes of details only, since the last news.
    _quiet_writes: int = 0
    _failures: int = 0

    def begin(self, content: DesiredStatus | None, *, is_new: bool, has_started: bool) -> None:
        """Decide what may be taken for granted about a gang we see for the first time."""
        if content is None or is_new:
            self.known = {}
        elif has_started:
            # Thousands run when we start. What they say is right, as far as anybody acts on it.
            self.written = content

    def want(self, content: DesiredStatus, now: float) -> None:
        """Say what the status should be from now on."""
        if content == self._wanted:
            return
        if self._wanted is None or content.main != self._wanted.main:
            self._changed_at = now
        self._wanted = content
        self._since = inf if self._is_settled() else min(self._since, now)

    def due(self) -> float:
        """Tell when to write; infinity when there is nothing to write."""
        if self._since == inf or self._wanted is None:
            return inf
        if self.written is None or self._wanted.main != self.written.main:
            settle_s = self._wanted.settle_s
            return min(self._changed_at, self._since + PATIENCE_S) + settle_s
        return max(self._details_at, self._since)

    def is_news(self) -> bool:
        """Ask whether people and controllers wait for the write that is due."""
        if self.known is None or self._wanted is None:
            return False  # what is there has to be read first, and somebody has told it before
        return self.written is None or self._wanted.main != self.written.main

    def wanted(self) -> DesiredStatus | None:
        """Give what should be written; None when it is there already."""
        return None if self._is_settled() else self._wanted

    def found(self, status: Mapping[str, Any], content: DesiredStatus, now: float) -> None:
        """Hear what the API server has, before we wrote anything."""
        self.known = status
        self.written = content
        self._since = inf if self._is_settled() else min(self._since, now)

    def wrote(self, status: Mapping[str, Any], content: DesiredStatus, now: float) -> None:
        """Hear that *content* was written; *status* is the whole as it is there now."""
        news = self.written is None or self.written.main != content.main
        self._quiet_writes = 0 if news else self._quiet_writes + 1
        pause = Backoff(content.pause_s, LAST_PAUSE_S)
        self._details_at = now + pause.delay_s(self._quiet_writes + 1)
        self.known, self.written = status, content
        self._failures = 0
        self._since = inf if self._is_settled() else now

    def failed(self, now: float) -> None:
        """Hear that the write did not happen; it is tried again later."""
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
    """One object: who it is, what its status should say, what people were told."""

    subject: ObjectReference
    #: It has a status we write; a pod has none of ours and is only spoken about.
    is_written: bool = True
    schedule: WriteSchedule = field(default_factory=WriteSchedule)
    gang: Gang | None = None
    verdict: Verdict | None = None
    #: A request about it is on its way.
    is_busy: bool = False
    #: The reason people were told last, empty when they were told nothing or it runs.
    last_event: str = ""
    #: When the wait began that it is in, or was in last; in seconds since the epoch.
    waiting_since: float = 0.0

    def is_about(self, gang: Gang, verdict: Verdict) -> bool:
        """Ask whether nothing is new."""
        return gang is self.gang and (verdict is self.verdict or verdict == self.verdict)

    def notice(self, now: float) -> EventRecord | None:
        """Give what people should be told, once per change of reason."""
        verdict = self.verdict
        if verdict is None or verdict.standing is GangStatus.ADMITTED:
            return None
        if verdict.standing is GangStatus.FINISHED:
            self.last_event = ""
            return None  # that it ends is told by whoever made its pods
        if verdict.standing is GangStatus.RUNNING:
            waited, told = now - self.waiting_since, bool(self.last_event)
            self.last_event = ""
            if not told or waited < WORTH_TELLING_S:
                return None
            # Told by an extender before us, and over before we looked: nobody knows since when.
            waiting = f" after waiting {waited:.0f} s" if self.waiting_since else ""
            return self._notice(verdict, f"runs{waiting}", now)
        if verdict.reason.value == self.last_event or not (self.gang and self.gang.pods):
            return None  # nothing new, or nobody there who waits
        self.last_event = verdict.reason.value
        return self._notice(verdict, verdict.message, now)

    def _notice(self, verdict: Verdict, message: str, now: float) -> EventRecord:
        return EventRecord(
            subject=self.subject,
            reason=verdict.reason.value,
            message=message,
            warning=verdict.reason in _WARNINGS,
            at=now,
        )


def warning(subject: ObjectReference, remark: str, now: float) -> EventRecord:
    """Say what of a PodGroup has no effect."""
    return EventRecord(
        subject=subject,
        reason=Happening.IGNORED_FIELD.value,
        message=remark,
        warning=True,
        at=now,
    )

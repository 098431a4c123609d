"""All we keep about one object whose status we write: the schedule, and what was announced.

A status is written soon for news, unhurried for details, never twice. The main part waits a moment,
so that a burst of changes is one write. Details wait longer each time they change without any news,
so that a gang that waits for a day costs a few writes an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from extender.model.gang import Gang
from extender.model.reason import Happening, Reason
from extender.plan.decision import Standing, Verdict
from extender.ports import Notice, Subject
from extender.reporting.contents import Content
from extender.timing.pause import Pause

#: A main part that keeps changing is written this long after it should have settled.
PATIENCE_S = 0.35
#: The longest pause before a write of details only; the content says which is the first.
LAST_PAUSE_S = 60.0
#: After a write that failed.
RETRY = Pause(2.0, LAST_PAUSE_S)

#: Shorter waits end without a word: kube-scheduler's own events show that the pods started.
WORTH_TELLING_S = 10.0

#: Reasons that time does not heal: somebody has to do something.
_WARNINGS = frozenset(
    {
        Reason.QUEUE_NOT_FOUND,
        Reason.QUEUE_CLOSED,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.EXCEEDS_CLUSTER,
        Reason.NODE_NOT_OURS,
        Reason.POD_GROUP_MISSING,
        Reason.NOT_ENOUGH_ROLES,
        Reason.SCHEDULER_SILENT,
    }
)


@dataclass(slots=True)
class Schedule:
    """The status of one object: what it should be, and what is known to be there."""

    #: What the API server has, with its times; None when it was not read yet.
    known: Mapping[str, Any] | None = None
    written: Content | None = None
    _wanted: Content | None = None
    #: When what is wanted began to differ from what is written.
    _since: float = inf
    _changed_at: float = 0.0
    _details_at: float = 0.0
    #: Writes of details only, since the last news.
    _quiet_writes: int = 0
    _failures: int = 0

    def begin(self, content: Content | None, *, is_new: bool, has_started: bool) -> None:
        """Decide what may be taken for granted about a gang we see for the first time."""
        if content is None or is_new:
            self.known = {}
        elif has_started:
            # Thousands run when we start. What they say is right, as far as anybody acts on it.
            self.written = content

    def want(self, content: Content, now: float) -> None:
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

    def wanted(self) -> Content | None:
        """Give what should be written; None when it is there already."""
        return None if self._is_settled() else self._wanted

    def found(self, status: Mapping[str, Any], content: Content, now: float) -> None:
        """Hear what the API server has, before we wrote anything."""
        self.known = status
        self.written = content
        self._since = inf if self._is_settled() else min(self._since, now)

    def wrote(self, status: Mapping[str, Any], content: Content, now: float) -> None:
        """Hear that *content* was written; *status* is the whole as it is there now."""
        news = self.written is None or self.written.main != content.main
        self._quiet_writes = 0 if news else self._quiet_writes + 1
        pause = Pause(content.pause_s, LAST_PAUSE_S)
        self._details_at = now + pause.after(self._quiet_writes + 1)
        self.known, self.written = status, content
        self._failures = 0
        self._since = inf if self._is_settled() else now

    def failed(self, now: float) -> None:
        """Hear that the write did not happen; it is tried again later."""
        self._failures += 1
        self._since = self._changed_at = self._details_at = now + RETRY.after(self._failures)

    def _is_settled(self) -> bool:
        if self._wanted is None or self.written is None:
            return self._wanted is None
        if self._wanted.main != self.written.main:
            return False
        there = self.written.body
        return all(there.get(key) == value for key, value in self._wanted.body.items())


@dataclass(slots=True, eq=False)
class Record:
    """One object: who it is, what its status should say, what people were told."""

    subject: Subject
    #: It has a status we write; a pod has none of ours and is only spoken about.
    is_written: bool = True
    schedule: Schedule = field(default_factory=Schedule)
    gang: Gang | None = None
    verdict: Verdict | None = None
    #: A request about it is on its way.
    is_busy: bool = False
    #: The reason people were told last, empty when they were told nothing or it runs.
    announced: str = ""
    #: When the wait began that it is in, or was in last; in seconds since the epoch.
    waiting_since: float = 0.0

    def is_about(self, gang: Gang, verdict: Verdict) -> bool:
        """Ask whether nothing is new."""
        return gang is self.gang and (verdict is self.verdict or verdict == self.verdict)

    def notice(self, now: float) -> Notice | None:
        """Give what people should be told, once per change of reason."""
        verdict = self.verdict
        if verdict is None or verdict.standing is Standing.ADMITTED:
            return None
        if verdict.standing is Standing.FINISHED:
            self.announced = ""
            return None  # that it ends is told by whoever made its pods
        if verdict.standing is Standing.RUNNING:
            waited, told = now - self.waiting_since, bool(self.announced)
            self.announced = ""
            if not told or waited < WORTH_TELLING_S:
                return None
            # Told by an extender before us, and over before we looked: nobody knows since when.
            waiting = f" after waiting {waited:.0f} s" if self.waiting_since else ""
            return self._notice(verdict, f"runs{waiting}", now)
        if verdict.reason.value == self.announced or not (self.gang and self.gang.pods):
            return None  # nothing new, or nobody there who waits
        self.announced = verdict.reason.value
        return self._notice(verdict, verdict.message, now)

    def _notice(self, verdict: Verdict, message: str, now: float) -> Notice:
        return Notice(
            subject=self.subject,
            reason=verdict.reason.value,
            message=message,
            warning=verdict.reason in _WARNINGS,
            at=now,
        )


def warning(subject: Subject, remark: str, now: float) -> Notice:
    """Say what of a PodGroup has no effect."""
    return Notice(
        subject=subject,
        reason=Happening.WITHOUT_EFFECT.value,
        message=remark,
        warning=True,
        at=now,
    )

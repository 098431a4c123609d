"""All we keep about one object whose status we write: the schedule, and what was announced."""

from __future__ import annotations

from extender.model.gang import Gang
from extender.model.reason import Reason
from extender.plan.decision import Standing, Verdict
from extender.ports import Notice, Subject
from extender.reporting.schedule import Schedule

#: Shorter waits end without a word: kube-scheduler's own events show that the pods started.
WORTH_TELLING_S = 10.0

#: Reasons that time does not heal: somebody has to do something.
_WARNINGS = frozenset(
    {
        Reason.QUEUE_NOT_FOUND,
        Reason.QUEUE_CLOSED,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.EXCEEDS_CLUSTER,
        Reason.POD_GROUP_MISSING,
        Reason.NOT_ENOUGH_ROLES,
    }
)


class Record:
    """One object: who it is, what its status should say, what people were told."""

    __slots__ = (
        "announced",
        "gang",
        "is_busy",
        "is_written",
        "schedule",
        "stuck_since",
        "subject",
        "verdict",
    )

    def __init__(self, subject: Subject, *, is_written: bool = True) -> None:
        self.subject = subject
        self.schedule = Schedule()
        self.gang: Gang | None = None
        self.verdict: Verdict | None = None
        #: A request about it is on its way.
        self.is_busy = False
        #: It has a status we write; a pod has none of ours and is only spoken about.
        self.is_written = is_written
        #: The reason people were told last, empty when they were told nothing or it runs.
        self.announced = ""
        self.stuck_since = 0.0

    def is_about(self, gang: Gang, verdict: Verdict) -> bool:
        """Ask whether nothing is new."""
        return gang is self.gang and (verdict is self.verdict or verdict == self.verdict)

    def notice(self, now: float, since: float) -> Notice | None:
        """Give what people should be told, once per change of reason."""
        verdict = self.verdict
        if verdict is None or verdict.standing is Standing.ADMITTED:
            return None
        if verdict.standing is Standing.RUNNING:
            waited, told = now - self.stuck_since, bool(self.announced)
            self.announced = ""
            if not told or waited < WORTH_TELLING_S:
                return None
            return self._notice(verdict, f"runs after waiting {waited:.0f} s", now)
        if verdict.reason.value == self.announced or not (self.gang and self.gang.pods):
            return None  # nothing new, or nobody there who waits
        if not self.announced:
            self.stuck_since = since
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

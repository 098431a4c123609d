"""What the log says of a gang: one line when it is admitted, starts, falls back, and ends.

Waiting is no line: why a gang waits changes often, and status, events and `explain` tell it.
"""

from __future__ import annotations

from typing import NamedTuple

from extender.model.gang import SHADOW, Gang
from extender.model.pod import Status
from extender.plan.decision import Standing, Verdict
from extender.reporting.journal import Change

_STARTED = (Standing.RUNNING, Standing.FINISHED)


class Milestone(NamedTuple):
    """A constant sentence, and the facts beside it."""

    sentence: str
    facts: dict[str, object]


def milestone(change: Change, gang: Gang | None, ours_since: float) -> Milestone | None:
    """Say what the log should have of *change*; *ours_since* is when we began to look.

    What had happened by then is no news. Ordinary pods are no gangs, and there are many of them.
    """
    verdict, before = change.verdict, change.before
    if SHADOW in verdict.gang:
        return None
    if change.is_gone:
        return _gone(change)
    if before is None and (gang is None or gang.group.created < ours_since):
        return None
    earlier = before.standing if before is not None else Standing.WAITING
    if verdict.standing is earlier:
        return None
    if verdict.standing is Standing.ADMITTED:
        return _about(verdict, "gang admitted", waited_s=_seconds(change))
    if verdict.standing is Standing.RUNNING:
        return _about(verdict, "gang started", waited_s=_seconds(change))
    if verdict.standing is Standing.FINISHED:
        lasted = {"ran_s": _seconds(change)} if earlier is Standing.RUNNING else {}
        return _about(verdict, "gang ended", outcome="completed", **lasted, **_ends(gang))
    if earlier in _STARTED:
        reason = verdict.reason.value
        return _about(verdict, "gang waits again", reason=reason, ran_s=_seconds(change))
    return None


def _gone(change: Change) -> Milestone | None:
    verdict = change.verdict
    if verdict.standing is Standing.FINISHED:
        return None  # it ended before, and that was said
    if verdict.standing is Standing.RUNNING:
        return _about(verdict, "gang ended", outcome="deleted", ran_s=_seconds(change))
    outcome, reason = "deleted while it waited", verdict.reason.value
    return _about(verdict, "gang ended", outcome=outcome, reason=reason, waited_s=_seconds(change))


def _about(verdict: Verdict, sentence: str, **facts: object) -> Milestone:
    who = {"gang": verdict.gang, "queue": verdict.queue}
    size = {"members": verdict.members, "min_member": verdict.min_member}
    return Milestone(sentence, {**who, **size, **facts})


def _ends(gang: Gang | None) -> dict[str, object]:
    by_status = gang.by_status if gang is not None else {}
    return {
        status.value.lower(): len(by_status.get(status, ()))
        for status in (Status.SUCCEEDED, Status.FAILED)
    }


def _seconds(change: Change) -> float:
    return round(change.lasted_s, 3)

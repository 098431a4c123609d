"""Log lines about a gang: one when it is admitted, starts, waits again, and ends.

A waiting gang gets no line: its reason changes often, and status, events and `explain` show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from extender.metrics import Metrics
from extender.model.gang import IMPLICIT, Gang
from extender.model.pod import SCHEDULED_SET, Status
from extender.model.snapshot import Snapshot
from extender.planner.plan import STARTED, GangStatus, Plan, Verdict
from extender.status.history import Change, CycleResult


class Transition(NamedTuple):
    """A constant message and its fields."""

    sentence: str
    facts: dict[str, object]


def transition(change: Change, gang: Gang | None, ours_since: float) -> Transition | None:
    """Return the log line for *change*; *ours_since* is when this process began to observe.

    Earlier changes are not logged. Nor are ordinary pods: they are no gangs, and there are many.
    """
    verdict, before = change.verdict, change.before
    if IMPLICIT in verdict.gang:
        return None
    if change.is_gone:
        return _gone(change)
    if before is None and (gang is None or gang.group.created < ours_since):
        return None
    earlier = before.status if before is not None else GangStatus.WAITING
    if verdict.status is earlier:
        return None
    if verdict.status is GangStatus.ADMITTED:
        return _about(verdict, "gang admitted", waited_s=_seconds(change))
    if verdict.status is GangStatus.RUNNING:
        return _about(verdict, "gang started", waited_s=_seconds(change))
    if verdict.status is GangStatus.FINISHED:
        lasted = {"ran_s": _seconds(change)} if earlier is GangStatus.RUNNING else {}
        return _about(verdict, "gang ended", outcome="completed", **lasted, **_ends(gang))
    if earlier in STARTED:
        reason = verdict.reason.value
        return _about(verdict, "gang waits again", reason=reason, ran_s=_seconds(change))
    return None


def _gone(change: Change) -> Transition | None:
    verdict = change.verdict
    if verdict.status is GangStatus.FINISHED:
        return None  # its end was logged before
    if verdict.status is GangStatus.RUNNING:
        return _about(verdict, "gang ended", outcome="deleted", ran_s=_seconds(change))
    outcome, reason = "deleted while it waited", verdict.reason.value
    return _about(verdict, "gang ended", outcome=outcome, reason=reason, waited_s=_seconds(change))


def _about(verdict: Verdict, sentence: str, **facts: object) -> Transition:
    identity = {"gang": verdict.gang, "queue": verdict.queue}
    size = {"members": verdict.members, "min_member": verdict.min_member}
    return Transition(sentence, {**identity, **size, **facts})


def _ends(gang: Gang | None) -> dict[str, object]:
    by_status = gang.by_status if gang is not None else {}
    return {
        status.value.lower(): len(by_status.get(status, ()))
        for status in (Status.SUCCEEDED, Status.FAILED)
    }


def _seconds(change: Change) -> float:
    return round(change.lasted_s, 3)


#: The leader plans every few seconds. After a longer gap the start time of a new gang is unknown.
GAP_S = 30.0
_STUCK = (GangStatus.WAITING, GangStatus.INVALID)


def observe(
    metrics: Metrics,
    before: CycleResult | None,
    snapshot: Snapshot,
    plan: Plan,
    changes: Iterable[Change],
) -> None:
    """Observe each gang that was admitted, or started, since the cycle *before*."""
    for change in changes:
        verdict = change.verdict
        gang = snapshot.gangs.get(verdict.gang)
        # The series of a deleted queue are deleted too, and must not return.
        if gang is None or IMPLICIT in verdict.gang or verdict.queue not in plan.queues:
            continue
        if _was_admitted(change):
            metrics.admission_seconds.labels(verdict.queue).observe(change.lasted_s)
        if verdict.status is GangStatus.RUNNING and _has_just_begun(change, gang, before, snapshot):
            took_s = max(0.0, snapshot.now - created(gang))
            metrics.start_seconds.labels(verdict.queue).observe(took_s)


def created(gang: Gang) -> float:
    """Return when *gang* was created: the PodGroup, or the first of its scheduled pods.

    The later of both counts: a gang that ended and was created again starts with its new pods.
    """
    scheduled = [pod.created for pod in gang.pods if pod.status in SCHEDULED_SET]
    return max(gang.group.created, min(scheduled, default=0.0))


def _was_admitted(change: Change) -> bool:
    status, before = change.verdict.status, change.before
    admitted = status is GangStatus.ADMITTED or (status in STARTED and before is not None)
    return admitted and (before is None or before.status in _STUCK)


def _has_just_begun(
    change: Change, gang: Gang, before: CycleResult | None, snapshot: Snapshot
) -> bool:
    if before is None or snapshot.now - before.snapshot.now > GAP_S:
        return False
    if change.before is not None:
        return change.before.status is not GangStatus.RUNNING
    # It was created and started between two cycles; older gangs ran before the first cycle.
    return created(gang) > before.snapshot.now - GAP_S

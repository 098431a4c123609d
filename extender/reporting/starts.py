"""How long gangs took to be admitted, and to start: until minMember of them were bound."""

from __future__ import annotations

from collections.abc import Iterable

from extender.metrics import Metrics
from extender.model.gang import SHADOW, Gang
from extender.model.pod import SEATED_SET
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan, Standing
from extender.reporting.journal import Change, Pass

#: Whoever leads plans every few seconds. After a longer gap nobody knows when a gang began to run
#: that is new to us.
GAP_S = 30.0
_STUCK = (Standing.WAITING, Standing.INVALID)
_STARTED = (Standing.RUNNING, Standing.FINISHED)


def observe(
    metrics: Metrics,
    before: Pass | None,
    snapshot: Snapshot,
    plan: Plan,
    changes: Iterable[Change],
) -> None:
    """Note each gang that was admitted, or began to run, since the pass *before*."""
    for change in changes:
        verdict = change.verdict
        gang = snapshot.gangs.get(verdict.gang)
        # Of a queue that is gone the series are too, and should not come back.
        if gang is None or SHADOW in verdict.gang or verdict.queue not in plan.queues:
            continue
        if _was_admitted(change):
            metrics.admission_seconds.labels(verdict.queue).observe(change.lasted_s)
        if verdict.standing is Standing.RUNNING and _has_just_begun(change, gang, before, snapshot):
            took_s = max(0.0, snapshot.now - created(gang))
            metrics.start_seconds.labels(verdict.queue).observe(took_s)


def created(gang: Gang) -> float:
    """Say when *gang* came to be: the PodGroup, or the first of the pods that run.

    Whichever came last: a gang that left and was made anew began with its new pods.
    """
    seated = [pod.created for pod in gang.pods if pod.status in SEATED_SET]
    return max(gang.group.created, min(seated, default=0.0))


def _was_admitted(change: Change) -> bool:
    standing, before = change.verdict.standing, change.before
    admitted = standing is Standing.ADMITTED or (standing in _STARTED and before is not None)
    return admitted and (before is None or before.standing in _STUCK)


def _has_just_begun(change: Change, gang: Gang, before: Pass | None, snapshot: Snapshot) -> bool:
    if before is None or snapshot.now - before.snapshot.now > GAP_S:
        return False
    if change.before is not None:
        return change.before.standing is not Standing.RUNNING
    # It came and started between two passes; older ones ran before we looked.
    return created(gang) > before.snapshot.now - GAP_S

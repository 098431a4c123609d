"""The phase a PodGroup has after a cycle, in Volcano's words."""

from __future__ import annotations

from extender.model.gang import Gang, Phase
from extender.model.pod import FINISHED_SET, SEATED_SET, Status
from extender.plan.policy.options import Rules


def phase_after(gang: Gang, phase: Phase, rules: Rules, *, unschedulable: bool) -> Phase:
    """Give the phase of *gang*, which was *phase* after enqueueing.

    Only what the API server shows counts: a gang that was given its nodes a moment ago is still
    in queue. *unschedulable* says that this cycle found it short of ready members.
    """
    by_status = gang.by_status
    if len(by_status) == 1 and Status.PENDING in by_status and gang.group.min_member:
        return Phase.INQUEUE if phase is Phase.INQUEUE else Phase.PENDING
    finished = sum(len(by_status.get(status, ())) for status in FINISHED_SET)
    leaving = sum(bool(pod.node) for pod in by_status.get(Status.RELEASING, ()))
    if by_status.get(Status.RUNNING) and unschedulable:
        return Phase.UNKNOWN
    scheduled = gang.seated + leaving + finished
    if scheduled >= gang.group.min_member and (scheduled or not rules.running_takes_a_node):
        return Phase.COMPLETED if scheduled == finished else Phase.RUNNING
    return Phase.INQUEUE if phase is Phase.INQUEUE else Phase.PENDING


def is_unschedulable(gang: Gang, ready: int) -> bool:
    """Ask whether a gang with *ready* members misses some that are not just leaving."""
    if not gang.pods or ready >= gang.group.min_member:
        return False
    by_status = gang.by_status
    leaving = sum(bool(pod.node) for pod in by_status.get(Status.RELEASING, ()))
    if not leaving or by_status.get(Status.PENDING) or by_status.get(Status.PIPELINED):
        return True
    scheduled = leaving + sum(
        len(by_status.get(status, ())) for status in SEATED_SET | FINISHED_SET
    )
    return scheduled < gang.group.min_member

"""May a held call go on waiting? Asked on every change, and of all members before a commit."""

from __future__ import annotations

from extender.holds.machine.assembly import Hold
from extender.holds.machine.cause import Cause
from extender.holds.machine.entry import UNSEATED_SET
from extender.holds.machine.facts import Facts
from extender.model.gang import PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, Status, Toleration

NOT_READY = "node.kubernetes.io/not-ready"
CORDONED = "node.kubernetes.io/unschedulable"


def objection(hold: Hold, facts: Facts) -> Cause | None:
    """Say why a held pod may wait no longer; BOUND when it is on its node already."""
    pod = facts.arriving(hold.uid)  # our watch may be behind kube-scheduler's
    if pod is None or pod.status is Status.RELEASING:
        return Cause.POD_GONE
    if pod.status not in UNSEATED_SET:
        return Cause.BOUND if pod.node == hold.node else Cause.POD_ELSEWHERE
    if pod.gated or facts.gang_of(hold.uid) != hold.gang:
        return Cause.POD_CHANGED
    return None if will_take(facts.node(hold.node), pod) else Cause.NODE_LOST


def group_objection(group: PodGroup | None, uid: str) -> Cause | None:
    """Say why an assembly of the PodGroup *uid* cannot go on with *group*."""
    if group is None:
        return Cause.GROUP_GONE
    if group.uid != uid:
        return Cause.GROUP_REPLACED
    return Cause.GROUP_UNUSABLE if group.problem else None


def stands(node: Node | None) -> bool:
    """Ask whether a node takes ordinary pods."""
    return node is not None and node.ready and not node.unschedulable


def will_take(node: Node | None, pod: Pod) -> bool:
    """Ask whether a node still stands for a pod; the API server would bind to any name."""
    if node is None:
        return False
    if not node.ready and not _tolerates(pod, NOT_READY):
        return False
    return not node.unschedulable or _tolerates(pod, CORDONED)


def _tolerates(pod: Pod, taint: str) -> bool:
    return any(_covers(toleration, taint) for toleration in pod.shape.tolerations)


def _covers(toleration: Toleration, taint: str) -> bool:
    if toleration.effect not in ("", "NoSchedule"):
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    return toleration.key == taint and (toleration.operator == "Exists" or not toleration.value)

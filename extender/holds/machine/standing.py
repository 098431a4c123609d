"""May a held call go on waiting? Asked on every change, and of all members before a commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extender.holds.machine.assembly import Hold
from extender.holds.machine.cause import Cause
from extender.holds.machine.entry import UNSEATED_SET
from extender.holds.machine.facts import Facts
from extender.model.gang import PodGroup
from extender.model.node import Node, Taint
from extender.model.pod import Pod, Status
from extender.model.reason import Reason
from extender.plan.room.node_match import is_hard, tolerates

#: The taints by which the API server says the same a moment later.
_NOT_READY = Taint("node.kubernetes.io/not-ready")
_CORDONED = Taint("node.kubernetes.io/unschedulable")

#: How our own refusals begin inside kube-scheduler's words.
_OUR_WORDS = tuple(f"{reason.value}:" for reason in Reason)


def objection(hold: Hold, facts: Facts) -> Cause | None:
    """Say why a held pod may wait no longer; BOUND when it is on its node already."""
    pod = facts.arriving(hold.uid)  # our watch may be behind kube-scheduler's
    if pod is None or pod.status is Status.RELEASING:
        return Cause.POD_GONE
    if pod.status not in UNSEATED_SET:
        return Cause.BOUND if pod.node == hold.node else Cause.POD_ELSEWHERE
    if pod.gated or facts.gang_of(hold.uid) != hold.gang:
        return Cause.POD_CHANGED
    return None if _will_take(facts.node(hold.node), pod) else Cause.NODE_LOST


def crowded_out(holds: Iterable[Hold], facts: Facts) -> Iterator[Hold]:
    """Give the holds whose node has no room any more for all of them that want to go there."""
    by_node: dict[str, list[Hold]] = {}
    for hold in holds:
        by_node.setdefault(hold.node, []).append(hold)
    for node, there in by_node.items():
        pods = [pod for hold in there if (pod := facts.arriving(hold.uid))]
        if not facts.fits(node, pods):
            yield from there


def fits_no_node(pod: Pod) -> bool:
    """Ask whether kube-scheduler itself found no node for a pod.

    One that we refused is not lost: it is woken when its turn comes.
    """
    if pod.status is not Status.PENDING or not pod.refusal:
        return False
    return not any(word in pod.refusal for word in _OUR_WORDS)


def group_objection(group: PodGroup | None, uid: str) -> Cause | None:
    """Say why an assembly of the PodGroup *uid* cannot go on with *group*."""
    if group is None:
        return Cause.GROUP_GONE
    if group.uid != uid:
        return Cause.GROUP_REPLACED
    return Cause.GROUP_UNUSABLE if group.problem else None


def _will_take(node: Node | None, pod: Pod) -> bool:
    """Ask whether a node still stands for a pod; the API server would bind to any name."""
    if node is None:
        return False
    if not node.ready and not tolerates(pod.shape, _NOT_READY):
        return False
    if node.unschedulable and not tolerates(pod.shape, _CORDONED):
        return False
    return all(tolerates(pod.shape, taint) for taint in node.taints if is_hard(taint))

"""Matching pods and nodes by labels, fields and taints, as kube-scheduler does."""

from __future__ import annotations

from extender.model.node import Node, Taint
from extender.model.pod import Requirement, Shape, Toleration

#: The taints by which the API server says, a moment later, what a node says of itself.
_NOT_READY = Taint("node.kubernetes.io/not-ready")
_CORDONED = Taint("node.kubernetes.io/unschedulable")


def takes(node: Node, shape: Shape) -> bool:
    """Ask whether *node* stands, and takes pods of *shape* however full it is."""
    return (node.ready or tolerates(shape, _NOT_READY)) and is_open_to(node, shape)


def is_open_to(node: Node, shape: Shape) -> bool:
    """Ask whether *node* is ours, and neither a cordon nor a taint keeps pods of *shape* off it."""
    if not node.ours:
        return False
    if node.unschedulable and not tolerates(shape, _CORDONED):
        return False
    return all(tolerates(shape, taint) for taint in node.taints if is_hard(taint))


def is_hard(taint: Taint) -> bool:
    """Ask whether *taint* keeps pods away that do not tolerate it."""
    return taint.effect in ("NoSchedule", "NoExecute")


def tolerates(shape: Shape, taint: Taint) -> bool:
    """Ask whether a pod of *shape* puts up with *taint*."""
    return any(_tolerates(toleration, taint) for toleration in shape.tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def meets(need: Requirement, value: str | None) -> bool:
    """Ask whether *value*, None where there is none, is what *need* wants."""
    if need.operator == "DoesNotExist":
        return value is None
    if need.operator == "NotIn":
        return value is None or value not in need.values
    if value is None:
        return False
    if need.operator == "In":
        return value in need.values
    return need.operator == "Exists" or _compares(need, value)


def _compares(need: Requirement, value: str) -> bool:
    """Compare as whole numbers for Gt and Lt; anything else never holds."""
    try:
        have, limit = int(value), int(need.values[0])
    except (ValueError, IndexError):
        return False
    return have > limit if need.operator == "Gt" else need.operator == "Lt" and have < limit

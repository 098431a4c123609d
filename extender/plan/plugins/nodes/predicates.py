"""predicates: which nodes a pod may use at all, as far as the node itself is concerned.

Each question is answered for all nodes at once, once per shape, and remembered until a node
changes. Room, pod count and host ports change with every placement; the slots look after those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from extender.model.node import Mask, Node, NodeFacts, Taint
from extender.model.pod import Shape
from extender.plan.plugin import Plugin
from extender.plan.room.node_match import is_hard, matches, tolerates

_CORDONED = Taint(key="node.kubernetes.io/unschedulable")


class Predicates(Plugin):
    """Bars nodes that are cordoned, do not match, or are tainted."""

    known = (
        "predicate.NodeAffinityEnable", "predicate.TaintTolerationEnable",
        "predicate.NodeUnschedulableEnable",
    )  # fmt: skip
    #: kube-scheduler judges these, and its own configuration switches them.
    without_effect = (
        "predicate.NodePortsEnable", "predicate.PodAffinityEnable",
        "predicate.NodeVolumeLimitsEnable", "predicate.VolumeZoneEnable",
        "predicate.PodTopologySpreadEnable", "predicate.VolumeBindingEnable",
        "predicate.DynamicResourceAllocationEnable", "predicate.CacheEnable",
        "predicate.GPUSharingEnable", "predicate.GPUNumberEnable", "predicate.ProportionalEnable",
        "predicate.resources", "predicate.resources.*", "volumebinding.*",
        "predicate.MemoryPressureEnable", "predicate.DiskPressureEnable",
        "predicate.PIDPressureEnable",
    )  # fmt: skip

    def configure(self) -> None:
        """Read which questions are asked."""
        self._affinity = self.arguments.flag("predicate.NodeAffinityEnable", default=True)
        self._taints = self.arguments.flag("predicate.TaintTolerationEnable", default=True)
        self._cordons = self.arguments.flag("predicate.NodeUnschedulableEnable", default=True)

    def obstacles(self, shape: Shape, facts: NodeFacts) -> dict[str, Mask]:
        """Mark the nodes *shape* may not use, by why."""
        barred: dict[str, Mask] = {}
        if self._cordons and not tolerates(shape, _CORDONED):
            barred["cordoned"] = _shared(facts, "cordoned", lambda node: node.unschedulable)
        if self._affinity and (shape.selector or shape.affinity is not None):
            barred["not selected"] = _mask(facts.nodes, lambda node: not _selected(shape, node))
        if self._taints:
            barred["tainted"] = _tainted(shape, facts)
        return barred


def _selected(shape: Shape, node: Node) -> bool:
    if any(node.labels.get(key) != value for key, value in shape.selector):
        return False
    return shape.affinity is None or any(matches(term, node) for term in shape.affinity)


def _tainted(shape: Shape, facts: NodeFacts) -> Mask:
    """Ask only the nodes that have hard taints; most have none."""
    hard = _shared(facts, "hard taints", lambda node: any(is_hard(t) for t in node.taints))
    barred = np.zeros(len(facts.nodes), dtype=bool)
    for row in np.flatnonzero(hard):
        taints = facts.nodes[row].taints
        barred[row] = any(is_hard(taint) and not tolerates(shape, taint) for taint in taints)
    return barred


def _shared(facts: NodeFacts, key: str, ask: Callable[[Node], bool]) -> Mask:
    return facts.memo.recall(key, lambda: _mask(facts.nodes, ask))


def _mask(nodes: Iterable[Node], ask: Callable[[Node], bool]) -> Mask:
    return np.array([ask(node) for node in nodes], dtype=bool)

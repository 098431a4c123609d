"""predicates: which nodes a pod may use at all, as far as the node itself is concerned.

Each question is answered for all nodes at once, once per shape, and remembered until a node
changes. Room, pod count and host ports change with every placement; the slots look after those.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from extender.model.node import Mask, NodeFacts, Taint
from extender.model.pod import Shape
from extender.plan.plugin import Plugin
from extender.plan.room.node_index import index_of
from extender.plan.room.node_match import is_hard, tolerates

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
        index, memo = index_of(facts), facts.memo
        if self._cordons and not tolerates(shape, _CORDONED):
            barred["cordoned"] = memo.recall("cordoned", lambda: _cordoned(facts))
        if self._affinity and (shape.selector or shape.affinity is not None):
            key = ("not selected", shape)
            barred["not selected"] = memo.recall(key, lambda: ~index.selected(shape))
        if self._taints:
            barred["tainted"] = memo.recall(
                ("tainted", shape.tolerations), lambda: index.bearing(partial(_keeps_off, shape))
            )
        return barred


def _keeps_off(shape: Shape, taint: Taint) -> bool:
    return is_hard(taint) and not tolerates(shape, taint)


def _cordoned(facts: NodeFacts) -> Mask:
    return np.array([node.unschedulable for node in facts.nodes], dtype=bool)

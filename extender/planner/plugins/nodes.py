"""predicates, nodeorder and binpack: which nodes a pod may use, and which are best.

Each check is made for all nodes at once, once per shape, and cached until a node changes. Free
capacity, pod count and host ports change with every placement; the node ranking checks those.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from extender.model.matching import CORDONED, index_of, is_hard, tolerates
from extender.model.node import Mask, NodeFacts, Taint
from extender.model.pod import Shape
from extender.model.resources import CPU, MEMORY
from extender.planner.node_ranking import Scores, ScoringTable
from extender.planner.plugin import Plugin


class Predicates(Plugin):
    """Excludes nodes that are cordoned, do not match, or are tainted."""

    known = (
        "predicate.NodeAffinityEnable", "predicate.TaintTolerationEnable",
        "predicate.NodeUnschedulableEnable",
    )  # fmt: skip
    #: kube-scheduler checks these, and its own configuration switches them.
    ignored_arguments = (
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
        """Read which checks are enabled."""
        self._affinity = self.arguments.flag("predicate.NodeAffinityEnable", default=True)
        self._taints = self.arguments.flag("predicate.TaintTolerationEnable", default=True)
        self._cordons = self.arguments.flag("predicate.NodeUnschedulableEnable", default=True)

    def obstacles(self, shape: Shape, facts: NodeFacts) -> dict[str, Mask]:
        """Return the mask of nodes *shape* may not use, by reason."""
        excluded: dict[str, Mask] = {}
        index, memo = index_of(facts), facts.memo
        if self._cordons and not tolerates(shape, CORDONED):
            excluded["cordoned"] = facts.cordoned
        if self._affinity and (shape.selector or shape.affinity is not None):
            key = ("not selected", shape)
            excluded["not selected"] = memo.recall(key, lambda: ~index.selected(shape))
        if self._taints:
            excluded["tainted"] = memo.recall(
                ("tainted", shape.tolerations), lambda: index.tainted(partial(_repels, shape))
            )
        return excluded


def _repels(shape: Shape, taint: Taint) -> bool:
    return is_hard(taint) and not tolerates(shape, taint)


class NodeOrder(Plugin):
    """Adds up weighted scores of 0 to 100 each.

    Scores that need other pods (pod affinity, spreading) or images are left to kube-scheduler.
    """

    known = (
        "leastrequested.weight", "mostrequested.weight", "balancedresource.weight",
        "nodeaffinity.weight", "tainttoleration.weight",
    )  # fmt: skip
    #: kube-scheduler computes these scores.
    ignored_arguments = (
        "podaffinity.weight", "imagelocality.weight", "podtopologyspread.weight",
        "selectorspread.weight",
    )  # fmt: skip

    def configure(self) -> None:
        """Read how much each score weighs."""
        self._least = self.arguments.number("leastrequested.weight", 1)
        self._most = self.arguments.number("mostrequested.weight", 0)
        self._balanced = self.arguments.number("balancedresource.weight", 1)
        self._affinity = self.arguments.number("nodeaffinity.weight", 2)
        self._taints = self.arguments.number("tainttoleration.weight", 3)

    def scores(self, shape: Shape, table: ScoringTable) -> Scores:
        """Score the nodes of *table* for a pod of *shape*."""
        cpu, memory = (
            np.minimum(table.utilization(CPU), 1),
            np.minimum(table.utilization(MEMORY), 1),
        )
        # Balanced use: 100 less half the difference; the 100 is equal for all and left out.
        total: Scores = np.abs(cpu - memory) * (-50 * self._balanced)
        if self._least or self._most:
            full = (cpu + memory) * 50
            total += self._least * (100 - full) + self._most * full
        preferences = self._preferences(shape, table.facts)
        if preferences is not _NONE:
            total += preferences[table.rows]
        return total

    def _preferences(self, shape: Shape, facts: NodeFacts) -> Scores:
        key = ("preferences", self._affinity, self._taints, shape)
        return facts.memo.recall(key, lambda: self._prefer(shape, facts))

    def _prefer(self, shape: Shape, facts: NodeFacts) -> Scores:
        wanted = _scaled(_affinity(shape, facts)) * self._affinity
        avoided = _scaled(_avoided(shape, facts)) * self._taints
        score: Scores = wanted - avoided
        return score if score.any() else _NONE


_NONE: Scores = np.zeros(0)


def _affinity(shape: Shape, facts: NodeFacts) -> Scores:
    """Add up the weights of the preferred terms that each node matches."""
    scores, index = np.zeros(len(facts.nodes)), index_of(facts)
    for weight, term in shape.preferred:
        scores += weight * index.matching(term)
    return scores


def _avoided(shape: Shape, facts: NodeFacts) -> Scores:
    """Count the taints of each node that should be avoided and are not tolerated."""
    counts = index_of(facts).count_taints(lambda t: _is_soft(t) and not tolerates(shape, t))
    return counts.astype(np.float64)


def _is_soft(taint: Taint) -> bool:
    return taint.effect == "PreferNoSchedule"


def _scaled(scores: Scores) -> Scores:
    """Scale so that the highest is 100."""
    highest = scores.max(initial=0.0)
    return scores * (100 / highest) if highest > 0 else scores


class Binpack(Plugin):
    """Scores nodes by how full they would be, 0 to 100 times its weight."""

    known = (
        "binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources",
        "binpack.resources.*",
    )  # fmt: skip

    def configure(self) -> None:
        """Read how much each resource weighs."""
        self._weight = _at_least_zero(self.arguments.number("binpack.weight", 1))
        self._weights = {
            CPU: _at_least_zero(self.arguments.number("binpack.cpu", 1)),
            MEMORY: _at_least_zero(self.arguments.number("binpack.memory", 1)),
        }
        for word in self.arguments.text("binpack.resources").split(","):
            if name := word.strip():
                weight = self.arguments.number(f"binpack.resources.{name}", 1)
                self._weights[name] = _at_least_zero(weight)

    def scores(self, shape: Shape, table: ScoringTable) -> Scores:
        """Weigh how full each requested resource would be; a node that would overflow scores 0."""
        requested = [
            (name, w) for name, w in self._weights.items() if shape.requests.amount(name) > 0
        ]
        if not requested:
            return table.nothing
        scale = 100 * self._weight / (sum(weight for _, weight in requested) or 1.0)
        fills = [table.utilization(name) for name, _ in requested]
        total = fills[0] * (requested[0][1] * scale)
        fullest = fills[0]
        for fill, (_, weight) in zip(fills[1:], requested[1:], strict=True):
            total += fill * (weight * scale)
            fullest = np.maximum(fullest, fill)
        total[fullest > _FULL] = 0.0
        return total


#: Beyond rounding errors.
_FULL = 1 + 1e-9


def _at_least_zero(weight: float) -> float:
    return weight if weight >= 0 else 1.0

"""nodeorder: kube-scheduler's own scores, as far as they follow from requests and labels."""

from __future__ import annotations

import numpy as np

from extender.model.node import NodeFacts, Taint
from extender.model.pod import Shape
from extender.model.resources import CPU, MEMORY
from extender.plan.plugin import Plugin
from extender.plan.room.node_index import index_of
from extender.plan.room.node_match import tolerates
from extender.plan.room.prospect import Prospect, Scores


class NodeOrder(Plugin):
    """Adds up weighted scores of 0 to 100 each.

    What needs other pods (pod affinity, spreading, images) is left to kube-scheduler.
    """

    known = (
        "leastrequested.weight", "mostrequested.weight", "balancedresource.weight",
        "nodeaffinity.weight", "tainttoleration.weight",
    )  # fmt: skip
    #: kube-scheduler scores these.
    without_effect = (
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

    def scores(self, shape: Shape, prospect: Prospect) -> Scores:
        """Score the nodes of *prospect* for a pod of *shape*."""
        cpu, memory = np.minimum(prospect.fill(CPU), 1), np.minimum(prospect.fill(MEMORY), 1)
        # Balanced use: 100 less half the difference; the 100 is the same for all and left out.
        total: Scores = np.abs(cpu - memory) * (-50 * self._balanced)
        if self._least or self._most:
            full = (cpu + memory) * 50
            total += self._least * (100 - full) + self._most * full
        preferences = self._preferences(shape, prospect.facts)
        if preferences is not _NONE:
            total += preferences[prospect.rows]
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
    """Add up the weights of the preferred terms each node meets."""
    scores, index = np.zeros(len(facts.nodes)), index_of(facts)
    for weight, term in shape.preferred:
        scores += weight * index.matching(term)
    return scores


def _avoided(shape: Shape, facts: NodeFacts) -> Scores:
    """Count the taints of each node that ask to be avoided and are not tolerated."""
    counts = index_of(facts).count_taints(lambda t: _is_soft(t) and not tolerates(shape, t))
    return counts.astype(np.float64)


def _is_soft(taint: Taint) -> bool:
    return taint.effect == "PreferNoSchedule"


def _scaled(scores: Scores) -> Scores:
    """Scale so that the highest is 100."""
    highest = scores.max(initial=0.0)
    return scores * (100 / highest) if highest > 0 else scores

"""binpack: fill nodes up, so that whole nodes stay free for gangs that need them."""

from __future__ import annotations

import numpy as np

from extender.model.pod import Shape
from extender.model.resources import CPU, MEMORY
from extender.plan.arguments import Arguments
from extender.plan.plugins.plugin import Plugin
from extender.plan.prospect import Prospect, Scores


class Binpack(Plugin):
    """Scores nodes by how full they would be, 0 to 100 times its weight."""

    def __init__(self, arguments: Arguments, *, hierarchy: bool = False) -> None:
        super().__init__(arguments, hierarchy=hierarchy)
        self._weight = _at_least_zero(arguments.number("binpack.weight", 1))
        self._weights = {
            CPU: _at_least_zero(arguments.number("binpack.cpu", 1)),
            MEMORY: _at_least_zero(arguments.number("binpack.memory", 1)),
        }
        for word in arguments.text("binpack.resources").split(","):
            if name := word.strip():
                weight = arguments.number(f"binpack.resources.{name}", 1)
                self._weights[name] = _at_least_zero(weight)

    def scores(self, shape: Shape, prospect: Prospect) -> Scores:
        """Weigh how full each requested resource would be; a node that would overflow scores 0."""
        total = np.zeros(len(prospect))
        fits = np.ones(len(prospect), dtype=bool)
        weights = 0.0
        for name, weight in self._weights.items():
            if shape.requests.amount(name) <= 0:
                continue
            weights += weight
            fill = prospect.fill(name)
            total += fill * weight
            fits &= fill <= 1
        if not weights:
            return total
        scored: Scores = np.where(fits, total * (100 * self._weight / weights), 0.0)
        return scored


def _at_least_zero(weight: float) -> float:
    return weight if weight >= 0 else 1.0

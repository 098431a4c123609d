"""binpack: fill nodes up, so that whole nodes stay free for gangs that need them."""

from __future__ import annotations

import numpy as np

from extender.model.pod import Shape
from extender.model.resources import CPU, MEMORY
from extender.plan.plugin import Plugin
from extender.plan.room.prospect import Prospect, Scores


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

    def scores(self, shape: Shape, prospect: Prospect) -> Scores:
        """Weigh how full each requested resource would be; a node that would overflow scores 0."""
        asked = [(name, w) for name, w in self._weights.items() if shape.requests.amount(name) > 0]
        if not asked:
            return prospect.nothing
        scale = 100 * self._weight / (sum(weight for _, weight in asked) or 1.0)
        fills = [prospect.fill(name) for name, _ in asked]
        total = fills[0] * (asked[0][1] * scale)
        fullest = fills[0]
        for fill, (_, weight) in zip(fills[1:], asked[1:], strict=True):
            total += fill * (weight * scale)
            fullest = np.maximum(fullest, fill)
        total[fullest > _FULL] = 0.0
        return total


#: Beyond rounding.
_FULL = 1 + 1e-9


def _at_least_zero(weight: float) -> float:
    return weight if weight >= 0 else 1.0

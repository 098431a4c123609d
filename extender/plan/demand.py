"""What a gang asks others to make room for, and where it would go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from extender.model.pod import Pod, Shape
from extender.model.reason import Problem
from extender.model.resources import NOTHING, Resources
from extender.plan.plugin import Claim
from extender.plan.room.state import GangState
from extender.plan.session import Session


@dataclass(eq=False)
class Demand:
    """Members of a gang that need nodes, all of them or none."""

    gang: GangState
    pods: list[Pod]

    @property
    def claim(self) -> Claim:
        """Give the claim plugins are asked about: the first of the pods speaks for all."""
        return Claim(self.gang, self.pods[0])

    @cached_property
    def by_shape(self) -> dict[Shape, list[Pod]]:
        """Group the pods by shape, the most demanding first."""
        groups: dict[Shape, list[Pod]] = {}
        for pod in self.pods:
            groups.setdefault(pod.shape, []).append(pod)
        return dict(sorted(groups.items(), key=lambda group: -max(group[0].requests.values())))

    @property
    def is_uniform(self) -> bool:
        """Ask whether all pods are alike."""
        return len(self.by_shape) == 1

    @cached_property
    def total(self) -> Resources:
        """Add up what the pods ask for."""
        return sum((shape.requests * len(pods) for shape, pods in self.by_shape.items()), NOTHING)

    def is_allowed(self, session: Session) -> bool:
        """Ask whether the gang's queue may take all pods now."""
        for shape, pods in self.by_shape.items():
            allowed = session.opinions.allowance(self.gang, shape)
            if isinstance(allowed, Problem) or allowed < len(pods):
                return False
        return self.is_uniform or session.opinions.may_take(self.gang, Shape(requests=self.total))

    def assign(self, session: Session, *, idle: bool = False) -> list[tuple[Pod, int]] | None:
        """Find rows for all pods in room that is idle or coming; None when there is not enough.

        With *idle*, room that is only coming does not count.
        """
        idle_room, coming = session.room.idle, session.room.coming
        room = idle_room + (np.minimum(coming, 0) if idle else coming)
        found: list[tuple[Pod, int]] = []
        for shape, pods in self.by_shape.items():
            counts = session.places.count(room, shape)
            rows = np.flatnonzero(counts)
            # The tightest nodes first: what is left stays in as large pieces as possible.
            rows = rows[np.argsort(counts[rows], kind="stable")]
            spread = np.repeat(rows, counts[rows])[: len(pods)]
            if len(spread) < len(pods):
                return None
            np.subtract.at(room, spread, session.room.row(shape))
            found.extend(zip(pods, spread.tolist(), strict=True))
        return found


def needed_pods(session: Session, gang: GangState, tasks: Sequence[Pod] | None = None) -> list[Pod]:
    """Choose the waiting members that bring *gang* to its minimum, roles that lack some first."""
    tasks = session.waiting_tasks(gang) if tasks is None else tasks
    lacking = session.opinions.lacking(gang) - len(gang.pipelined)
    return gang.needed(tasks, lacking)

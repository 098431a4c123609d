"""Why there is no room: slots counted, and nodes counted by what is in the way."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import Shape
from extender.model.resources import CPU, MEMORY, PODS, Resources, write_amount
from extender.plan.session import Session


class RoomReport:
    """Answers about slots at the beginning, now, and in an empty cluster; once per shape."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._now: dict[Shape, int] = {}
        self._before: dict[Shape, int] = {}
        self._obstacles: dict[Shape, str] = {}

    def free_now(self, shape: Shape) -> int:
        """Count the slots that are left after this cycle's decisions."""
        if shape not in self._now:
            self._now[shape] = self._count(self._session.room.idle, shape)
        return self._now[shape]

    def free_before(self, shape: Shape) -> int:
        """Count the slots there were before this cycle decided anything."""
        if shape not in self._before:
            table = self._session.snapshot.nodes
            self._before[shape] = self._count(table.allocatable - table.used, shape)
        return self._before[shape]

    def free_if_empty(self, shape: Shape) -> int:
        """Count the slots there would be if nothing ran; remembered until a node changes."""
        table = self._session.snapshot.nodes
        places = self._session.places

        def count() -> int:
            usable = places.usable_at_all(shape)
            return int(places.count(table.allocatable, shape, usable).sum())

        return table.facts.memo.recall(("slots if empty", self._session.policy, shape), count)

    def obstacles(self, shape: Shape) -> str:
        """Say how many nodes are out for which reason: `12 nodes short of cpu, 3 tainted`."""
        if shape not in self._obstacles:
            self._obstacles[shape] = self._describe(shape)
        return self._obstacles[shape]

    def _count(self, room: Amounts, shape: Shape) -> int:
        return int(self._session.places.count(room, shape).sum())

    def _describe(self, shape: Shape) -> str:
        """Count every node once, by the first thing that is in the way."""
        session = self._session
        open_rows = np.ones(len(session.snapshot.nodes.nodes), dtype=bool)
        counts: list[tuple[int, str]] = []
        for word, mask in session.places.obstacles(shape).items():
            counts.append((int((mask & open_rows).sum()), word))
            open_rows &= ~mask
        misfits = session.places.misfits(shape) & open_rows
        counts.append((int(misfits.sum()), "refused by kube-scheduler"))
        open_rows &= ~misfits
        for name in _in_order(shape.requests):
            column = session.room.columns.get(name)
            short = open_rows
            if column is not None:
                short = open_rows & (session.room.idle[:, column] < shape.requests[name])
            counts.append((int(short.sum()), f"short of {name}"))
            open_rows = open_rows & ~short
        said = [(number, word) for number, word in counts if number]
        first, *others = [*said, (0, "")]
        if not first[0]:
            return ""
        noun = "node" if first[0] == 1 else "nodes"
        rest = [f", {number} {word}" for number, word in others if number]
        return f"{first[0]} {noun} {first[1]}{''.join(rest)}"


def write_need(shape: Shape) -> str:
    """Write what one pod asks for: `4 cpu, 16Gi memory`."""
    asked = [
        f"{write_amount(name, shape.requests[name])} {name}"
        for name in _in_order(shape.requests)
        if name != PODS
    ]
    return ", ".join(asked) or "a place"


def _in_order(requests: Resources) -> Iterable[str]:
    first = [name for name in (CPU, MEMORY) if requests.amount(name) > 0]
    others = sorted(n for n, a in requests.items() if a > 0 and n not in (CPU, MEMORY))
    return [*first, *others]

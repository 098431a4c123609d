"""The script of a chaos run, drawn from a seed before it begins: same seed, same turns.

Three lanes run in parallel: tenants, administrators and machines. A turn chooses its object by a
fraction of those that exist at its time, so that the script does not depend on the run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

QUEUES = ("default", "red", "blue")
PRIORITIES = ("", "chaos-low", "chaos-high")
NODES = tuple(f"chaos-{index}" for index in range(6))
NODE_CPU = 4
NAMESPACES = ("chaos-a", "chaos-b")

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One action, *after_s* seconds after the previous one of its lane."""

    after_s: float
    kind: str
    facts: Facts = field(default_factory=dict)

    def __str__(self) -> str:
        facts = ", ".join(f"{key} {_short(value)}" for key, value in self.facts.items())
        return f"{self.kind} ({facts})" if facts else self.kind


@dataclass(frozen=True, slots=True)
class Lane:
    """Kinds of turns, their weights, and the pause between two."""

    name: str
    pause_s: tuple[float, float]
    kinds: dict[str, tuple[int, Callable[[random.Random, Iterator[int]], Facts]]]

    def script(self, seed: int, seconds: float) -> list[Turn]:
        """Draw the turns of so many seconds: all kinds in random order, repeatedly."""
        rng = random.Random(f"{seed} {self.name}")
        numbers, turns, at = count(), list[Turn](), 0.0
        bag: list[str] = []
        while True:
            pause = round(rng.uniform(*self.pause_s), 2)
            at += pause
            if at >= seconds:
                return turns
            if not bag:
                bag = [kind for kind, (often, _) in self.kinds.items() for _ in range(often)]
                rng.shuffle(bag)
            kind = bag.pop()
            turns.append(Turn(pause, kind, self.kinds[kind][1](rng, numbers)))


def rounds(turns: Sequence[Turn], seconds: float, each_s: float) -> list[list[Turn]]:
    """Divide the turns of so many seconds into rounds of *each_s*."""
    made: list[list[Turn]] = [[] for _ in range(max(1, math.ceil(seconds / each_s)))]
    at = 0.0
    for turn in turns:
        at += turn.after_s
        made[min(int(at / each_s), len(made) - 1)].append(turn)
    return made


def _nothing(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {}


def _some(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {"which": round(rng.random(), 3)}


def _gang(rng: random.Random, numbers: Iterator[int]) -> Facts:
    size = rng.choice((2, 3, 3, 4, 5, 8))
    # One in eight needs more members than it has: it must wait.
    minimum = size + 1 if rng.random() < 0.125 else rng.randint(2, size)
    return {
        "name": f"gang{next(numbers)}",
        "namespace": rng.choice(NAMESPACES),
        "size": size,
        "minimum": minimum,
        "cpu": rng.choice((1, 1, 1, 2)),
        "queue": rng.choice(QUEUES),
        "priority": rng.choice(PRIORITIES),
        "run_s": round(rng.uniform(2, 15), 1),
        # Its last member is created so much later.
        "late_s": round(rng.uniform(0.1, 3), 1) if rng.random() < 0.25 else 0.0,
    }


def _single(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {
        "name": f"single{next(numbers)}",
        "namespace": rng.choice(NAMESPACES),
        "cpu": rng.choice((1, 2, 3)),
        "queue": rng.choice(QUEUES),
        "run_s": round(rng.uniform(2, 10), 1),
    }


def _members(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {
        **_some(rng, numbers),
        "count": rng.randint(1, 3),
        "at_once": rng.random() < 0.5,
    }


def _minimum(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {**_some(rng, numbers), "by": rng.choice((-2, -1, 1, 2))}


def _move(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {**_some(rng, numbers), "queue": rng.choice(QUEUES)}


def _rank(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {**_some(rng, numbers), "priority": rng.choice(PRIORITIES[1:])}


def _node(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {"node": rng.choice(NODES), "for_s": round(rng.uniform(1, 8), 1)}


def _resize(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {**_node(rng, numbers), "cpu": rng.choice((1, 2, 3, 6, 8))}


def _queue(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {
        "queue": rng.choice(QUEUES[1:]),
        "weight": rng.randint(1, 5),
        "cpu": rng.choice((4, 8, 12, 24)),
    }


def _close(rng: random.Random, numbers: Iterator[int]) -> Facts:
    return {"queue": rng.choice(QUEUES[1:]), "for_s": round(rng.uniform(1, 8), 1)}


def _pause(shortest: float, longest: float) -> Callable[[random.Random, Iterator[int]], Facts]:
    return lambda rng, numbers: {"for_s": round(rng.uniform(shortest, longest), 1)}


def _step(rng: random.Random, numbers: Iterator[int]) -> Facts:
    by = rng.choice((-86400, -3600, -60, -5, 5, 60, 3600, 86400))
    return {"side": rng.randint(0, 1), "by_s": by}


TENANTS = Lane(
    "tenants",
    (0.1, 0.9),
    {
        "gang": (10, _gang),
        "single": (2, _single),
        "delete members": (2, _members),
        "delete gang": (2, _some),
        "group edited": (2, _minimum),
        "group made anew": (2, _minimum),
        "gang made anew": (2, _some),
        "gang moved": (1, _move),
        "priority changed": (1, _rank),
    },
)
ADMINISTRATORS = Lane(
    "administrators",
    (0.5, 3.0),
    {
        "node lost": (1, _node),
        "node cordoned": (1, _node),
        "node tainted": (1, _node),
        "node resized": (1, _resize),
        "queue edited": (1, _queue),
        "queue closed": (1, _close),
        "etcd compacted": (1, _nothing),
    },
)
MACHINES = Lane(
    "machines",
    (2.0, 6.0),
    {
        "leader killed": (2, _nothing),
        "standby killed": (1, _nothing),
        "leader ended": (1, _nothing),
        "leader frozen": (1, _pause(1, 20)),
        "leader cut off": (1, _pause(1, 20)),
        "both killed": (1, _nothing),
        "kube-scheduler killed": (2, _nothing),
        "API server restarted": (1, _nothing),
        "API server killed": (1, _nothing),
        "API server frozen": (1, _pause(0.5, 8)),
        "clock stepped": (3, _step),
    },
)
LANES = (TENANTS, ADMINISTRATORS, MACHINES)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

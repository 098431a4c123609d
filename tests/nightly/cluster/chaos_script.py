"""What happens in a run of chaos, drawn from a seed before it begins: same seed, same turns.

Three lanes run side by side: tenants, administrators, and machines. A turn names what it means by a
fraction, of the gangs or nodes that are there when its time comes, so that a script can be played
on whatever a run has become.
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
    """One thing that is done, so many seconds after the one before it in its lane."""

    after_s: float
    kind: str
    facts: Facts = field(default_factory=dict)

    def __str__(self) -> str:
        told = ", ".join(f"{key} {_short(value)}" for key, value in self.facts.items())
        return f"{self.kind} ({told})" if told else self.kind


@dataclass(frozen=True, slots=True)
class Lane:
    """Kinds of turns, how often each, and the pause between two."""

    name: str
    pause_s: tuple[float, float]
    kinds: dict[str, tuple[int, Callable[[random.Random, Iterator[int]], Facts]]]

    def script(self, seed: int, seconds: float) -> list[Turn]:
        """Draw the turns of so many seconds: all kinds, shuffled, again and again."""
        chance = random.Random(f"{seed} {self.name}")
        numbers, turns, at = count(), list[Turn](), 0.0
        bag: list[str] = []
        while True:
            pause = round(chance.uniform(*self.pause_s), 2)
            at += pause
            if at >= seconds:
                return turns
            if not bag:
                bag = [kind for kind, (often, _) in self.kinds.items() for _ in range(often)]
                chance.shuffle(bag)
            kind = bag.pop()
            turns.append(Turn(pause, kind, self.kinds[kind][1](chance, numbers)))


def rounds(turns: Sequence[Turn], seconds: float, each_s: float) -> list[list[Turn]]:
    """Divide what is played in so many seconds into rounds of *each_s*."""
    made: list[list[Turn]] = [[] for _ in range(max(1, math.ceil(seconds / each_s)))]
    at = 0.0
    for turn in turns:
        at += turn.after_s
        made[min(int(at / each_s), len(made) - 1)].append(turn)
    return made


def _nothing(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {}


def _some(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {"which": round(chance.random(), 3)}


def _gang(chance: random.Random, numbers: Iterator[int]) -> Facts:
    size = chance.choice((2, 3, 3, 4, 5, 8))
    # One in eight asks for more members than it has: it must wait, whole.
    minimum = size + 1 if chance.random() < 0.125 else chance.randint(2, size)
    return {
        "name": f"gang{next(numbers)}",
        "namespace": chance.choice(NAMESPACES),
        "size": size,
        "minimum": minimum,
        "cpu": chance.choice((1, 1, 1, 2)),
        "queue": chance.choice(QUEUES),
        "priority": chance.choice(PRIORITIES),
        "run_s": round(chance.uniform(2, 15), 1),
        # The last of its members come so much later.
        "late_s": round(chance.uniform(0.1, 3), 1) if chance.random() < 0.25 else 0.0,
    }


def _single(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {
        "name": f"single{next(numbers)}",
        "namespace": chance.choice(NAMESPACES),
        "cpu": chance.choice((1, 2, 3)),
        "queue": chance.choice(QUEUES),
        "run_s": round(chance.uniform(2, 10), 1),
    }


def _members(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {
        **_some(chance, numbers),
        "count": chance.randint(1, 3),
        "at_once": chance.random() < 0.5,
    }


def _minimum(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {**_some(chance, numbers), "by": chance.choice((-2, -1, 1, 2))}


def _move(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {**_some(chance, numbers), "queue": chance.choice(QUEUES)}


def _rank(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {**_some(chance, numbers), "priority": chance.choice(PRIORITIES[1:])}


def _node(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {"node": chance.choice(NODES), "for_s": round(chance.uniform(1, 8), 1)}


def _resize(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {**_node(chance, numbers), "cpu": chance.choice((1, 2, 3, 6, 8))}


def _queue(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {
        "queue": chance.choice(QUEUES[1:]),
        "weight": chance.randint(1, 5),
        "cpu": chance.choice((4, 8, 12, 24)),
    }


def _close(chance: random.Random, numbers: Iterator[int]) -> Facts:
    return {"queue": chance.choice(QUEUES[1:]), "for_s": round(chance.uniform(1, 8), 1)}


def _pause(shortest: float, longest: float) -> Callable[[random.Random, Iterator[int]], Facts]:
    return lambda chance, numbers: {"for_s": round(chance.uniform(shortest, longest), 1)}


def _step(chance: random.Random, numbers: Iterator[int]) -> Facts:
    by = chance.choice((-86400, -3600, -60, -5, 5, 60, 3600, 86400))
    return {"side": chance.randint(0, 1), "by_s": by}


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

"""Small random clusters in the form of the behaviour tables.

What Volcano itself decided for each is recorded in `volcano_answers.json`: the same objects and
configuration, run through its own session at ed72c7c. Every object has its own creation time and
there is one node, so that no decision is random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from extender.planner.policy_parser import CALLBACKS
from tests.unit.planner.case_objects import Case, flag

T = TypeVar("T")
Written = dict[str, Any]

G = 1000**3
_GPU = "nvidia.com/gpu"
_NEVER = {"HyperNodeOrder", "SubJobReady", "SubJobPipelined", "SubJobOrder", "HyperNodeGradient"}
_NEVER |= {"ClusterOrder", "NamespaceOrder"}
_ALL = [flag(callback) for callback in CALLBACKS if callback not in _NEVER]

#: The usual policies: actions, and plugins by tier; a dash names a callback that is off.
POLICIES: dict[str, tuple[str, list[str]]] = {
    "allocate": ("allocate backfill", ["priority gang", "drf predicates proportion nodeorder"]),
    "enqueue": (
        "enqueue allocate backfill",
        ["priority gang conformance", "overcommit drf predicates proportion nodeorder"],
    ),
    "preempt": (
        "allocate preempt",
        ["priority gang conformance", "drf-Preemptable predicates proportion nodeorder"],
    ),
    "forgotten vetoes": (
        "allocate preempt",
        ["priority gang conformance", "drf predicates proportion nodeorder"],
    ),
    "one tier": ("preempt", ["conformance gang priority proportion predicates"]),
    "reclaim": ("reclaim", ["conformance gang proportion predicates"]),
    "everything": (
        "enqueue reclaim allocate backfill preempt",
        ["priority gang conformance", "drf predicates proportion nodeorder"],
    ),
    "capacity": ("enqueue allocate reclaim", ["capacity predicates gang-Reclaimable nodeorder"]),
    "tree": ("enqueue reclaim allocate", ["capacity predicates gang-Reclaimable nodeorder"]),
    "hierarchical drf": ("allocate reclaim", ["drf gang predicates nodeorder"]),
}


class Dice:
    """Random choices that are the same in every version of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self, choices: Sequence[T]) -> T:
        return choices[int(self._random.random() * len(choices))]

    def number(self, least: int, most: int) -> int:
        return least + int(self._random.random() * (most - least + 1))

    def happens(self, chance: float) -> bool:
        return self._random.random() < chance


class CaseGenerator:
    """Makes one case."""

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.policy = self.dice.one(sorted(POLICIES))
        self.is_tree, self.is_capacity = self.policy == "tree", self.policy in ("tree", "capacity")
        self._moment = 0
        self._free: Written = {}

    def case(self) -> Case:
        actions, tiers = POLICIES[self.policy]
        node = self._node()
        queues = self._queues()
        leaves = [q["name"] for q in queues if q["name"] not in ("root", "a", "b")]
        groups, pods = [], []
        for number in range(self.dice.number(1, 5)):
            group, members = self._gang(f"pg{number}", leaves, "enqueue" in actions)
            groups.append(group)
            pods += members
        return {
            "impl": "volcano",
            "actions": actions.split(),
            "plugins": [[self._plugin(each) for each in tier.split()] for tier in tiers],
            "nodes": [node],
            "queues": queues,
            "podgroups": groups,
            "pods": pods,
            "priority_classes": [{"name": "low", "value": 10}, {"name": "high", "value": 1000}],
        }

    def _plugin(self, written: str) -> Written:
        name, _, silent = written.partition("-")
        enabled = [each for each in _ALL if each != flag(silent)]
        option: Written = {"name": name, "enable": enabled, "arguments": {}}
        if self.policy == "tree" and name == "capacity":
            option["arguments"] = {"ancestorReclaimLevel": self.dice.number(0, 2)}
            enabled.append("enableHierarchy")
        if self.policy == "hierarchical drf" and name == "drf":
            enabled.append("enableHierarchy")
        return option

    def _now(self) -> str:
        self._moment += 1
        return f"2026-01-01T00:{self._moment // 60:02}:{self._moment % 60:02}Z"

    def _node(self) -> Written:
        node: Written = {
            "name": "n0",
            "cpu_milli": 1000 * self.dice.number(2, 12),
            "memory_bytes": G * self.dice.number(2, 12),
            "pods": self.dice.one([4, 10, 20]),
        }
        if self.dice.happens(0.3):
            node["scalars"] = {_GPU: 4}
        gpus = node.get("scalars", {}).get(_GPU, 0)
        self._free = {
            "cpu_milli": node["cpu_milli"],
            "memory_bytes": node["memory_bytes"],
            "pods": node["pods"],
            _GPU: gpus,
        }
        return node

    def _amounts(self, least: int, most: int) -> Written:
        number = self.dice.number
        return {"cpu_milli": 1000 * number(least, most), "memory_bytes": G * number(least, most)}

    def _queues(self) -> list[Written]:
        if not self.is_tree:
            count = self.dice.one([1, 2, 2, 3])
            return [self._queue(f"q{number}") for number in range(count)]
        root = {"name": "root", "weight": 1, "created": self._now()}
        places = {"a": "root", "b": "root", "a1": "a", "a2": "a", "b1": "b"}
        return [root, *({**self._queue(name), "parent": up} for name, up in places.items())]

    def _queue(self, name: str) -> Written:
        happens = self.dice.happens
        queue: Written = {"name": name, "weight": self.dice.number(1, 3), "created": self._now()}
        if happens(0.5):
            queue["capability"] = self._amounts(3, 14)
        if self.is_capacity and happens(0.8):
            queue["deserved"] = self._amounts(1, 6)
        if not self.is_tree and happens(0.2):
            queue["guarantee"] = self._amounts(1, 2)
        if happens(0.2):
            queue["priority"] = self.dice.number(0, 2)
        if happens(0.15):
            queue["reclaimable"] = False
        if happens(0.05):
            queue["state"] = "Closed"
        if self.policy == "hierarchical drf":
            queue["hierarchy"] = f"root/{self.dice.one('ab')}/{name}"
            queue["hierarchy-weights"] = f"1/1/{self.dice.number(1, 3)}"
        return queue

    def _gang(self, name: str, queues: list[str], may_pend: bool) -> tuple[Written, list[Written]]:
        dice = self.dice
        size = dice.number(1, 5)
        least = dice.one([0, 1, 1, min(2, size), size, size])
        asked: Written = {"cpu_milli": dice.one([500, 1000, 1000, 2000, 3000])}
        asked["memory_bytes"] = G * dice.one([0, 1, 1, 2, 3])
        if dice.happens(0.1):
            asked["scalars"] = {_GPU: 1}
        runs, roles = dice.happens(0.5), dice.happens(0.15)
        members = [self._pod(name, number, asked, roles, runs) for number in range(size)]
        scheduled = sum("node" in member for member in members)
        group: Written = {
            "namespace": "ns",
            "name": name,
            "min_member": least,
            "queue": dice.one(queues),
            "phase": dice.one(["Inqueue", "Inqueue", "Pending" if may_pend else "Inqueue"]),
            "created": self._now(),
        }
        if scheduled and scheduled >= least and dice.happens(0.5):
            group["phase"] = "Running"
        if roles:
            group["min_task_member"] = {"m": dice.number(0, 1), "w": dice.number(0, 2)}
        if dice.happens(0.5):
            group["priority_class"] = dice.one(["low", "high"])
        if dice.happens(0.4):
            count = max(1, least)
            group["min_resources"] = {
                "cpu_milli": asked["cpu_milli"] * count,
                "memory_bytes": max(1, asked["memory_bytes"] * count),
            }
        return group, members

    def _pod(self, gang: str, number: int, asked: Written, roles: bool, runs: bool) -> Written:
        dice = self.dice
        labels = {"job": gang}
        if roles:
            labels["volcano.sh/task-spec"] = dice.one(["m", "w"])
        if dice.happens(0.1):
            labels["volcano.sh/preemptable"] = dice.one(["false", "true"])
        pod: Written = {
            "namespace": "ns",
            "name": f"{gang}-p-{number}",
            "group": gang,
            "phase": "Pending",
            "labels": labels,
            "created": self._now(),
        }
        if not dice.happens(0.08):
            pod |= asked
        if dice.happens(0.1):
            pod["priority"] = dice.one([-5, 5, 50])
        if runs and dice.happens(0.85) and self._fits_on_the_node(pod):
            pod["node"] = "n0"
            pod["phase"] = dice.one(["Running"] * 9 + ["Pending"])
            if dice.happens(0.05):
                pod["leaves"] = "2026-01-01T01:00:00Z"
        return pod

    def _fits_on_the_node(self, pod: Written) -> bool:
        asked = {name: pod.get(name, 0) for name in ("cpu_milli", "memory_bytes")}
        asked |= {"pods": 1, _GPU: pod.get("scalars", {}).get(_GPU, 0)}
        if any(self._free[name] < amount for name, amount in asked.items()):
            return False
        for name, amount in asked.items():
            self._free[name] -= amount
        return True

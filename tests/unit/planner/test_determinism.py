"""Same cluster, same plan, byte for byte, whatever the interpreter's hash seed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

VOLCANO = "scheduling.volcano.sh/v1beta1"


def crowded(chance: random.Random) -> list[dict[str, Any]]:
    """Many gangs that run, wait, borrow and matter differently."""
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}"},
            "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "20"}},
        }
        for number in range(6)
    ]
    queues = [
        {
            "apiVersion": VOLCANO,
            "kind": "Queue",
            "metadata": {"name": f"q{number}"},
            "spec": {"weight": number + 1},
        }
        for number in range(3)
    ]
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"p{value}"},
            "value": value,
        }
        for value in (0, 10)
    ]
    listed = {"gang-extender.io/priority-classes": "p0, p10"}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "a", "annotations": listed},
    }
    things: list[dict[str, Any]] = [*nodes, *queues, *classes, namespace]
    for number in range(24):
        size = chance.randint(1, 4)
        group = {
            "apiVersion": VOLCANO,
            "kind": "PodGroup",
            "metadata": {"name": f"g{number}", "namespace": "a"},
            "spec": {
                "minMember": chance.randint(1, size),
                "queue": f"q{number % 3}",
                "priorityClassName": chance.choice(["p0", "p0", "p10"]),
            },
        }
        pods = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"g{number}-w-{index}",
                    "namespace": "a",
                    "uid": f"u-{number}-{index}",
                    "annotations": {"scheduling.k8s.io/group-name": f"g{number}"},
                },
                "spec": {
                    "schedulerName": "volcano",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
                    **({"nodeName": f"n{(number + index) % 6}"} if number < 8 else {}),
                },
                "status": {"phase": "Running" if number < 8 else "Pending"},
            }
            for index in range(size)
        ]
        things += [group, *pods]
    return things


def planned(path: Path, seed: str) -> str:
    command = [sys.executable, "-m", "extender", "plan", "-f", str(path), "-o", "json"]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    return ran.stdout


def test_shuffled_files_and_other_hash_seeds_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    things = crowded(chance)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": things}))
    chance.shuffle(things)
    second.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": things}))

    told = planned(first, "1")

    assert told == planned(second, "2")
    assert json.loads(told)["evictions"], "a plan in which nobody leaves would prove little"

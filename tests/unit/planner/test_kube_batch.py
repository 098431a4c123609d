"""kube-batch's groups have no phase and its files no starving vote: both work unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.planner.test_cases import decide

Written = dict[str, Any]


def case(
    action: str, plugins: Written, cpus: int, running: int, waiting: int, two: bool
) -> Written:
    """Write a node full of one group, and another that waits, in the same queue or in *two*."""

    def pod(group: str, number: int, **rest: Any) -> Written:
        asked = {"cpu_milli": 1000, "memory_bytes": 10**9}
        return {"namespace": "a", "name": f"{group}-{number}", "group": group, **asked, **rest}

    queues = {"old": "q1", "new": "q2" if two else "q1"}
    return {
        "actions": [action],
        "plugins": [[{"name": name, "enable": flags} for name, flags in plugins.items()]],
        "nodes": [{"name": "n1", "cpu_milli": cpus * 1000, "memory_bytes": cpus * 10**9}],
        "queues": [{"name": name, "weight": 1} for name in sorted(set(queues.values()))],
        "podgroups": [
            {"namespace": "a", "name": name, "min_member": 0, "queue": queue}
            for name, queue in queues.items()
        ],
        "pods": [
            *(pod("old", number, phase="Running", node="n1") for number in range(running)),
            *(pod("new", number, phase="Pending") for number in range(waiting)),
        ],
        "priority_classes": [],
    }


@pytest.mark.parametrize("compatibility", ["", "volcano"])
def test_a_group_preempts_another_in_its_queue(compatibility: str, tmp_path: Path) -> None:
    votes = {"conformance": ["enablePreemptable"], "gang": ["enablePreemptable"]}
    decided = decide(case("preempt", votes, 2, 2, 2, two=False), tmp_path, compatibility)

    assert len(decided["evictions"]) == 2


@pytest.mark.parametrize("compatibility", ["", "volcano"])
def test_a_queue_reclaims_from_another(compatibility: str, tmp_path: Path) -> None:
    votes = {"conformance": ["enableReclaimable"], "gang": ["enableReclaimable"]}
    decided = decide(case("reclaim", votes, 3, 3, 1, two=True), tmp_path, compatibility)

    assert len(decided["evictions"]) == 1


@pytest.mark.parametrize("compatibility", ["", "volcano"])
def test_two_queues_take_turns(compatibility: str, tmp_path: Path) -> None:
    votes = {"drf": ["enableJobOrder"], "proportion": ["enableQueueOrder"]}
    written = case("allocate", votes, 2, 0, 2, two=True)
    for pod in [dict(pod, name=f"old-{n}", group="old") for n, pod in enumerate(written["pods"])]:
        written["pods"].append(pod)
    decided = decide(written, tmp_path, compatibility)

    assert set(decided["binds"]) == {"a/new-0", "a/old-0"}

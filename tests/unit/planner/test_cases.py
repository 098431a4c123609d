"""The behaviour tables of kube-batch and Volcano, run through `gang-extender plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.plan import plan
from tests.unit.planner.case_objects import Case, cases, objects, policy_file
from tests.unit.planner.random_cases import POLICIES, CaseGenerator

CLUSTERS = [
    case
    for case in cases(
        "kubebatch_actions",
        "volcano_allocate",
        "volcano_capacity",
        "volcano_enqueue",
        "volcano_preempt",
        "volcano_proportion",
        "volcano_reclaim",
    )
    if case.get("kind") is None
]


def decide(case: Case, folder: Path, compatibility: str) -> dict[str, Any]:
    """Plan the case as a user would: files in, JSON out."""
    cluster, config = folder / "cluster.json", folder / "policy.yaml"
    cluster.write_text(json.dumps(objects(case)))
    config.write_text(yaml.safe_dump(policy_file(case, compatibility)))
    arguments = ["-f", str(cluster), "--config", str(config), "-o", "json"]
    result = CliRunner().invoke(plan, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def differences(expected: dict[str, Any], decided: dict[str, Any]) -> list[str]:
    """List the differences from the table."""
    phases = {f"{g['namespace']}/{g['name']}": g["phase"] for g in decided["gangs"]}
    nodes = {
        f"{g['namespace']}/{g['name']}": sorted(set(g["pipelined"].values()))
        for g in decided["gangs"]
    }
    left = sorted(each["pod"] for each in decided["evictions"])
    found = {
        "binds": decided["binds"],
        "bind_count": len(decided["binds"]),
        "evicts": left,
        "evict_count": len(left),
        "podgroup_phase": {key: phases[key] for key in expected.get("podgroup_phase", {})},
        "pipelined_nodes_by_group": {
            key: nodes[key] for key in expected.get("pipelined_nodes_by_group", {})
        },
    }
    return [
        f"{key}: expected {expected[key]}, got {found[key]}"
        for key in found
        if key in expected and expected[key] != found[key]
    ]


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case["id"])
def test_the_tables_of_kube_batch_and_volcano_come_out_the_same(case: Case, tmp_path: Path) -> None:
    assert differences(case["expect"], decide(case, tmp_path, "volcano")) == []


#: Cases that our own rules decide differently, and why; the sample has none.
CHANGED: dict[str, str] = {}


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case["id"])
def test_our_own_rules_change_only_the_cases_that_are_listed(case: Case, tmp_path: Path) -> None:
    changed = differences(case["expect"], decide(case, tmp_path, "")) != []

    assert changed == (case["id"] in CHANGED)


ANSWERS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "volcano_answers.json").read_text()
)


def answer(decided: dict[str, Any]) -> dict[str, Any]:
    """Shorten a plan to what was recorded; what is empty is left out."""
    gangs = decided["gangs"]
    found = {
        "binds": sorted(key.partition("/")[2] for key in decided["binds"]),
        "evicts": sorted(each["pod"].partition("/")[2] for each in decided["evictions"]),
        "pipelined": {g["name"]: len(g["pipelined"]) for g in gangs if g["pipelined"]},
        "pending": sorted(g["name"] for g in gangs if g["phase"] == "Pending"),
    }
    return {key: value for key, value in found.items() if value}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_generated_clusters_come_out_as_in_volcano(policy: str, tmp_path: Path) -> None:
    seeds = [int(seed) for seed in ANSWERS if CaseGenerator(int(seed)).policy == policy]
    wrong = {}
    for seed in seeds:
        found = answer(decide(CaseGenerator(seed).case(), tmp_path, "volcano"))
        if found != ANSWERS[str(seed)]:
            wrong[seed] = (found, ANSWERS[str(seed)])

    assert len(seeds) >= 30
    assert wrong == {}


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

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

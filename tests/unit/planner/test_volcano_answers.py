"""Random clusters are decided as Volcano itself decided them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.planner.random_cases import POLICIES, CaseGenerator
from tests.unit.planner.test_cases import decide

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

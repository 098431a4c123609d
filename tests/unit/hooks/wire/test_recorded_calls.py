"""Calls as the real kube-scheduler sent them, with the expected response of each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.web.conftest import HookCall, World, call, world  # noqa: F401 (fixtures)

HERE = Path(__file__).parent
RECORDED = sorted(file.name.removesuffix(".call.json") for file in HERE.glob("*.call.json"))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_call_gets_its_answer(name: str, world: World, call: HookCall) -> None:  # noqa: F811
    asked = json.loads((HERE / f"{name}.call.json").read_text())
    expected = json.loads((HERE / f"{name}.answer.json").read_text())
    for node in ("node-0", "node-1"):
        world.node(node, cpus=2)
    if name == "filter-member":
        world.group("train", 2, namespace="wire")
        # It is admitted as a new gang, as it was when it was recorded.
        asked["Pod"]["metadata"]["creationTimestamp"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    before = json.loads((HERE / "filter-ordinary.call.json").read_text())
    world.manifests.put({"kind": "Pod", **before["Pod"]})
    if name == "bind-ordinary":
        call("filter", before)

    reply = call(name.partition("-")[0], asked)

    assert reply.status == 200
    assert reply.json == expected


def test_every_verb_was_recorded() -> None:
    assert {name.partition("-")[0] for name in RECORDED} == {
        "filter",
        "prioritize",
        "preempt",
        "bind",
    }

"""Calls as the real kube-scheduler sent them, with the answer we owe beside each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.web.conftest import Door, World, call, world  # noqa: F401 (fixtures)

HERE = Path(__file__).parent
RECORDED = sorted(file.name.removesuffix(".call.json") for file in HERE.glob("*.call.json"))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_call_gets_its_answer(name: str, world: World, call: Door) -> None:  # noqa: F811
    asked = json.loads((HERE / f"{name}.call.json").read_text())
    owed = json.loads((HERE / f"{name}.answer.json").read_text())
    for node in ("node-0", "node-1"):
        world.node(node, cpus=2)
    if name == "filter-member":
        world.group("train", 2, namespace="wire")
        # It is let in because it arrives, as it did when it was recorded.
        asked["Pod"]["metadata"]["creationTimestamp"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    before = json.loads((HERE / "filter-ordinary.call.json").read_text())
    world.cluster.create({"kind": "Pod", **before["Pod"]}, keep_uid=True)
    if name == "bind-ordinary":
        call("filter", before)

    reply = call(name.partition("-")[0], asked)

    assert reply.status == 200
    assert reply.json == owed


def test_every_verb_was_recorded() -> None:
    assert {name.partition("-")[0] for name in RECORDED} == {
        "filter",
        "prioritize",
        "preempt",
        "bind",
    }

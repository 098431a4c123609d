"""Alive, ready, and what one should know though both are true."""

from __future__ import annotations

from pathlib import Path

from tests.web.conftest import OPS, World, eventually, through_asgi


def metric(world: World, name: str) -> float:
    text = through_asgi(world, port=OPS)("metrics", b"", method="GET").body.decode()
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return float(line.split()[1])


def test_a_policy_file_that_cannot_be_used_is_told_by_probe_and_metric(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("actions: allocate")
    with World(config=str(file)) as world:
        ask = through_asgi(world, port=OPS)
        assert metric(world, "gang_extender_policy_refused") == 0

        file.write_text("actions: alocate")
        world.node("node-0")
        eventually(lambda: metric(world, "gang_extender_policy_refused") == 1)

        ready = ask("readyz", b"", method="GET")
        assert ready.status == 200
        assert b"alocate" in ready.body

        file.write_text("actions: allocate, backfill")
        world.node("node-1")
        eventually(lambda: metric(world, "gang_extender_policy_refused") == 0)
        assert b"policy" not in ask("readyz", b"", method="GET").body

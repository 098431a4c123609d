"""Liveness, readiness, and warnings that change neither."""

from __future__ import annotations

from pathlib import Path

from extender.web.app import Probes
from tests.unit.web.conftest import World, eventually


def metric(world: World, name: str) -> float:
    text = world.runtime.pages.test_client().get("/metrics").text
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return float(line.split()[1])


def findings(world: World) -> list[tuple[str, str, str]] | None:
    """The findings; None before the first audit."""
    reply = world.runtime.pages.test_client().get("/api/v1/findings")
    if reply.status_code == 503:
        return None
    return [(each["kind"], each["name"], each["reason"]) for each in reply.get_json()]


def test_readiness_has_a_metric_even_without_probes() -> None:
    with World() as world:
        world.node("node-0")

        eventually(lambda: metric(world, "gang_extender_ready") == 1)
        assert metric(world, "gang_extender_cache_synced") == 1
        eventually(lambda: metric(world, "gang_extender_last_cycle_timestamp_seconds") > 0)


def test_every_outcome_has_a_series_before_the_first_call() -> None:
    with World() as world:
        text = world.runtime.pages.test_client().get("/metrics").text

    assert (
        'gang_extender_hook_answers_total{outcome="InsufficientCapacity",verb="filter"} 0.0' in text
    )
    assert 'gang_extender_bind_wait_seconds_count{cause="peer_gone"} 0.0' in text
    assert 'gang_extender_status_writes_total{kind="Queue",outcome="failed"} 0.0' in text
    assert 'gang_extender_evictions_total{action="preempt",outcome="failed"} 0.0' in text


def test_the_readiness_probe_shows_policy_fields_without_effect(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "{compatibility: volcano, tiers: [{plugins: [{name: gang, arguments: {x: 1}}]}]}"
    )
    with World(config=str(file)) as world:
        ready = world.runtime.pages.test_client().get("/readyz")

        assert ready.status_code == 200
        assert "plugin gang has no argument 'x'" in ready.text


def test_every_message_of_the_probe_is_one_line_of_text() -> None:
    told = ["pol\x1b[2J\x9bi\ncy.yaml: unknown action"]
    probes = Probes(why_not_ready=list, warmth=list, standby=list, notes=lambda: told)

    assert probes.ask("/readyz") == (200, "ok\npol\ufffd[2J\ufffdi\ufffdcy.yaml: unknown action\n")


def test_an_invalid_policy_file_is_shown_by_probe_and_metric(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("actions: allocate")
    with World(config=str(file)) as world:
        pages = world.runtime.pages.test_client()
        assert metric(world, "gang_extender_policy_refused") == 0

        file.write_text("actions: alocate")
        world.node("node-0")
        eventually(lambda: metric(world, "gang_extender_policy_refused") == 1)

        ready = pages.get("/readyz")
        assert ready.status_code == 200
        assert "alocate" in ready.text
        eventually(lambda: findings(world) == [("Policy", str(file), "Refused")])

        file.write_text("actions: allocate, backfill")
        world.node("node-1")
        eventually(lambda: metric(world, "gang_extender_policy_refused") == 0)
        assert "policy" not in pages.get("/readyz").text
        eventually(lambda: findings(world) == [])


def test_a_hook_call_has_a_timestamp_for_its_scheduler(world: World) -> None:
    name = 'gang_extender_last_hook_timestamp_seconds{scheduler="gang-scheduler"}'
    never = 'gang_extender_last_hook_timestamp_seconds{scheduler="volcano"}'

    assert metric(world, name) > 1e9, "the fixture has asked already"
    assert metric(world, never) == 0

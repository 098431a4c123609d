"""The minimum runtime of a gang, whichever replica led when it started."""

from __future__ import annotations

import pytest

from extender.model.gang import Gang
from extender.model.pod import Status
from tests.builders import NOW, pod
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.evictions.runner_harness import RunnerHarness

MINE = {"old-0", "old-1"}


def gang_started_at(*ago_s: float, min_member: int = 2) -> Gang:
    """A gang that waited for an hour, with members that started at these times."""
    pods = [
        pod(f"old-{index}", on="n", created=NOW - 3600, began=NOW - each)
        for index, each in enumerate(ago_s)
    ]
    return gang("old", pods, min_member=min_member, created=NOW - 3600)


def test_a_gang_that_started_just_before_this_process_has_its_minimum_runtime_too() -> None:
    harness, young = RunnerHarness(min_run_s=30), gang_started_at(20, 10)
    assert harness.protected(young) == MINE, "at the first look, before anything was noted"

    harness.clock.advance(19)
    assert harness.protected(young) == MINE
    harness.clock.advance(1)
    assert harness.protected(young) == set()


def test_a_gang_that_restarted_under_another_leader_has_its_minimum_runtime_too() -> None:
    harness = RunnerHarness(min_run_s=30)
    before = gang("old", 2)
    harness.history.note(snapshot(before, now=NOW - 1800), plan(verdict("a/old")))

    assert harness.protected(gang_started_at(10, 10)) == MINE
    assert harness.protected(gang_started_at(40, 40)) == set()


def test_surplus_members_do_not_change_the_start_of_their_gang() -> None:
    harness = RunnerHarness(min_run_s=30)

    assert harness.protected(gang_started_at(60, 60, 1)) == set()
    assert harness.protected(gang_started_at(60, 10, 1)) == {*MINE, "old-2"}


def test_a_gang_with_too_few_running_members_has_not_started() -> None:
    harness = RunnerHarness(min_run_s=30)

    assert harness.protected(gang_started_at(10, min_member=2)) == set()
    waits = gang("old", 2, status=Status.PENDING)
    assert harness.protected(waits) == set()


@pytest.mark.parametrize(("ahead_s", "names"), [(5, MINE), (3600, set())])
def test_a_node_whose_clock_is_ahead_does_not_protect_its_pods_for_long(
    ahead_s: float, names: set[str]
) -> None:
    assert RunnerHarness(min_run_s=30).protected(gang_started_at(-ahead_s, -ahead_s)) == names

"""Kept room that is used meanwhile: the giant starts as it would, and the rest is not idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.plan.actions.meanwhile import MARGIN_S
from extender.plan.policy.options import Starvation
from extender.sim.outcome import Outcome
from extender.sim.world.workloads import Run
from tests.bench.bench_backfill import HEAD, HONEST, LIARS, LINES, ran, row

PAGE = (Path(__file__).parents[3] / "docs" / "backfill.md").read_text()


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], Outcome]:
    return {(long, word): ran(long, policy) for long, word, policy in LINES}


def the_giant(outcome: Outcome) -> Run:
    (giant,) = (run for run in outcome.runs if run.job.name.startswith("giant"))
    return giant


def start(outcome: Outcome) -> float:
    at = the_giant(outcome).first_started_at
    assert at is not None
    return at


def test_the_giant_starts_at_the_same_moment_and_more_of_the_cluster_is_used(
    outcomes: dict[tuple[str, str], Outcome],
) -> None:
    without, with_it = outcomes[HONEST, "0s"], outcomes[HONEST, "10m"]

    assert start(with_it) == start(without)
    assert with_it.used["cpu"].mean() > without.used["cpu"].mean()
    assert not any(run.evicted for run in with_it.runs)


def test_where_the_long_ones_lied_it_starts_later_by_no_more_than_the_policy_says(
    outcomes: dict[tuple[str, str], Outcome],
) -> None:
    without, with_it = outcomes[LIARS, "0s"], outcomes[LIARS, "10m"]

    assert start(with_it) - start(without) <= Starvation().backfill_s


def test_the_page_has_the_table_that_the_command_prints(
    outcomes: dict[tuple[str, str], Outcome],
) -> None:
    lines = PAGE.splitlines()

    for each in HEAD.splitlines():
        assert each in lines
    for long, word, _ in LINES:
        assert row(long, word, outcomes[long, word]) in lines


def test_the_page_has_the_bounds_that_hold() -> None:
    assert f"`starvation.backfill` ({Starvation().backfill_s / 60:.0f} minutes)" in PAGE
    assert MARGIN_S == 60.0
    assert "a minute" in PAGE

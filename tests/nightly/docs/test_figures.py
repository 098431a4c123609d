"""The figures and outputs in the manual are current."""

from __future__ import annotations

import pytest

from extender.planner.policy import Starvation
from tests.bench.bench_backfill import EARLY, EXACT
from tests.nightly.docs.figures import FIGURES, MARK, backfill, written
from tests.unit.docs.tables.parts import parts


def test_every_part_has_a_figure_and_every_figure_a_part() -> None:
    assert {each.name for each in parts(MARK)} == set(FIGURES)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FIGURES)
def test_part_is_current(name: str) -> None:
    shown = {each.text for each in parts(MARK) if each.name == name}

    assert shown == {written(name)[name]}, "run: .venv/bin/python -m tests.nightly.docs"


def start(long: str, word: str) -> float:
    """Return when the large gang started."""
    (large,) = (run for run in backfill(long, word).runs if run.job.name.startswith("giant"))
    assert large.first_started_at is not None
    return large.first_started_at


@pytest.mark.timeout(300)
def test_backfill_uses_reserved_capacity_without_delaying_the_large_gang() -> None:
    without, with_it = backfill(EXACT, "0s"), backfill(EXACT, "10m")

    assert start(EXACT, "10m") == start(EXACT, "0s")
    assert with_it.used["cpu"].mean() > without.used["cpu"].mean()
    assert not any(run.evicted for run in with_it.runs)


@pytest.mark.timeout(300)
def test_wrong_durations_delay_the_large_gang_by_at_most_the_configured_time() -> None:
    assert start(EARLY, "10m") - start(EARLY, "0s") <= Starvation().backfill_s

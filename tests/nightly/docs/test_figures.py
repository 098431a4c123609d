"""The figures and outputs of the manual are those of the runs that it tells of."""

from __future__ import annotations

import pytest

from extender.planner.policy import Starvation
from tests.bench.bench_backfill import HONEST, LIARS
from tests.nightly.docs.figures import FIGURES, MARK, backfill, written
from tests.unit.docs.tables.parts import parts


def test_every_part_has_its_figure_and_every_figure_its_part() -> None:
    assert sorted(each.name for each in parts(MARK)) == sorted(FIGURES)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FIGURES)
def test_a_page_shows_what_its_run_gives(name: str) -> None:
    (shown,) = (each for each in parts(MARK) if each.name == name)

    assert shown.text == written(name)[name], "run: .venv/bin/python -m tests.nightly.docs"


def start(long: str, word: str) -> float:
    """Give when the giant began."""
    (giant,) = (run for run in backfill(long, word).runs if run.job.name.startswith("giant"))
    assert giant.first_started_at is not None
    return giant.first_started_at


@pytest.mark.timeout(300)
def test_used_meanwhile_kept_room_delays_the_giant_by_nothing_and_idles_less() -> None:
    without, with_it = backfill(HONEST, "0s"), backfill(HONEST, "10m")

    assert start(HONEST, "10m") == start(HONEST, "0s")
    assert with_it.used["cpu"].mean() > without.used["cpu"].mean()
    assert not any(run.evicted for run in with_it.runs)


@pytest.mark.timeout(300)
def test_where_the_long_ones_lied_the_giant_starts_later_by_no_more_than_the_policy_says() -> None:
    assert start(LIARS, "10m") - start(LIARS, "0s") <= Starvation().backfill_s

"""How long one gang or several gangs of one name are expected to run."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from extender.forecast.durations import MEDIAN, _learnt, spread


def test_quantiles_are_spread_evenly_for_any_number_of_gangs() -> None:
    assert [spread(number) for number in range(1, 8)] == [
        1 / 2,
        1 / 4,
        3 / 4,
        1 / 8,
        5 / 8,
        3 / 8,
        7 / 8,
    ]
    parts = sorted(spread(number) for number in range(1, 101))
    gaps = [after - before for before, after in pairwise(parts)]

    assert 0 < parts[0] < parts[-1] < 1
    assert max(gaps) <= 2 * min(gaps)


@pytest.mark.parametrize("durations", [[5.0], [3.0, 9.0], [8.0, 1.0, 4.0], [2.0, 8.0, 4.0, 6.0]])
def test_a_single_gang_is_expected_to_run_as_long_as_the_median(durations: list[float]) -> None:
    lasting = _learnt(durations, len(durations), MEDIAN)

    assert lasting.seconds == median(durations)
    assert lasting.ended is None


def test_many_gangs_are_expected_to_end_with_the_earlier_distribution() -> None:
    earlier = [float(minute) for minute in range(1, 65)]
    lasting = [_learnt(earlier, 64, spread(number)) for number in range(1, 65)]

    assert min(each.seconds for each in lasting) <= 2
    assert max(each.seconds for each in lasting) >= 63
    assert sum(each.seconds for each in lasting) / 64 == pytest.approx(median(earlier), rel=0.02)
    assert all(e.ended == sum(1 for n in earlier if n <= e.seconds) for e in lasting[1:])

"""The delay before another attempt."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.durations import Backoff, spread, with_retry_after

BACKOFF = Backoff(0.25, 2.0)


def test_there_is_no_delay_before_the_first_failure() -> None:
    assert BACKOFF.delay_s(0) == 0


def test_each_failure_doubles_the_wait_up_to_a_limit() -> None:
    assert [BACKOFF.delay_s(failures) for failures in range(1, 7)] == [0.25, 0.5, 1, 2, 2, 2]


def test_no_number_of_failures_is_too_large() -> None:
    assert BACKOFF.delay_s(10**9) == 2.0


@given(failures=st.integers(1, 100), chance=st.floats(0, 1))
def test_jitter_shortens_a_delay_by_at_most_half(failures: int, chance: float) -> None:
    assert (
        BACKOFF.delay_s(failures) / 2
        <= BACKOFF.delay_s(failures, chance)
        <= BACKOFF.delay_s(failures)
    )


def test_jitter_spreads_a_delay_between_half_and_all_of_it() -> None:
    assert [spread(10, chance) for chance in (0.0, 0.5, 1.0)] == [5, 7.5, 10]


def test_retry_after_is_respected_with_some_jitter_added() -> None:
    assert with_retry_after(0.05, 2.0, left_s=40.0, chance=0.0) == 2.0
    assert with_retry_after(0.05, 2.0, left_s=40.0, chance=1.0) == 2.5


def test_retry_after_does_not_shorten_the_own_backoff() -> None:
    assert with_retry_after(1.0, 0.0, left_s=40.0, chance=0.0) == 1.0
    assert with_retry_after(1.0, 3.0, left_s=0.0, chance=0.0) == 1.0


def test_retry_after_uses_at_most_half_of_the_time_left() -> None:
    assert with_retry_after(0.05, 3600.0, left_s=40.0, chance=1.0) == 20.0

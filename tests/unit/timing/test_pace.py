"""No more than so many a second."""

from __future__ import annotations

from extender.clock import RateLimit


def test_a_burst_goes_at_once_and_the_rest_at_the_given_rate() -> None:
    pace = RateLimit(per_s=10, burst=2, monotonic=lambda: 0.0)

    assert [round(pace.acquire(), 3) for _ in range(4)] == [0, 0, 0.1, 0.2]


def test_turns_come_back_with_time_but_no_more_than_a_burst() -> None:
    now = [0.0]
    pace = RateLimit(per_s=1, burst=2, monotonic=lambda: now[0])
    taken = [pace.try_acquire() for _ in range(3)]
    now[0] = 100.0

    assert taken == [True, True, False]
    assert [pace.try_acquire() for _ in range(3)] == [True, True, False]

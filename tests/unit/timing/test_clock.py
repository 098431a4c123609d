"""Timestamps, the system clock and the rate limit."""

from __future__ import annotations

import sys
import time

import pytest

from extender.cache.freshness import Freshness
from extender.clock import RateLimit, SystemClock, timestamp
from extender.leader.fencing import Term


def test_a_timestamp_is_written_in_whole_seconds_of_utc() -> None:
    assert timestamp(86_400.9) == "1970-01-02T00:00:00Z"


def test_the_real_clock_never_goes_back() -> None:
    clock = SystemClock()
    seen = [clock.monotonic() for _ in range(100)]

    assert seen == sorted(seen)
    assert clock.now() > 1_700_000_000


class Machine:
    """A machine that may be suspended, with the clocks of Linux."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.awake_s, self.asleep_s = 1000.0, 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.awake_s)
        monkeypatch.setattr(time, "clock_gettime", self._clock)

    def _clock(self, which: int) -> float:
        return self.awake_s + (self.asleep_s if which == time.CLOCK_BOOTTIME else 0.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only there a clock is known that runs on")
def test_after_a_suspend_of_the_machine_the_lease_is_over_and_the_cache_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, clock = Machine(monkeypatch), SystemClock()
    term, freshness = Term(clock.monotonic), Freshness()
    term.begin(clock.monotonic() + 10)
    freshness.expect("pods", clock.monotonic())
    freshness.listed("pods", clock.monotonic())
    assert term.current()
    assert freshness.problems(clock.monotonic()) == []

    machine.asleep_s += 3600

    assert not term.current()
    assert freshness.problems(clock.monotonic()) == ["pods: watch silent for 3600 s"]


def test_a_burst_is_not_delayed_and_the_rest_follows_at_the_given_rate() -> None:
    rate = RateLimit(per_s=10, burst=2, monotonic=lambda: 0.0)

    assert [round(rate.acquire(), 3) for _ in range(4)] == [0, 0, 0.1, 0.2]


def test_the_budget_refills_with_time_up_to_one_burst() -> None:
    now = [0.0]
    rate = RateLimit(per_s=1, burst=2, monotonic=lambda: now[0])
    taken = [rate.try_acquire() for _ in range(3)]
    now[0] = 100.0

    assert taken == [True, True, False]
    assert [rate.try_acquire() for _ in range(3)] == [True, True, False]

"""Timestamps, the system clock, the rate limit, timers of the event loop, and backoff."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest
from hypothesis import given, strategies as st

from extender.cache.freshness import Freshness
from extender.clock import LoopTimer, RateLimit, SystemClock, timestamp
from extender.durations import Backoff, spread, with_retry_after
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


def test_callbacks_run_in_the_thread_of_the_loop():
    async def scene() -> tuple[list[int], int]:
        timer = LoopTimer(asyncio.get_running_loop())
        heard: list[int] = []
        both = asyncio.Event()

        def hear() -> None:
            heard.append(threading.get_ident())
            if len(heard) == 2:
                both.set()

        def ask() -> None:
            timer.call_soon(hear)
            timer.call_later(0.001, hear)

        await asyncio.to_thread(ask)
        await both.wait()
        return heard, threading.get_ident()

    heard, loop_thread = asyncio.run(scene())
    assert heard == [loop_thread, loop_thread]


def test_a_timer_of_a_closed_loop_does_nothing():
    loop = asyncio.new_event_loop()
    timer = LoopTimer(loop)
    loop.close()
    called: list[str] = []
    timer.call_soon(lambda: called.append("soon"))
    timer.call_later(0.0, lambda: called.append("later"))

    assert called == []

"""Times as Kubernetes writes them."""

from __future__ import annotations

from extender.timing.clock import SystemClock, timestamp


def test_a_time_is_written_in_whole_seconds_of_utc() -> None:
    assert timestamp(86_400.9) == "1970-01-02T00:00:00Z"


def test_the_real_clock_never_goes_back() -> None:
    clock = SystemClock()
    seen = [clock.monotonic() for _ in range(100)]

    assert seen == sorted(seen)
    assert clock.now() > 1_700_000_000

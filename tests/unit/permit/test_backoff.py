"""The backoff of a gang that did not assemble."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.model.gang import GangKey
from extender.permit.timeouts import GangBackoff, Timeouts

from .world import GANG

LIMITS = Timeouts(backoff_s=10, max_backoff_s=120)


def test_each_abort_doubles_the_wait_up_to_the_limit():
    gangs = GangBackoff(LIMITS, chance=lambda: 0.0)

    assert [gangs.aborted(GANG, 100.0) for _ in range(6)] == [10, 20, 40, 80, 120, 120]


@given(chance=st.floats(0, 1, exclude_max=True), aborts=st.integers(1, 100))
def test_jitter_only_ever_adds_and_never_more_than_a_quarter(chance, aborts):
    gangs = GangBackoff(LIMITS, chance=lambda: chance)
    spans = [gangs.aborted(GANG, 0.0) for _ in range(aborts)]

    plain = min(10.0 * 2 ** (aborts - 1), 120.0)
    assert plain <= spans[-1] <= plain * 1.25


def test_the_backoff_ends():
    gangs = GangBackoff(LIMITS, chance=lambda: 0.0)
    gangs.aborted(GANG, 100.0)

    assert gangs.is_active(GANG, 109.9)
    assert not gangs.is_active(GANG, 110.0)
    assert not gangs.is_active(GangKey("team/other"), 100.0)


def test_the_backoff_starts_over_after_a_long_pause():
    gangs = GangBackoff(LIMITS, chance=lambda: 0.0)
    for _ in range(4):
        gangs.aborted(GANG, 100.0)

    assert gangs.aborted(GANG, 100.0 + 80 + 2 * 120 + 1) == 10


def test_the_number_of_remembered_gangs_is_bounded():
    gangs = GangBackoff(LIMITS, chance=lambda: 0.0, remembered=2)
    for name in ("a", "b", "a", "c"):
        gangs.aborted(GangKey(f"team/{name}"), 0.0)

    assert gangs.is_active(GangKey("team/a"), 1.0)
    assert gangs.is_active(GangKey("team/c"), 1.0)
    assert not gangs.is_active(GangKey("team/b"), 1.0)

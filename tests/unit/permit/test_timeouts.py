"""Timeouts, configured or learnt from closed connections, and the backoff of gangs."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from extender.model.gang import GangKey
from extender.permit.timeouts import GangBackoff, LearnedTimeout, Timeouts

from .world import GANG

CONFIGURED = Timeouts()


def disconnect_at(patience: LearnedTimeout, *ages: float, every_s: float = 10.0) -> float:
    now = 1000.0
    for age in ages:
        now += every_s
        patience.peer_closed(age, now)
    return now


def test_the_time_left_after_the_wait_is_divided():
    limits = Timeouts.within(hold_s=60, bind_timeout_s=90, max_waiting_binds=7)

    assert (limits.verify_s, limits.commit_s, limits.margin_s) == (4, 20, 6)
    assert limits.bind_timeout_s == 90
    assert limits.max_waiting_binds == 7


def test_calls_that_repeatedly_disconnect_at_the_same_age_show_the_timeout():
    patience = LearnedTimeout(CONFIGURED)
    disconnect_at(patience, 5.01, 5.0, 5.03)

    assert patience.learnt_timeout_s == 5.0
    assert patience.current.bind_timeout_s == pytest.approx(5.0)
    assert patience.current.hold_s == pytest.approx(30 * 5 / 45)


@pytest.mark.parametrize(
    ("ages", "every_s"),
    [
        ((5.0, 5.0, 5.0, 5.0), 0.01),
        ((5.0, 12.0, 5.0, 7.0), 10.0),
        ((0.0, 0.0, 0.0), 10.0),
        ((45.0, 45.0, 45.0), 10.0),
    ],
    ids=["a restart closes all at once", "different ages", "at once", "as configured"],
)
def test_other_disconnects_teach_nothing(ages, every_s):
    patience = LearnedTimeout(CONFIGURED)
    disconnect_at(patience, *ages, every_s=every_s)

    assert patience.learnt_timeout_s is None
    assert patience.current is CONFIGURED


def test_a_learnt_timeout_is_forgotten_after_a_while():
    patience = LearnedTimeout(CONFIGURED)
    now = disconnect_at(patience, 5.0, 5.0, 5.0)

    patience.expire(now + 599)
    assert patience.current != CONFIGURED
    patience.expire(now + 601)
    assert patience.current is CONFIGURED
    assert patience.learnt_timeout_s is None


LIMITS = Timeouts(backoff_s=10, max_backoff_s=120)


@given(chance=st.floats(0, 1, exclude_max=True), aborts=st.integers(1, 100))
def test_jitter_only_ever_adds_and_never_more_than_a_quarter(chance, aborts):
    gangs = GangBackoff(LIMITS, chance=lambda: chance)
    spans = [gangs.aborted(GANG, 0.0) for _ in range(aborts)]

    plain = min(10.0 * 2 ** (aborts - 1), 120.0)
    assert plain <= spans[-1] <= plain * 1.25


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

"""Timeouts, configured or learnt from the connections that kube-scheduler closes."""

from __future__ import annotations

import pytest

from extender.permit.timeouts import LearnedTimeout, Timeouts

CONFIGURED = Timeouts()


def disconnect_at(patience: LearnedTimeout, *ages: float, every_s: float = 10.0) -> float:
    now = 1000.0
    for age in ages:
        now += every_s
        patience.peer_closed(age, now)
    return now


def test_the_timeouts_add_up_to_kube_schedulers_timeout():
    assert CONFIGURED.bind_timeout_s == 45


def test_the_time_left_after_the_wait_is_divided():
    limits = Timeouts.within(hold_s=60, bind_timeout_s=90, max_waiting_binds=7)

    assert (limits.verify_s, limits.commit_s, limits.margin_s) == (4, 20, 6)
    assert limits.bind_timeout_s == 90
    assert limits.max_waiting_binds == 7


def test_a_gang_that_is_too_large_for_the_usual_budget_needs_more():
    assert CONFIGURED.commit_needs_s(2_500) == CONFIGURED.commit_s
    assert CONFIGURED.commit_needs_s(10_000) == 40


def test_calls_that_repeatedly_disconnect_at_the_same_age_show_the_timeout():
    patience = LearnedTimeout(CONFIGURED)
    disconnect_at(patience, 5.01, 5.0, 5.03)

    assert patience.learnt_timeout_s == 5.0
    assert patience.current.bind_timeout_s == pytest.approx(5.0)
    assert patience.current.hold_s == pytest.approx(30 * 5 / 45)


def test_a_restart_that_closes_everything_at_once_teaches_nothing():
    patience = LearnedTimeout(CONFIGURED)
    disconnect_at(patience, 5.0, 5.0, 5.0, 5.0, every_s=0.01)

    assert patience.learnt_timeout_s is None


def test_ages_that_differ_teach_nothing():
    patience = LearnedTimeout(CONFIGURED)
    disconnect_at(patience, 5.0, 12.0, 5.0, 7.0)

    assert patience.learnt_timeout_s is None


def test_callers_that_disconnect_at_once_teach_nothing():
    patience = LearnedTimeout(CONFIGURED)
    disconnect_at(patience, 0.0, 0.0, 0.0)

    assert patience.learnt_timeout_s is None


def test_a_timeout_as_configured_changes_nothing():
    patience = LearnedTimeout(CONFIGURED)
    disconnect_at(patience, 45.0, 45.0, 45.0)

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

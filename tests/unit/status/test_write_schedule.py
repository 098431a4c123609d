"""When a status is written: soon after a change, later for details, never twice."""

from __future__ import annotations

from math import inf

import pytest

from extender.status.desired import (
    LAST_PAUSE_S,
    PATIENCE_S,
    WAITING_PAUSES_S,
    DesiredStatus,
    WriteSchedule,
)


def content(head: str, detail: int = 0, settle_s: float = 0.25) -> DesiredStatus:
    return DesiredStatus((head,), {"head": head, "detail": detail}, settle_s)


def written(head: str, at: float = 0.0) -> WriteSchedule:
    schedule = WriteSchedule()
    schedule.want(content(head), at)
    schedule.wrote({}, content(head), at)
    return schedule


def test_a_change_is_written_after_a_short_delay() -> None:
    schedule = written("Pending")
    schedule.want(content("Running"), 10.0)

    assert schedule.due() == 10.25
    assert schedule.wanted() == content("Running")


def test_a_status_that_keeps_changing_is_still_written() -> None:
    schedule = written("Pending")
    for step in range(20):
        schedule.want(content(f"head {step}"), 10 + step / 10)

    assert schedule.due() == 10 + PATIENCE_S + 0.25


def test_a_change_that_reverts_before_it_was_written_is_never_written() -> None:
    schedule = written("Pending")
    schedule.want(content("Running"), 10.0)
    schedule.want(content("Pending"), 10.1)

    assert schedule.due() == inf
    assert schedule.wanted() is None


def test_details_are_delayed_longer_each_time_until_the_next_change_of_status() -> None:
    schedule = written("Pending", at=0.0)
    pauses, now = [], 0.0
    for detail in range(1, 10):
        wanted = content("Pending", detail)
        schedule.want(wanted, now)
        pauses.append(schedule.due() - now)
        now = schedule.due()
        schedule.wrote({}, wanted, now)

    assert pauses[:4] == pytest.approx([WAITING_PAUSES_S * 2**step for step in range(4)])
    assert pauses[-1] == pytest.approx(LAST_PAUSE_S)
    schedule.want(content("Running"), now)
    schedule.wrote({}, content("Running"), now)
    schedule.want(content("Running", 1), now)
    assert schedule.due() - now == pytest.approx(WAITING_PAUSES_S)


def test_a_status_that_was_read_is_not_written_again() -> None:
    schedule = WriteSchedule()
    schedule.want(content("Pending"), 0.0)
    schedule.found(
        {"theirs": 1}, DesiredStatus(("Pending",), {**content("Pending").body, "theirs": 1}), 1.0
    )

    assert schedule.due() == inf
    assert schedule.known == {"theirs": 1}


def test_a_write_that_keeps_failing_is_retried_less_and_less_often() -> None:
    schedule = written("Pending")
    schedule.want(content("Running"), 0.0)
    pauses = []
    for _ in range(8):
        schedule.failed(0.0)
        pauses.append(schedule.due() - 0.25)

    assert pauses == [2, 4, 8, 16, 32, LAST_PAUSE_S, LAST_PAUSE_S, LAST_PAUSE_S]


def test_a_change_during_a_write_is_written_next() -> None:
    schedule = written("Pending")
    schedule.want(content("Running"), 10.0)
    schedule.want(content("Completed"), 10.3)
    schedule.wrote({}, content("Running"), 10.4)

    assert schedule.wanted() == content("Completed")
    assert schedule.due() == 10.3 + 0.25

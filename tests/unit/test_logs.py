"""The rate limit of repeated log lines."""

from __future__ import annotations

import logging

import pytest

from extender.logs import RateLimitedLog
from extender.sim.clock import VirtualClock

log = logging.getLogger(__name__)


def test_repeated_log_lines_are_written_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    seldom = RateLimitedLog(log, 60.0, clock.monotonic)
    for number in range(5):
        seldom.event(logging.WARNING, "event not written", 500, why=f"no {number}")
    clock.advance(61)
    seldom.event(logging.WARNING, "event not written", 500, why="no more")

    assert [record.facts for record in caplog.records] == [  # type: ignore[attr-defined]
        {"why": "no 0", "status": 500},
        {"why": "no more", "status": 500, "unsaid": 4},
    ]


def test_another_event_or_status_is_logged_separately(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seldom = RateLimitedLog(log, 60.0, VirtualClock().monotonic)
    seldom.event(logging.WARNING, "event not written", 500)
    seldom.event(logging.WARNING, "event not written", 403)
    seldom.event(logging.WARNING, "status not written", 403)

    assert len(caplog.records) == 3

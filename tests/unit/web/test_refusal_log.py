"""Refusals: all are counted, and the log has a limited number of lines."""

from __future__ import annotations

import logging

import pytest

from extender.hooks.limits import RefusalLog
from extender.metrics import Metrics
from extender.sim.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def refusals(metrics: Metrics, clock: VirtualClock) -> RefusalLog:
    return RefusalLog("hooks", metrics, clock.monotonic)


def counted(metrics: Metrics, reason: str) -> float:
    value = metrics.registry.get_sample_value(
        "gang_extender_calls_refused_total", {"port": "hooks", "reason": reason}
    )
    assert value is not None
    return value


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_a_reason_is_logged_once_a_minute_and_counted_every_time(
    refusals: RefusalLog, metrics: Metrics, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        refusals.record("full", "10.0.0.9")
    clock.advance(60)
    refusals.record("full", "10.0.0.9")

    assert counted(metrics, "full") == 4
    assert len(said(caplog)) == 2
    assert [each.__dict__["facts"]["not_logged_before"] for each in caplog.records] == [0, 2]


def test_a_connection_without_a_request_is_counted_and_not_logged(
    refusals: RefusalLog, metrics: Metrics, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2_000):
        clock.advance(1.0)
        refusals.disconnected("10.0.0.9", 1)

    assert counted(metrics, "left") == 2_000
    assert not said(caplog)


def test_many_connections_without_a_request_are_logged_once_a_minute(
    refusals: RefusalLog, metrics: Metrics, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(12_000):
        clock.advance(0.01)
        refusals.disconnected("10.0.0.9", 10)

    assert counted(metrics, "left") == 120_000
    assert len(said(caplog)) == 2

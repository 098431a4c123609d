"""Refusals are delayed, cost little work, block no other client, and are counted and logged."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from extender.hooks import server
from extender.hooks.limits import RefusalLog
from extender.metrics import Metrics
from extender.sim.clock import VirtualClock
from tests.unit.web.conftest import World, eventually
from tests.unit.web.wire import Wire, question, refused, request

#: Longer than any test here waits for a response.
AGES_S = 60.0
NOT_HTTP = b"\x16\x03\x01 hello\r\n\r\n"
CHUNKS = (
    b"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 2_000
)


@pytest.fixture
def slow_world() -> Iterator[World]:
    with World(
        limits=replace(server.LIMITS, refusal_delay_s=AGES_S, connections=4, defer_accept_s=0)
    ) as made:
        yield made


@pytest.mark.parametrize("call", [NOT_HTTP, request(b"{}").replace(b"json", b"text"), CHUNKS])
def test_an_unknown_client_gets_its_refusal_after_a_delay(call: bytes) -> None:
    with World(limits=replace(server.LIMITS, refusal_delay_s=0.3)) as world:
        began = time.monotonic()
        with closing(Wire(world.hook_port)) as wire:
            wire.send(call)
            wire.ends_with_status()

        assert time.monotonic() - began >= 0.3


def test_a_trusted_client_is_refused_at_once(slow_world: World) -> None:
    slow_world.node("node-0")
    with closing(Wire(slow_world.hook_port)) as wire:
        wire.send(request(question(slow_world)))
        wire.read(b"}")
        wire.send(NOT_HTTP)

        assert wire.ends_with_status() == 400


def test_input_after_a_refused_request_is_not_read(slow_world: World) -> None:
    with closing(Wire(slow_world.hook_port)) as wire:
        wire.send(NOT_HTTP)
        eventually(lambda: refused(slow_world, "not_http") == 1)
        wire.send(NOT_HTTP, request(b"{}"))
        with closing(Wire(slow_world.hook_port)) as another:
            another.send(request(question(slow_world)))
            another.read(b"}")

    assert refused(slow_world, "not_http") == 1


def test_refused_connections_are_closed_first_when_the_limit_is_reached(slow_world: World) -> None:
    clients = [Wire(slow_world.hook_port) for _ in range(4)]
    for each in clients:
        each.send(NOT_HTTP)
    eventually(lambda: refused(slow_world, "not_http") == 4)
    with closing(Wire(slow_world.hook_port)) as late:
        late.send(request(question(slow_world)))
        late.read(b"}")

    assert clients[0].is_closed()
    assert refused(slow_world, "full") == 1
    for each in clients:
        each.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def refusals(metrics: Metrics, clock: VirtualClock) -> RefusalLog:
    return RefusalLog("hooks", metrics, clock.monotonic)


def counted(metrics: Metrics, reason: str) -> float | None:
    labels = {"port": "hooks", "reason": reason}
    return metrics.registry.get_sample_value("gang_extender_calls_refused_total", labels)


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


@pytest.mark.parametrize(
    ("every_s", "count", "lines"), [(1.0, 1, 0), (0.05, 10, 2)], ids=["probes", "a crowd"]
)
def test_only_very_many_connections_without_a_request_are_logged_once_a_minute(
    refusals: RefusalLog,
    metrics: Metrics,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    every_s: float,
    count: int,
    lines: int,
) -> None:
    for _ in range(2_000):
        clock.advance(every_s)
        refusals.disconnected("10.0.0.9", count)

    assert counted(metrics, "left") == 2_000 * count
    assert len(said(caplog)) == lines

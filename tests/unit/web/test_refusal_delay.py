"""A refusal is delayed; it costs little work and does not block other clients."""

from __future__ import annotations

import http.client
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from extender.hooks import server
from extender.web import server as pageport
from extender.web.server import OperationsServer
from tests.unit.web.conftest import World, eventually
from tests.unit.web.test_connection_limits import refused
from tests.unit.web.test_hook_server import Wire, question, request

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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127/8")
def test_many_short_connections_to_the_operations_port_are_refused_and_a_probe_is_not(
    slow_world: World,
) -> None:
    limits = replace(pageport.LIMITS, address_burst=20, address_rate_per_s=1e-3)
    pages = OperationsServer(slow_world.runtime.pages, limits=limits)
    pages.start(slow_world.ops_socket)
    try:
        for _ in range(100):
            with socket.create_connection(
                ("127.0.0.1", slow_world.ops_port), source_address=("127.0.0.3", 0)
            ) as line:
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        probe = http.client.HTTPConnection("127.0.0.1", slow_world.ops_port, timeout=20)
        with closing(probe):
            probe.request("GET", "/healthz")

            assert probe.getresponse().status == 200
        eventually(lambda: refused(slow_world, "crowd") == 80)
    finally:
        pages.stop()

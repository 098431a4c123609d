"""Limits of both ports on memory, time and connections."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import pytest
import uvloop

from extender.hooks import server
from extender.hooks.limits import Limits
from extender.web import server as pageport
from extender.web.server import OperationsServer
from tests.unit.web.conftest import World, eventually, operations
from tests.unit.web.wire import HEADERS, Wire, question, refused, request, send_waiting_bind

MIB = 1024 * 1024
HOOKS = replace(server.LIMITS, bodies=2 * MIB, connections=8, defer_accept_s=0)
PAGES = replace(pageport.LIMITS, connections=8, defer_accept_s=0)
#: For tests that wait for a timeout.
SHORT = {"idle_s": 0.3, "call_s": 0.3, "answer_s": 0.3, "sweep_s": 0.05}


@pytest.fixture
def limits() -> Limits:
    return HOOKS


@pytest.fixture
def world(limits: Limits) -> Iterator[World]:
    made = World(limits=limits, new_loop=uvloop.new_event_loop)
    # Otherwise the kernel buffers megabytes, and nothing is left to drop.
    made.hook_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    with made:
        yield made


@pytest.fixture
def pages(world: World) -> Iterator[OperationsServer]:
    with operations(world, limits=PAGES) as made:
        yield made


@pytest.fixture(params=["hooks", "operations"])
def number(request: pytest.FixtureRequest, world: World, pages: OperationsServer) -> int:
    """Return the number of each port in turn."""
    return world.hook_port if request.param == "hooks" else world.ops_port


def drips(wire: Wire, drop: bytes) -> float:
    """Send *drop* repeatedly until the server closes the connection; return the seconds."""
    began = time.monotonic()
    with suppress(ConnectionError):
        while not select.select([wire.socket], [], [], 0.05)[0]:
            wire.send(drop)
            assert time.monotonic() - began < 20
    return time.monotonic() - began


@pytest.mark.parametrize("limits", [replace(HOOKS, **SHORT)], ids=["short"])
@pytest.mark.parametrize(
    ("begin", "drop", "count"),
    [(b"POST /filter HTTP/1.1\r\nX-Slow: ", b"a", 1), (b"", b"\r\n", 0)],
    ids=["a slow request", "blank lines"],
)
def test_a_client_that_sends_slowly_gets_no_more_time(
    world: World, begin: bytes, drop: bytes, count: int
) -> None:
    with closing(Wire(world.hook_port)) as wire:
        wire.send(begin)
        drips(wire, drop)

        assert wire.is_closed()
    eventually(lambda: refused(world, "slow") == count)


CHUNKED = f"POST /filter HTTP/1.1\r\n{HEADERS}Transfer-Encoding: chunked\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"a" * 8192),
        (b"GET / HTTP/1.1\r\nX-", b"a" * 8192),
        (b"GET / HTTP/1.1\r\nX-A: ", b"a" * 8192),
        (b"GET / HTTP/1.1\r\n", b"a:b\r\n" * 2000),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a:b\r\n" * 2000),
    ],
    ids=["path", "name", "value", "headers", "trailers"],
)
def test_an_endless_request_head_is_refused_early(world: World, begin: bytes, more: bytes) -> None:
    with closing(Wire(world.hook_port)) as wire:
        wire.send(begin)
        with suppress(ConnectionError):
            wire.send(*[more] * 64)

        assert wire.ends_with_status() in (431, None)
    eventually(lambda: refused(world, "head") == 1)


def test_a_connection_above_the_limit_closes_the_longest_idle_one(
    world: World, number: int
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Wire(number))) for _ in range(8)]
        late = stack.enter_context(closing(Wire(number)))

        assert clients[0].is_closed()
        late.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert late.reads_something()
    assert refused(world, "full") == 1


def test_many_unknown_clients_close_no_trusted_connection_and_no_waiting_bind(
    world: World,
) -> None:
    with ExitStack() as stack:
        waiting, caller = (stack.enter_context(closing(Wire(world.hook_port))) for _ in range(2))
        send_waiting_bind(world, waiting)
        caller.send(request(question(world)))
        assert b"200 OK" in caller.read(b"}")

        for _ in range(40):
            stack.enter_context(closing(Wire(world.hook_port)))
        eventually(lambda: refused(world, "full") >= 33)

        caller.send(request(question(world)))
        assert b"200 OK" in caller.read(b"}")
        assert world.runtime.core.permit.waiting_binds == 1


def test_idle_unknown_clients_do_not_delay_the_responses_to_binds(world: World) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Wire(world.hook_port))) for _ in range(3)]
        clients[0].send(request(b"{}", "nothing"))
        clients[0].read(b"}")
        assert clients[0].is_closed()
        eventually(lambda: len(world.port.connections) == 2)
        assert world.port.bind_responses.idle == set()

        clients[1].send(request(question(world)))
        clients[1].read(b"}")
        assert len(world.port.bind_responses.idle) == 1, "an answered client may be kube-scheduler"


def test_request_bodies_have_a_total_limit_and_the_oldest_is_dropped_first(
    world: World,
) -> None:
    head = f"POST /filter HTTP/1.1\r\n{HEADERS}Content-Length: {MIB + 9}\r\n\r\n".encode()
    with ExitStack() as stack:
        first, second, third = (
            stack.enter_context(closing(Wire(world.hook_port))) for _ in range(3)
        )
        first.send(head, b" " * MIB)
        eventually(lambda: sum(each.buffered for each in world.port.connections) == MIB)
        second.send(head, b" " * MIB)
        eventually(lambda: sum(each.buffered for each in world.port.connections) == 2 * MIB)
        third.send(request(question(world)))

        assert b"200 OK" in third.read(b"}")
        assert first.is_closed()
    assert refused(world, "memory") == 1


@pytest.mark.parametrize("limits", [replace(HOOKS, read_interval_s=60.0)], ids=["slow turns"])
def test_large_bodies_of_unknown_clients_are_read_in_turns_and_delay_no_other_client(
    world: World,
) -> None:
    head = f"POST /filter HTTP/1.1\r\n{HEADERS}Content-Length: {MIB + 9}\r\n\r\n".encode()
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Wire(world.hook_port))) for _ in range(2)]
        for each in clients:
            each.socket.setblocking(False)
            each.socket.send(head)
            with suppress(BlockingIOError):
                each.socket.send(b" " * MIB)
        caller = stack.enter_context(closing(Wire(world.hook_port)))
        for _ in range(50):
            caller.send(request(question(world)))
            assert b"200 OK" in caller.read(b"}")

        read = [each.buffered for each in world.port.connections]
        assert 0 < sum(read) < MIB
        for each in world.port.connections:  # its turn never comes
            world.loop.call_soon_threadsafe(each.abort, "over")


@pytest.mark.parametrize("extra", ["", "Origin: http://evil.example\r\n"], ids=["heard", "refused"])
def test_an_unknown_client_is_answered_when_its_body_has_been_read_in_turns(
    world: World, extra: str
) -> None:
    body = question(world) + b" " * MIB
    with closing(Wire(world.hook_port)) as wire:
        wire.send(request(body, extra=extra))

        assert (b"403" if extra else b"200 OK") in wire.read(b"}")


@pytest.mark.parametrize("limits", [replace(HOOKS, read_interval_s=60.0)], ids=["slow turns"])
def test_a_trusted_client_does_not_wait_for_its_turn(world: World) -> None:
    with closing(Wire(world.hook_port)) as wire:
        wire.send(request(question(world)))
        assert b"200 OK" in wire.read(b"}")

        wire.send(request(question(world) + b" " * MIB))
        assert b"200 OK" in wire.read(b"}")


def test_a_chunked_body_is_buffered_unless_it_has_too_many_chunks(world: World) -> None:
    body = question(world)
    pieces = b"".join(b"1\r\n%c\r\n" % each for each in body)
    assert len(body) < 1000
    with closing(Wire(world.hook_port)) as wire:
        wire.send(CHUNKED, pieces)
        eventually(lambda: any(each.buffered == len(body) for each in world.port.connections))
        wire.send(b"0\r\n\r\n")
        assert b'"NodeNames":["node-0"]' in wire.read(b"}")

        wire.send(CHUNKED, pieces)
        with suppress(ConnectionError):
            wire.send(b"1\r\n \r\n" * 2000)
        assert wire.is_closed()
    assert refused(world, "body") == 1


def test_a_client_that_pipelines_a_hundred_calls_is_disconnected(
    world: World,
) -> None:
    with closing(Wire(world.hook_port)) as wire:
        wire.send(request(question(world)) * 100)
        eventually(lambda: refused(world, "impatient") == 1)


@pytest.mark.parametrize("limits", [replace(HOOKS, **SHORT)], ids=["short"])
def test_unread_responses_are_dropped_with_their_connection(world: World) -> None:
    names = [f"node-{index:04}" for index in range(5000)]
    ask = request(json.dumps({"Pod": world.pod("web"), "NodeNames": names}).encode())
    with closing(Wire(world.hook_port)) as wire:
        with suppress(ConnectionError, TimeoutError):
            for _ in range(500):
                wire.send(ask)

        eventually(lambda: not world.port.connections)
    assert refused(world, "unread") == 1


def test_an_unread_page_is_dropped_with_its_connection(world: World) -> None:
    world.runtime.pages.add_url_rule("/large", view_func=lambda: b"x" * (32 * MIB))
    with (
        operations(world, limits=replace(PAGES, **SHORT)) as pages,
        closing(Wire(world.ops_port)) as wire,
    ):
        wire.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wire.reads_something()
        eventually(lambda: not pages.connections)
    assert refused(world, "unread") == 1


@pytest.mark.parametrize("limits", [replace(HOOKS, **SHORT)], ids=["short"])
def test_the_last_response_is_dropped_too_if_it_is_not_read(world: World) -> None:
    names = [f"node-{index:05}" for index in range(100_000)]
    body = json.dumps({"Pod": world.pod("web"), "NodeNames": names}).encode()
    with closing(Wire(world.hook_port, receive=4096)) as wire:
        wire.send(request(body, extra="Connection: close\r\n"))
        eventually(lambda: world.port.connections != set())
        eventually(lambda: not world.port.connections)
    assert refused(world, "unread") == 1

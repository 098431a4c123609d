"""The operations port: its own loop, probes that never queue, and pages."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
import uvloop

from extender.hooks import server
from extender.web.server import LIMITS, OperationsServer
from tests.unit.web.conftest import Reply, World, eventually, operations
from tests.unit.web.wire import Wire


@pytest.fixture
def stuck(world: World, pages: OperationsServer) -> Iterator[threading.Event]:
    """Blocks every page until the test ends; the event is set when a page is requested."""
    begun, end = threading.Event(), threading.Event()

    def page() -> str:
        begun.set()
        assert end.wait(60)
        return "at last\n"

    world.runtime.pages.add_url_rule("/stuck", view_func=page)
    with closing(Wire(world.ops_port)) as wire:
        wire.send(b"GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n")
        assert begun.wait(20)
        yield begun
        end.set()


def ask(world: World, path: str, method: str = "GET") -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", world.ops_port, timeout=20)
    with closing(connection):
        connection.request(method, path)
        reply = connection.getresponse()
        return Reply(reply.status, reply.read())


@pytest.mark.usefixtures("pages")
def test_pages_and_probes_have_the_response_of_the_app(world: World) -> None:
    eventually(lambda: ask(world, "/readyz").status == 200)

    assert ask(world, "/healthz") == Reply(200, b"ok\n")
    assert ask(world, "/readyz").body.startswith(b"ok\n")
    assert b"gang_extender_waiting_binds" in ask(world, "/metrics").body
    assert ask(world, "/api/v1/plan").json["gangs"] == []
    assert ask(world, "/api/v1/snapshot?again=1").json["kind"] == "List"
    assert b"<html" in ask(world, "/").body
    assert ask(world, "/nothing").status == 404
    assert ask(world, "/filter", "POST").status == 404
    assert ask(world, "/healthz", "POST").status == 405


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/plan"])
def test_a_head_request_returns_the_length_without_a_body(world: World, path: str) -> None:
    with closing(Wire(world.ops_port)) as wire:
        for _ in range(2):
            wire.send(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = wire.read(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert int(head.partition(b"content-length: ")[2].split()[0]) > 0


@pytest.mark.usefixtures("stuck")
def test_probes_are_answered_while_pages_are_stuck(world: World) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            wire = stack.enter_context(closing(Wire(world.ops_port)))
            wire.send(b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n")

        assert ask(world, "/healthz") == Reply(200, b"ok\n")
        assert ask(world, "/warmz").status == 200


@pytest.mark.usefixtures("stuck")
def test_a_request_beyond_the_queue_limit_gets_retry_after(world: World) -> None:
    with ExitStack() as stack:
        for _ in range(80):
            wire = stack.enter_context(closing(Wire(world.ops_port)))
            wire.send(b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n")

        answer = wire.read(b"\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5" in answer


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/plan"])
def test_a_half_closed_connection_is_still_answered(world: World, path: str) -> None:
    with closing(Wire(world.ops_port)) as wire:
        wire.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wire.finish()

        assert wire.ends_with_status() == 200


def test_the_hooks_answer_while_the_loop_of_the_pages_is_busy(
    world: World, pages: OperationsServer
) -> None:
    free = threading.Event()
    pages.loop.call_soon_threadsafe(free.wait, 60)
    try:
        with closing(Wire(world.hook_port)) as wire:
            wire.send(b"GET /filter HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"405" in wire.read(b"}")
    finally:
        free.set()


@pytest.mark.usefixtures("pages")
def test_a_failing_probe_is_logged_and_the_port_keeps_serving(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(world.runtime.pages.probes, "ask", lambda _: {}["nothing"])
        assert ask(world, "/healthz").status == 500

    assert "a call failed" in caplog.text
    assert ask(world, "/healthz").status == 200


@pytest.mark.usefixtures("pages")
def test_a_client_without_pauses_is_rate_limited_and_keeps_its_connection(
    world: World,
) -> None:
    with closing(Wire(world.ops_port)) as wire:
        began = time.monotonic()
        for _ in range(30):
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in wire.read(b"ok\n")
        took = time.monotonic() - began

    assert took >= 29 * LIMITS.response_pause_s * 0.9


def test_unread_pages_have_a_total_limit_and_the_newest_is_sent(
    world: World,
) -> None:
    """Each page is larger than a socket buffer, so it stays in memory until it is read."""
    world.runtime.pages.add_url_rule("/large/<name>", view_func=lambda name: "x" * 16_000_000)
    with operations(world, max_bytes=40_000_000), ExitStack() as unread:
        readers = [unread.enter_context(closing(Wire(world.ops_port))) for _ in range(4)]
        for number, each in enumerate(readers):
            each.send(f"GET /large/{number} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
            assert each.reads_something()

        sizes = [each.size_of_the_rest() for each in readers]
    assert [size > 16_000_000 - 64 for size in sizes] == [False, False, True, True]


def test_a_page_sent_to_many_clients_counts_once(world: World) -> None:
    written = ["x" * 16_000_000]
    world.runtime.pages.add_url_rule("/large", view_func=lambda: written.pop())
    with operations(world, max_bytes=40_000_000), ExitStack() as unread:
        readers = [unread.enter_context(closing(Wire(world.ops_port))) for _ in range(4)]
        for each in readers:
            each.send(b"GET /large HTTP/1.0\r\nHost: x\r\n\r\n")
            assert each.reads_something()

        sizes = [each.size_of_the_rest() for each in readers]
    assert all(size > 16_000_000 - 64 for size in sizes)


def test_a_blocked_hook_loop_fails_the_liveness_probe() -> None:
    # The clock of the server's loop stands still while it is blocked.
    limits = replace(server.LIMITS, sweep_s=0.02)
    with World(new_loop=uvloop.new_event_loop, limits=limits) as world, operations(world):
        # A tenth of a second is ten: twenty are too many.
        world.runtime.pages.probes.watch_loop(lambda: 100 * world.port.stalled_s)
        eventually(lambda: ask(world, "/healthz").status == 200)

        free = threading.Event()
        world.loop.call_soon_threadsafe(free.wait, 60)
        try:
            eventually(lambda: ask(world, "/healthz").status == 503)
            assert b"the hooks have not answered for" in ask(world, "/healthz").body
        finally:
            free.set()
        eventually(lambda: ask(world, "/healthz").status == 200)

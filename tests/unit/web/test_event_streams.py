"""Event streams: limited in number and lifetime, and without influence on other requests."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any, cast

import pytest

from extender.web import server
from extender.web.server import EventStreams, OperationsServer
from tests.unit.web.conftest import World, eventually, operations
from tests.unit.web.loop import ManualLoop
from tests.unit.web.test_token_reviews import FakeTokenReviews
from tests.unit.web.wire import Wire

LISTEN = b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n"


class Listener:
    """Records events until it is closed."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.is_closed = False

    def send(self, event: bytes) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.is_closed = True


class StreamsHarness:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.event = b"data: 1\n\n"
        loop: Any = self.loop
        self.streams = EventStreams(loop, self._heartbeat, life_s=50, max_streams=3)

    def _heartbeat(self) -> bytes:
        if not self.event:
            raise RuntimeError("broken")
        return self.event

    def listener(self) -> Listener:
        made = Listener()
        self.streams.add(cast(Any, made))
        return made


@pytest.fixture
def harness() -> StreamsHarness:
    return StreamsHarness()


def test_a_change_is_sent_within_a_second_and_otherwise_a_heartbeat(
    harness: StreamsHarness,
) -> None:
    listener = harness.listener()
    assert listener.events == [b"retry: 1000\n\ndata: 1\n\n"]
    harness.loop.clock.advance(1)
    listener.events.clear()
    harness.loop.clock.advance(4)
    assert listener.events == []

    harness.event = b"data: 2\n\n"
    harness.loop.clock.advance(1)
    assert listener.events == [b"data: 2\n\n"]
    harness.loop.clock.advance(5)
    assert listener.events == [b"data: 2\n\n"] * 2


def test_a_stream_ends_after_its_lifetime(harness: StreamsHarness) -> None:
    listener = harness.listener()
    harness.loop.clock.advance(49)
    assert not listener.is_closed
    harness.loop.clock.advance(1)
    assert listener.is_closed
    assert len(harness.streams) == 0


def test_the_oldest_stream_is_closed_when_there_are_too_many(harness: StreamsHarness) -> None:
    ears = [harness.listener() for _ in range(4)]

    assert [each.is_closed for each in ears] == [True, False, False, False]


def test_without_listeners_the_state_is_not_read(harness: StreamsHarness) -> None:
    listener = harness.listener()
    harness.streams.discard(cast(Any, listener))
    harness.loop.clock.advance(2)

    assert not harness.loop.clock.waiting
    assert harness.listener().events


def test_a_failed_heartbeat_is_logged_and_the_next_is_sent(
    harness: StreamsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    listener, harness.event = harness.listener(), b""
    harness.loop.clock.advance(1)
    assert "heartbeat failed" in caplog.text

    harness.event = b"data: 3\n\n"
    harness.loop.clock.advance(1)
    assert listener.events[-1] == b"data: 3\n\n"


def test_events_are_sent_on_an_open_connection(world: World, pages: OperationsServer) -> None:
    with closing(Wire(world.ops_port)) as wire:
        wire.send(LISTEN)
        head = wire.read(b"}\n\n")
        assert b"200 OK" in head
        assert b"content-type: text/event-stream" in head
        assert b"data: {" in head
        world.node("n1")
        assert b'"cycle":' in wire.read(b"}\n\n")
        assert len(pages.streams) == 1
    eventually(lambda: len(pages.streams) == 0)


def test_a_half_closed_connection_ends_its_stream(world: World, pages: OperationsServer) -> None:
    with closing(Wire(world.ops_port)) as wire:
        wire.send(LISTEN)
        wire.read(b"}\n\n")
        wire.finish()

        assert wire.is_closed()
    assert len(pages.streams) == 0


def test_many_listeners_do_not_block_pages(world: World, pages: OperationsServer) -> None:
    with ExitStack() as stack:
        for _ in range(server.MAX_STREAMS + 20):
            wire = stack.enter_context(closing(Wire(world.ops_port)))
            wire.send(LISTEN)
            wire.read(b"}\n\n")
        assert len(pages.streams) == server.MAX_STREAMS

        other = stack.enter_context(closing(Wire(world.ops_port)))
        other.send(b"GET /gangs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert other.ends_with_status() == 200


def test_the_port_closes_without_waiting_for_listeners(world: World) -> None:
    port = OperationsServer(world.runtime.pages)
    port.start(world.ops_socket)
    with closing(Wire(world.ops_port)) as wire:
        wire.send(LISTEN)
        wire.read(b"}\n\n")
        port.stop(grace_s=600)

        assert wire.is_closed()


def test_every_stream_needs_a_token_where_pages_do(world: World) -> None:
    with (
        operations(world, reviewer=FakeTokenReviews()) as port,
        closing(Wire(world.ops_port)) as wire,
    ):
        wire.send(LISTEN)
        assert b"401" in wire.read(b"}\n")
        assert len(port.streams) == 0
        assert port.streams.life_s == 10.0


def test_only_dashboard_pages_use_the_query(world: World) -> None:
    pages = world.runtime.pages

    assert pages.used_query(b"/gangs", b"find=x") == b"find=x"
    assert pages.used_query(b"/api/v1/snapshot", b"again=1") == b""
    assert pages.used_query(b"/metrics", b"name[]=x") == b""
    assert pages.used_query(b"/nothing", b"find=x") == b""
    assert pages.used_query(b"/gangs", b"x" * 5000) == b""
    assert pages.used_query(b"/whatif", b"x" * 5000) == b"too-long=1"

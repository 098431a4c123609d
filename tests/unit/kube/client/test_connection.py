"""One pipelined connection, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from extender.kube.connection import NO_RESPONSE, NOT_SENT, Connection, PipelinedRequest, Reply
from tests.api_server import VirtualLoop, scene

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Peer:
    """The server side of a connection, and the requests on it; a test says what it writes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.writers: list[asyncio.StreamWriter] = []
        self.changed = asyncio.Condition()
        self.may_connect = asyncio.Event()
        self.may_connect.set()
        #: Replaces the next attempt to connect.
        self.connect_once: Callable[[asyncio.Protocol], None] | None = None
        self.port = 0
        self.connection: Connection
        #: The replies, in the order in which they came.
        self.replies: list[tuple[str, Reply]] = []
        self._replied = asyncio.Event()

    def request(self, name: str, is_wanted: Callable[[], bool] = lambda: True) -> PipelinedRequest:
        return PipelinedRequest(f"{name};".encode(), partial(self._receive, name), is_wanted)

    def send(self, *names: str) -> None:
        self.connection.send([self.request(name) for name in names])

    def _receive(self, name: str, reply: Reply) -> None:
        self.replies.append((name, reply))
        self._replied.set()

    async def has(self, replies: int) -> list[tuple[str, Reply]]:
        while len(self.replies) < replies:
            self._replied.clear()
            await self._replied.wait()
        return self.replies

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while data := await reader.read(65536):
            async with self.changed:
                self.received += data
                self.changed.notify_all()
        writer.close()

    async def has_received(self, text: bytes) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: text in self.received)

    def send_raw(self, data: bytes) -> None:
        self.writers[-1].write(data)

    def hang_up(self) -> None:
        self.writers[-1].close()

    async def connect(self, protocol: asyncio.Protocol) -> None:
        await self.may_connect.wait()
        once, self.connect_once = self.connect_once, None
        if once is not None:
            once(protocol)
            return
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: protocol, "127.0.0.1", self.port)


@asynccontextmanager
async def connected_peer(silence_s: float = 5.0, **limits: int) -> AsyncIterator[tuple[Peer]]:
    peer = Peer()
    listener = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.port = listener.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    peer.connection = Connection(loop, peer.connect, silence_s=silence_s, **limits)
    try:
        yield (peer,)
    finally:
        await peer.connection.aclose()
        listener.close()
        for writer in peer.writers:
            writer.close()


@scene(connected_peer)
async def test_requests_are_pipelined_and_responses_matched_in_order(peer: Peer, /) -> None:
    peer.send("a", "b")
    peer.send("c")
    await peer.has_received(b"a;b;c;")
    peer.send_raw(OK + OK.replace(b"ok", b"b!") + OK[:20])
    peer.send_raw(OK[20:])

    assert await peer.has(3) == [
        ("a", Reply(200, b"ok")),
        ("b", Reply(200, b"b!")),
        ("c", Reply(200, b"ok")),
    ]
    assert len(peer.writers) == 1


@scene(connected_peer)
async def test_a_request_without_a_response_on_a_broken_connection_may_have_taken_effect(
    peer: Peer, /
) -> None:
    peer.send("a", "b")
    await peer.has_received(b"b;")
    peer.send_raw(OK)
    peer.hang_up()

    assert await peer.has(2) == [("a", Reply(200, b"ok")), ("b", NO_RESPONSE)]


@scene(connected_peer)
async def test_a_request_without_a_connection_certainly_had_no_effect(peer: Peer, /) -> None:
    peer.port = 1  # a port without a listener
    peer.send("a")

    assert await peer.has(1) == [("a", NOT_SENT)]


@scene(connected_peer, silence_s=0.02)
async def test_a_connection_that_does_not_open_is_given_up(peer: Peer, /) -> None:
    peer.may_connect.clear()
    peer.send("a")

    assert await peer.has(1) == [("a", NOT_SENT)]


@scene(connected_peer)
async def test_a_request_no_longer_wanted_is_not_sent_when_the_connection_opens(
    peer: Peer, /
) -> None:
    peer.may_connect.clear()
    wanted = [True]
    peer.connection.send([peer.request("late", lambda: wanted[0]), peer.request("b")])
    wanted[0] = False
    peer.may_connect.set()
    await peer.has_received(b"b;")

    assert peer.received == b"b;"
    assert ("late", NOT_SENT) in peer.replies


@scene(connected_peer)
async def test_no_request_is_sent_on_a_connection_after_connection_close(peer: Peer, /) -> None:
    peer.send("a", "b")
    await peer.has_received(b"b;")
    peer.send_raw(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    assert await peer.has(2) == [("a", Reply(200)), ("b", NO_RESPONSE)]
    peer.send("c")
    await peer.has_received(b"c;")

    assert len(peer.writers) == 2


@scene(connected_peer)
async def test_a_malformed_response_closes_the_connection(peer: Peer, /) -> None:
    peer.send("a")
    await peer.has_received(b"a;")
    peer.send_raw(b"gibberish\r\n\r\n")

    assert await peer.has(1) == [("a", NO_RESPONSE)]


@scene(connected_peer)
async def test_an_unsolicited_response_on_an_idle_connection_answers_no_request(
    peer: Peer, /
) -> None:
    peer.send("a")
    await peer.has_received(b"a;")
    peer.send_raw(OK + b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
    await peer.has(1)
    peer.send("b")
    await peer.has_received(b"b;")
    peer.send_raw(OK)

    assert await peer.has(2) == [("a", Reply(200, b"ok")), ("b", Reply(200, b"ok"))]


@scene(connected_peer, silence_s=1.5, new_loop=VirtualLoop)
async def test_a_slow_but_steady_response_does_not_count_as_silence(peer: Peer, /) -> None:
    loop = asyncio.get_running_loop()
    peer.send(*map(str, range(4)))
    await peer.has_received(b"3;")
    for index in range(4):
        loop.call_later(0.5 * (index + 1), peer.send_raw, OK)
    replies = await peer.has(4)

    assert [reply.status for _, reply in replies] == [200] * 4


@scene(connected_peer, silence_s=0.02)
async def test_a_silent_connection_is_closed(peer: Peer, /) -> None:
    peer.send("a")

    assert await peer.has(1) == [("a", NO_RESPONSE)]


@scene(connected_peer)
async def test_a_callback_that_raises_does_not_cost_other_requests_their_reply(
    peer: Peer, /, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(reply: Reply) -> None:
        raise RuntimeError("bug")

    peer.connection.send([PipelinedRequest(b"x;", fail), peer.request("b")])
    await peer.has_received(b"b;")
    peer.send_raw(OK + OK)

    assert await peer.has(1) == [("b", Reply(200, b"ok"))]
    assert "reply not taken" in caplog.text


@scene(connected_peer)
async def test_a_closed_connection_counts_as_slightly_more_loaded_than_an_open_one(
    peer: Peer, /
) -> None:
    assert peer.connection.load == 1
    peer.send("a")
    assert peer.connection.load == 3
    await peer.has_received(b"a;")
    assert peer.connection.load == 2
    peer.send_raw(OK)
    await peer.has(1)

    assert peer.connection.load == 0


@scene(connected_peer)
async def test_closing_answers_waiting_requests(peer: Peer, /) -> None:
    peer.may_connect.clear()
    peer.send("a")
    await peer.connection.aclose()

    assert await peer.has(1) == [("a", NOT_SENT)]


@pytest.mark.parametrize("status", [100, 102, 103])
@scene(connected_peer)
async def test_an_informational_response_is_skipped_and_the_final_one_follows(
    peer: Peer, /, status: int
) -> None:
    peer.send("a", "b")
    await peer.has_received(b"b;")
    hint = b"HTTP/1.1 %d Word\r\nretry-after: 7\r\n\r\n" % status
    peer.send_raw(hint + hint + OK + hint + OK.replace(b"ok", b"b!"))

    assert await peer.has(2) == [("a", Reply(200, b"ok")), ("b", Reply(200, b"b!"))]


@scene(connected_peer, silence_s=0.2, new_loop=VirtualLoop)
async def test_endless_informational_responses_are_no_progress(peer: Peer, /) -> None:
    peer.send("a")
    await peer.has_received(b"a;")
    while not peer.replies:
        peer.send_raw(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(0.01)

    assert peer.replies == [("a", NO_RESPONSE)]


@scene(connected_peer)
async def test_after_an_unsolicited_response_the_connection_is_not_used(peer: Peer, /) -> None:
    peer.send("a")
    await peer.has_received(b"a;")
    peer.send_raw(OK + OK)
    await peer.has(1)
    peer.send("b")
    await peer.has_received(b"b;")
    peer.send_raw(OK.replace(b"ok", b"b!"))

    assert await peer.has(2) == [("a", Reply(200, b"ok")), ("b", Reply(200, b"b!"))]
    assert len(peer.writers) == 2


class _DiscardingTransport(asyncio.Transport):
    """Discards what is written to it."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Discard the data."""

    def is_closing(self) -> bool:
        return False


@scene(connected_peer)
async def test_a_connection_lost_before_it_is_reported_as_open_leaves_no_request_waiting(
    peer: Peer, /
) -> None:

    def reset(protocol: asyncio.Protocol) -> None:
        protocol.connection_made(_DiscardingTransport())
        protocol.connection_lost(ConnectionResetError())

    def again(reply: Reply) -> None:
        peer.replies.append(("a", reply))
        peer.send("b")

    peer.connect_once = reset
    peer.connection.send([PipelinedRequest(b"a;", again)])
    async with asyncio.timeout(5):
        assert await peer.has(2) == [("a", NO_RESPONSE), ("b", NOT_SENT)]
    peer.send("c")
    await peer.has_received(b"c;")
    peer.send_raw(OK)

    assert (await peer.has(3))[2] == ("c", Reply(200, b"ok"))


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 100),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 20),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", b"y" * 100),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"y" * 100),
    ],
    ids=["header", "headers", "informational", "body", "line of a chunk"],
)
@scene(connected_peer, silence_s=60.0, longest_head=2000, longest=4000)
async def test_an_endless_response_closes_the_connection(
    peer: Peer, /, begin: bytes, more: bytes
) -> None:
    peer.send("a")
    await peer.has_received(b"a;")
    peer.send_raw(begin)
    for _ in range(1000):
        peer.send_raw(more)
        await asyncio.sleep(0)
        if peer.replies:
            break
    async with asyncio.timeout(5):
        assert await peer.has(1) == [("a", NO_RESPONSE)]


@scene(connected_peer)
async def test_objects_of_several_megabytes_are_received_completely_one_after_the_other(
    peer: Peer, /
) -> None:
    large = b"y" * 3_000_000
    peer.send(*map(str, range(8)))
    await peer.has_received(b"7;")
    peer.send_raw(8 * (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(large), large)))
    replies = await peer.has(8)

    assert [len(reply.body) for _, reply in replies] == [len(large)] * 8


@scene(connected_peer)
async def test_a_request_made_while_the_connection_closes_uses_the_next_connection(
    peer: Peer, /
) -> None:
    def again(reply: Reply) -> None:
        peer.replies.append(("a", reply))
        peer.send("b")

    peer.connection.send([PipelinedRequest(b"a;", again)])
    await peer.has_received(b"a;")
    peer.send_raw(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")
    async with asyncio.timeout(5):
        await peer.has_received(b"b;")
    assert len(peer.writers) == 2
    peer.send_raw(OK)

    assert await peer.has(2) == [("a", Reply(200, b"ok")), ("b", Reply(200, b"ok"))]

"""One connection that is silent while the API server answers on others."""

from __future__ import annotations

import asyncio
import time

from extender.kube.connection import (
    MAX_CHECK_AFTER_S,
    NOT_SENT,
    Connection,
    ConnectionHealth,
    PipelinedRequest,
    Reply,
)
from extender.kube.write import bind
from tests.api_server import NEVER, VirtualLoop, connected, loopback_server, scene
from tests.unit.kube.write.test_bind import Binds, connected_binder

FOR_EVER_S = 60.0
ANSWERED = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@scene(connected_binder, silence_s=FOR_EVER_S, check_after_s=0.1)
async def test_a_bind_lost_on_its_way_is_noticed_and_sent_again_soon(binds: Binds, /) -> None:
    gang = binds.gang(4)
    binds.server.script.append(NEVER)
    began = time.monotonic()

    assert await binds.outcomes(*gang) == [bind.BOUND] * 4
    assert time.monotonic() - began < FOR_EVER_S / 2
    assert next(each.path for each in binds.server.asked("GET")) == "/version"


@scene()
async def test_no_connection_is_aborted_while_the_whole_api_server_is_silent() -> None:
    async with (
        loopback_server() as server,
        connected(server, silence_s=FOR_EVER_S, check_after_s=0.05) as pipeline,
    ):
        server.script.extend([NEVER] * 100)
        replies: list[Reply] = []
        pipeline.request(pipeline.frame(b"GET", "/a"), replies.append)
        await server.has_heard(2)  # the second is the health check

        assert [each.path for each in server.requests] == ["/a", "/version"]
        assert not replies


class SilentConnection:
    """A connection on which nothing comes back."""

    def __init__(self) -> None:
        self.progress_at = 0.0
        self.aborted = 0

    def abort(self) -> None:
        self.aborted += 1


class AnsweringTransport(asyncio.Transport):
    """Answers each write with the same bytes, or breaks off if there are none."""

    def __init__(self, protocol: asyncio.Protocol, answer: bytes) -> None:
        super().__init__()
        self._protocol = protocol
        self._answer = answer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        loop = asyncio.get_running_loop()
        if self._answer:
            loop.call_soon(self._protocol.data_received, self._answer)
        else:
            loop.call_soon(self._protocol.connection_lost, ConnectionResetError())

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        """Nothing is open."""


def connection_health(answer: bytes | None = ANSWERED) -> ConnectionHealth:
    """Return one whose own connection is answered, breaks off, or with None does not open."""

    async def connect(protocol: asyncio.Protocol) -> None:
        if answer is None:
            raise ConnectionRefusedError
        protocol.connection_made(AnsweringTransport(protocol, answer))

    return ConnectionHealth(asyncio.get_running_loop(), connect, lambda: b"x", silence_s=5.0)


async def check(health: ConnectionHealth, *silent: SilentConnection) -> None:
    for each in silent:
        health.check(each)  # type: ignore[arg-type]
    await asyncio.sleep(1)  # of virtual time: the answer is there


@scene(new_loop=VirtualLoop)
async def test_only_a_connection_that_is_silent_alone_is_aborted() -> None:
    for answer, aborted in ((ANSWERED, 1), (b"", 0), (None, 0)):
        silent = SilentConnection()
        await check(connection_health(answer), silent)
        assert silent.aborted == aborted


@scene(new_loop=VirtualLoop)
async def test_repeated_health_checks_wait_longer_but_less_than_the_silence_limit() -> None:
    health = connection_health()
    assert health.check_after_s == 2.0
    await check(health, SilentConnection(), SilentConnection())  # they fell silent together
    assert health.check_after_s == 4.0
    for _ in range(3):
        await asyncio.sleep(10)
        await check(health, SilentConnection())
        assert health.check_after_s == MAX_CHECK_AFTER_S < 5.0
    await asyncio.sleep(61)

    assert health.check_after_s == 2.0


@scene()
async def test_a_connection_that_does_not_open_is_aborted_if_others_open() -> None:
    loop = asyncio.get_running_loop()
    replied: asyncio.Future[Reply] = loop.create_future()

    async def never(protocol: asyncio.Protocol) -> None:
        await asyncio.Event().wait()

    class ImmediateCheck:
        check_after_s = 0.01

        def check(self, silent: Connection) -> None:
            loop.call_soon(silent.abort)  # an answer never comes in the same step

    connection = Connection(loop, never, silence_s=FOR_EVER_S, health=ImmediateCheck())
    connection.send([PipelinedRequest(b"a", replied.set_result)])

    assert await replied == NOT_SENT
    await connection.aclose()

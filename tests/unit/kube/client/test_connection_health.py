"""One connection that is silent while the API server answers on others."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

from extender.kube.connection import (
    MAX_CHECK_AFTER_S,
    NO_RESPONSE,
    NOT_SENT,
    Connection,
    ConnectionHealth,
    PipelinedRequest,
    Reply,
)
from extender.kube.write import bind
from extender.kube.write.bind import ApiBinder
from extender.sim.clock import VirtualClock
from tests.api_server import NEVER, connected, loopback_server, play
from tests.unit.kube.write.test_bind import order, outcomes

FOR_EVER_S = 60.0
ANSWERED = Reply(200)


def test_a_bind_lost_on_its_way_is_noticed_and_sent_again_soon():
    async def scene() -> None:
        async with (
            loopback_server() as server,
            connected(server, silence_s=FOR_EVER_S, check_after_s=0.1) as pipeline,
        ):
            binder = ApiBinder(pipeline, chance=lambda: 0.0)
            for index in range(4):
                server.add_pod(f"w-{index}")
            server.script.append(NEVER)
            began = time.monotonic()

            gang = [order(f"w-{index}") for index in range(4)]
            assert await outcomes(binder, *gang) == [bind.BOUND] * 4
            assert time.monotonic() - began < FOR_EVER_S / 2
            assert next(each.path for each in server.asked("GET")) == "/version"

    play(scene())


def test_no_connection_is_aborted_while_the_whole_api_server_is_silent():
    async def scene() -> None:
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

    play(scene())


class SilentConnection:
    """A connection on which nothing comes back."""

    def __init__(self) -> None:
        self.progress_at = 0.0
        self.aborted = 0

    def abort(self) -> None:
        self.aborted += 1


class AnsweringConnection:
    """A connection that answers each request as a test wants."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    def send(self, exchanges: tuple[PipelinedRequest, ...]) -> None:
        for exchange in exchanges:
            exchange.done(self.reply)


def connection_health(clock: VirtualClock, reply: Reply = ANSWERED) -> ConnectionHealth:
    loop = SimpleNamespace(time=clock.monotonic)
    health = ConnectionHealth(loop, None, lambda: b"", silence_s=5.0)  # type: ignore[arg-type]
    health._connection = AnsweringConnection(reply)  # type: ignore[assignment]
    return health


def check(health: ConnectionHealth, silent: SilentConnection) -> None:
    health.check(silent)  # type: ignore[arg-type]


def test_only_a_connection_that_is_silent_alone_is_aborted():
    silent = SilentConnection()
    check(connection_health(VirtualClock()), silent)
    assert silent.aborted == 1

    for reply in (NO_RESPONSE, NOT_SENT):
        stays = SilentConnection()
        check(connection_health(VirtualClock(), reply), stays)
        assert not stays.aborted


def test_repeated_health_checks_wait_longer_but_less_than_the_silence_limit():
    clock = VirtualClock()
    health = connection_health(clock)
    assert health.check_after_s == 2.0
    check(health, SilentConnection())
    check(health, SilentConnection())  # fell silent together with it
    assert health.check_after_s == 4.0
    for _ in range(3):
        clock.advance(10)
        check(health, SilentConnection())
        assert health.check_after_s == MAX_CHECK_AFTER_S < 5.0
    clock.advance(61)

    assert health.check_after_s == 2.0


def test_a_connection_that_does_not_open_is_aborted_if_others_open():
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        replied: asyncio.Future[Reply] = loop.create_future()

        async def never(protocol: asyncio.Protocol) -> None:
            await asyncio.Event().wait()

        class ImmediateCheck:
            check_after_s = 0.01

            def check(self, silent: Connection) -> None:
                silent.abort()

        connection = Connection(loop, never, silence_s=FOR_EVER_S, health=ImmediateCheck())
        connection.send([PipelinedRequest(b"a", replied.set_result)])

        assert await replied == NOT_SENT
        await connection.aclose()

    play(scene())

"""The acceptor of a port: many new connections do not delay those already accepted."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from extender.hooks.http_server import Acceptor
from extender.hooks.limits import Limits, RefusalLog
from extender.metrics import Metrics

CONNECTIONS = 300
#: So few that one pause is enough to accept them all.
BURST = 20


class Refusals(RefusalLog):
    """Records refused and disconnected clients."""

    def __init__(self) -> None:
        super().__init__("hooks", Metrics())
        self.recorded: list[tuple[str, str, int]] = []

    def record(self, reason: str, caller: str, count: int = 1) -> None:
        self.recorded.append((reason, caller, count))

    def disconnected(self, caller: str, count: int) -> None:
        self.recorded.append(("left", caller, count))


def accepting(
    listening: socket.socket, refusals: Refusals | None = None, **limits: Any
) -> Acceptor:
    """Start an acceptor; without *limits* it defers no connection."""
    bounds = Limits(**{"connections": 1024, "defer_accept_s": 0, **limits})
    acceptor = Acceptor(listening, Echo, None, bounds, refusals or Refusals())
    acceptor.open()
    return acceptor


class Echo(asyncio.Protocol):
    """Echoes its input at once and counts its connections."""

    connections = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Echo.connections += 1
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def turns_until_answered(known: socket.socket) -> int:
    """Let the loop turn until an answer is there; give how many turns it took."""
    for turn in range(CONNECTIONS):
        await asyncio.sleep(0)
        try:
            assert known.recv(64) == b"filter"
        except BlockingIOError:
            continue
        return turn
    raise AssertionError("no response while connections are accepted")


class CountingSocket(socket.socket):
    """Counts accepted connections."""

    accepted = 0

    def accept(self) -> tuple[socket.socket, object]:
        caller = super().accept()
        self.accepted += 1
        return caller


def test_of_many_connections_only_a_few_are_accepted_in_one_turn_of_the_loop() -> None:
    async def serve() -> list[int]:
        steps: list[int] = []
        with ExitStack() as open_:
            listening = open_.enter_context(CountingSocket())
            listening.bind(("127.0.0.1", 0))
            acceptor = accepting(listening)
            for _ in range(CONNECTIONS):  # nothing is accepted before the loop runs
                open_.enter_context(socket.create_connection(listening.getsockname()))
            while sum(steps) < CONNECTIONS:
                before = listening.accepted
                await asyncio.sleep(0)  # one turn of the loop
                steps.append(listening.accepted - before)
            await asyncio.sleep(0.05)  # connection_made is called for the last ones
            await acceptor.close()
        return steps

    steps = asyncio.run(serve())

    assert sum(steps) == CONNECTIONS
    assert max(steps) < CONNECTIONS / 10


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the silent ones itself")
def test_a_silent_connection_is_not_accepted_before_one_that_sends_data() -> None:
    async def serve() -> int:
        Echo.connections = 0
        with ExitStack() as open_:
            listening = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            acceptor = accepting(listening, defer_accept_s=30)
            for _ in range(CONNECTIONS):
                open_.enter_context(socket.create_connection(listening.getsockname()))
            speaks = open_.enter_context(socket.create_connection(listening.getsockname()))
            speaks.sendall(b"filter")
            speaks.setblocking(False)
            while not Echo.connections:
                await asyncio.sleep(0)
            await turns_until_answered(speaks)
            await acceptor.close()
            return Echo.connections

    assert asyncio.run(serve()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the silent ones itself")
def test_closed_connections_are_not_handled_and_delay_no_other() -> None:
    refusals = Refusals()

    async def serve() -> int:
        Echo.connections = 0
        with ExitStack() as open_:
            listening = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            acceptor = accepting(listening, refusals, defer_accept_s=30)
            for _ in range(CONNECTIONS):
                socket.create_connection(listening.getsockname()).close()
            speaks = open_.enter_context(socket.create_connection(listening.getsockname()))
            speaks.sendall(b"filter")
            speaks.setblocking(False)
            turns = await turns_until_answered(speaks)
            await acceptor.close()
            return turns

    assert asyncio.run(serve()) < CONNECTIONS / 10
    assert Echo.connections == 1
    assert {address for _, address, _ in refusals.recorded} == {"127.0.0.1"}
    assert sum(count for *_, count in refusals.recorded) == CONNECTIONS


def test_a_connection_that_sends_data_and_closes_its_side_at_once_is_accepted() -> None:
    async def serve() -> bytes:
        with ExitStack() as open_:
            listening = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            acceptor = accepting(listening, defer_accept_s=30)
            speaks = open_.enter_context(socket.create_connection(listening.getsockname()))
            speaks.sendall(b"filter")
            speaks.shutdown(socket.SHUT_WR)
            speaks.setblocking(False)
            answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(speaks, 64), 10)
            await acceptor.close()
            return answer

    assert asyncio.run(serve()) == b"filter"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127/8")
def test_many_connections_of_one_address_do_not_delay_another_address() -> None:
    refusals = Refusals()

    def connect(to: socket.socket, address: str) -> socket.socket:
        line = socket.create_connection(to.getsockname(), source_address=(address, 0))
        line.sendall(b"filter")
        line.setblocking(False)
        return line

    async def serve() -> None:
        Echo.connections = 0
        with ExitStack() as open_:
            listening = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            acceptor = accepting(
                listening,
                refusals,
                response_pause_s=3600.0,
                address_burst=BURST,
                address_rate_per_s=0.0,
            )
            for _ in range(CONNECTIONS):  # connects, sends and closes
                connect(listening, "127.0.0.3").close()
            await turns_until_answered(open_.enter_context(connect(listening, "127.0.0.1")))
            await acceptor.close()

    asyncio.run(serve())
    assert Echo.connections == BURST + 1
    assert refusals.recorded == [("crowd", "127.0.0.3", CONNECTIONS - BURST)]

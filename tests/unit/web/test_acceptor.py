"""The door of a port: a crowd outside does not keep those waiting who are in."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import ExitStack

import pytest

from extender.hooks.http_server import (
    ADDRESS_BURST,
    ADDRESS_RATE_PER_S,
    MAX_ADDRESSES,
    Acceptor,
    AddressRateLimit,
)

CROWD = 300
#: So few that all they say is said in one rest.
SHARE = 20


class Echo(asyncio.Protocol):
    """Answers at once with what it is told, and counts who came in."""

    came = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Echo.came += 1
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def turns_until_answered(known: socket.socket) -> int:
    """Let the loop turn until an answer is there; give how many turns it took."""
    for turn in range(CROWD):
        await asyncio.sleep(0)
        try:
            assert known.recv(64) == b"filter"
        except BlockingIOError:
            continue
        return turn
    raise AssertionError("nobody is answered while a crowd comes in")


class Listening(socket.socket):
    """Counts whom it was asked for."""

    let_in = 0

    def accept(self) -> tuple[socket.socket, object]:
        caller = super().accept()
        self.let_in += 1
        return caller


def test_of_many_connections_only_a_few_are_accepted_in_one_turn_of_the_loop() -> None:
    async def scene() -> list[int]:
        steps: list[int] = []
        with ExitStack() as open_:
            listening = open_.enter_context(Listening())
            listening.bind(("127.0.0.1", 0))
            door = Acceptor(listening, Echo, None, lambda *_: None)
            door.open(1024, 0)
            for _ in range(CROWD):  # nothing is let in while we do not give way
                open_.enter_context(socket.create_connection(listening.getsockname()))
            while sum(steps) < CROWD:
                before = listening.let_in
                await asyncio.sleep(0)  # one turn of the loop
                steps.append(listening.let_in - before)
            await asyncio.sleep(0.05)  # the last ones are made known
            await door.close()
        return steps

    steps = asyncio.run(scene())

    assert sum(steps) == CROWD
    assert max(steps) < CROWD / 10


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the silent ones itself")
def test_a_silent_connection_is_not_accepted_before_one_that_sends_data() -> None:
    async def scene() -> int:
        Echo.came = 0
        with ExitStack() as open_:
            listening = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            door = Acceptor(listening, Echo, None, lambda *_: None)
            door.open(1024, 30)
            for _ in range(CROWD):
                open_.enter_context(socket.create_connection(listening.getsockname()))
            speaks = open_.enter_context(socket.create_connection(listening.getsockname()))
            speaks.sendall(b"filter")
            speaks.setblocking(False)
            while not Echo.came:
                await asyncio.sleep(0)
            await turns_until_answered(speaks)
            await door.close()
            return Echo.came

    assert asyncio.run(scene()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the silent ones itself")
def test_closed_connections_are_not_handled_and_delay_no_other() -> None:
    left: list[tuple[str, int]] = []

    async def scene() -> int:
        Echo.came = 0
        with ExitStack() as open_:
            listening = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            door = Acceptor(listening, Echo, None, lambda *_: None, lambda *who: left.append(who))
            door.open(1024, 30)
            for _ in range(CROWD):
                socket.create_connection(listening.getsockname()).close()
            speaks = open_.enter_context(socket.create_connection(listening.getsockname()))
            speaks.sendall(b"filter")
            speaks.setblocking(False)
            turns = await turns_until_answered(speaks)
            await door.close()
            return turns

    assert asyncio.run(scene()) < CROWD / 10
    assert Echo.came == 1
    assert {who for who, _ in left} == {"127.0.0.1"}
    assert sum(count for _, count in left) == CROWD


def test_a_connection_that_sends_data_and_closes_its_side_at_once_is_accepted() -> None:
    async def scene() -> bytes:
        with ExitStack() as open_:
            listening = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            door = Acceptor(listening, Echo, None, lambda *_: None)
            door.open(1024, 30)
            speaks = open_.enter_context(socket.create_connection(listening.getsockname()))
            speaks.sendall(b"filter")
            speaks.shutdown(socket.SHUT_WR)
            speaks.setblocking(False)
            answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(speaks, 64), 10)
            await door.close()
            return answer

    assert asyncio.run(scene()) == b"filter"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127/8")
def test_many_connections_of_one_address_do_not_delay_another_address() -> None:
    sent_away: list[tuple[str, str, int]] = []

    def come(to: socket.socket, address: str) -> socket.socket:
        line = socket.create_connection(to.getsockname(), source_address=(address, 0))
        line.sendall(b"filter")
        line.setblocking(False)
        return line

    async def scene() -> None:
        Echo.came = 0
        with ExitStack() as open_:
            listening = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
            shares = AddressRateLimit(lambda: 0.0, burst=SHARE)
            door = Acceptor(
                listening, Echo, None, lambda *away: sent_away.append(away), rate_limit=shares
            )
            door.open(4096, 0, 3600.0)
            for _ in range(CROWD):  # comes, asks and leaves
                come(listening, "127.0.0.3").close()
            await turns_until_answered(open_.enter_context(come(listening, "127.0.0.1")))
            await door.close()

    asyncio.run(scene())
    assert Echo.came == SHARE + 1
    assert sent_away == [("crowd", "127.0.0.3", CROWD - SHARE)]


def test_the_rate_limit_remembers_the_most_recent_addresses() -> None:
    shares = AddressRateLimit(lambda: 0.0)
    others = [f"10.1.{each // 256}.{each % 256}" for each in range(MAX_ADDRESSES)]
    used = [shares.acquire("10.0.0.1") for _ in range(ADDRESS_BURST)]

    assert all(used)
    assert all(shares.acquire(each) for each in others[:-1])
    assert not shares.acquire("10.0.0.1")
    assert all(shares.acquire(each) for each in others)
    assert shares.acquire("10.0.0.1")


@pytest.mark.parametrize(
    ("later_s", "again"), [(0.0, 0), (1.0, ADDRESS_RATE_PER_S), (60.0, ADDRESS_BURST)]
)
def test_the_allowance_of_an_address_refills_at_its_rate_up_to_the_burst(
    later_s: float, again: float
) -> None:
    now = 0.0
    shares = AddressRateLimit(lambda: now)
    assert sum(shares.acquire("10.0.0.1") for _ in range(ADDRESS_BURST + 1)) == ADDRESS_BURST

    now = later_s

    assert sum(shares.acquire("10.0.0.1") for _ in range(ADDRESS_BURST + 1)) == again


def test_the_rate_limit_is_per_whole_ipv6_address() -> None:
    shares = AddressRateLimit(lambda: 0.0)
    while shares.acquire("fd00:10:244:1::7"):
        pass

    assert shares.acquire("fd00:10:244:1::1")

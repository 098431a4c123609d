"""Refused and broken connections do not affect other connections of the same event loop.

OpenSSL keeps one error queue per thread, and the next call in that thread may take an old error
for its own (docs/internals/hooks.md). All connections of the hook port share one thread.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from extender.tls.issue import Authority
from tests.certificates import NAME, Wallet
from tests.unit.web.conftest import World, eventually
from tests.unit.web.test_hook_server import BOUND, Wire, bind, question, request, send_waiting_bind
from tests.unit.web.test_tls import certificates, is_refused, wallet, world

__all__ = ["certificates", "wallet", "world"]  # fixtures

#: Close with a reset, so that a later write of the server fails.
RESET = struct.pack("ii", 1, 0)
MANY = 8


def reset(wire: Wire) -> None:
    wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    os.close(wire._socket.detach())


def refused(world: World, wallet: Wallet) -> None:
    broken = Authority.new("another", 9).for_client(NAME, 5)
    assert is_refused(world, wallet.client(broken))
    assert is_refused(world, wallet.client(None))


def sends_plain_text(world: World, wallet: Wallet) -> None:
    with closing(Wire(world.hook_port)) as wire:
        wire.send(request(question(world)))
        assert wire.is_closed()


def breaks_off_in_the_handshake(world: World, wallet: Wallet) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = wallet.kube_scheduler().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    wire = Wire(world.hook_port)
    wire.send(outgoing.read())
    reset(wire)


def breaks_off_in_a_call(world: World, wallet: Wallet) -> None:
    wire = Wire(world.hook_port, wallet.kube_scheduler())
    wire.send(request(question(world))[:-5])
    reset(wire)


def breaks_off_before_the_answer(world: World, wallet: Wallet) -> None:
    wire = Wire(world.hook_port, wallet.kube_scheduler())
    # After so many requests at once the connection may be aborted before the last is sent.
    with suppress(OSError):
        for _ in range(MANY):
            wire.send(request(question(world)))
    reset(wire)


@pytest.mark.parametrize(
    "spoil",
    [
        refused,
        sends_plain_text,
        breaks_off_in_the_handshake,
        breaks_off_in_a_call,
        breaks_off_before_the_answer,
    ],
    ids=lambda it: it.__name__,
)
def test_other_calls_and_a_waiting_bind_are_answered_after_a_broken_connection(
    world: World, wallet: Wallet, spoil: Callable[[World, Wallet], None]
) -> None:
    calls = Wire(world.hook_port, wallet.kube_scheduler())
    waiting = Wire(world.hook_port, wallet.kube_scheduler())
    with closing(calls), closing(waiting):
        send_waiting_bind(world, waiting, node=False)
        for _ in range(MANY):
            # From another thread: in this one the test's own connections would be affected.
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(spoil, world, wallet).result()
            calls.send(request(question(world)))
            assert b"200 OK" in calls.read(b"}")
        eventually(lambda: len(world.port.connections) == 2)

        pod = world.pod("train-1", "train")
        calls.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
        assert b"200 OK" in calls.read(b"}")
        calls.send(bind(pod))
        assert calls.read(b"}").endswith(BOUND)
        assert waiting.read(b"}").endswith(BOUND)

"""HTTP as kube-scheduler, and as nobody should, speaks it to the hook port."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from extender.web import hookport
from extender.web.hooks import BODY_LIMIT
from tests.web.conftest import World, eventually

BOUND = b'{"Error":""}'


class Wire:
    """A connection that speaks bytes."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._socket.sendall(piece)

    def read(self, until: bytes) -> bytes:
        got = b""
        while not got.endswith(until):
            piece = self._socket.recv(65536)
            assert piece, f"closed after {got!r}"
            got += piece
        return got

    def is_closed(self) -> bool:
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    made = Wire(world.hook_port)
    yield made
    made.close()


def request(body: bytes, path: str = "filter", extra: str = "", method: str = "POST") -> bytes:
    head = f"{method} /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def question(world: World, name: str = "web", gang: str | None = None) -> bytes:
    return json.dumps({"Pod": world.pod(name, gang), "NodeNames": ["node-0"]}).encode()


def bind(pod: Any) -> bytes:
    about = pod["metadata"]
    call = {
        "PodName": about["name"],
        "PodNamespace": about["namespace"],
        "PodUID": about["uid"],
        "Node": "node-0",
    }
    return request(json.dumps(call).encode(), "bind")


def hold(world: World, wire: Wire, *, node: bool = True) -> None:
    """Bring one of two members to the barrier, on a node that is made for them unless there is."""
    if node:
        world.node("node-0")
    world.group("train", 2)
    pod = world.pod("train-0", "train")
    wire.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
    wire.read(b"}")
    wire.send(bind(pod))
    eventually(lambda: world.runtime.holds == 1)


def test_a_connection_is_used_again_and_again(world: World, wire: Wire) -> None:
    for _ in range(3):
        wire.send(request(question(world)))
        assert wire.read(b"}").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_call_may_come_in_any_pieces(world: World, wire: Wire) -> None:
    whole = request(question(world), "v1/filter?from=kube-scheduler")
    wire.send(*(whole[at : at + 7] for at in range(0, len(whole), 7)))

    assert b'"NodeNames":["node-0"]' in wire.read(b"}")


def test_a_chunked_body_is_understood(world: World, wire: Wire) -> None:
    body = question(world)
    head = b"POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire.send(head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    assert b"200 OK" in wire.read(b"}")


def test_a_careful_client_is_told_to_go_on(world: World, wire: Wire) -> None:
    head, _, body = request(question(world), extra="Expect: 100-continue\r\n").partition(
        b"\r\n\r\n"
    )
    wire.send(head, b"\r\n\r\n")
    assert wire.read(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"

    wire.send(body)
    assert b"200 OK" in wire.read(b"}")


def test_whoever_wants_to_close_is_closed(world: World, wire: Wire) -> None:
    wire.send(request(question(world), extra="Connection: close\r\n"))
    wire.read(b"}")

    assert wire.is_closed()


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (request(b"{}", "nothing"), 404, b"no such hook: /nothing"),
        (request(b"", "filter", method="GET"), 405, b"filter is a POST"),
        (b"what is this?\r\n\r\n", 400, b"not an HTTP request"),
    ],
    ids=["path", "method", "nonsense"],
)
def test_what_is_no_hook_gets_a_status_and_a_sentence(
    wire: Wire, sent: bytes, status: int, words: bytes
) -> None:
    wire.send(sent)
    answer = wire.read(b"}")

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert words in answer


def test_after_nonsense_the_connection_is_closed(wire: Wire) -> None:
    wire.send(b"what is this?\r\n\r\n")
    wire.read(b"}")

    assert wire.is_closed()


def test_a_body_without_end_is_not_read_for_ever(wire: Wire) -> None:
    size = 20 * BODY_LIMIT
    wire.send(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    with suppress(ConnectionError):
        wire.send(*[b" " * BODY_LIMIT] * 17)

    assert wire.is_closed()


def test_the_barrier_hears_that_a_caller_went_away(world: World, wire: Wire) -> None:
    hold(world, wire)

    wire.close()

    eventually(lambda: world.runtime.holds == 0)


def test_nobody_asks_again_before_the_answer(world: World, wire: Wire) -> None:
    hold(world, wire)

    wire.send(request(question(world)))

    assert wire.is_closed()
    eventually(lambda: world.runtime.holds == 0)


def test_a_held_bind_is_answered_when_the_last_member_comes(world: World, wire: Wire) -> None:
    hold(world, wire)
    pod = world.pod("train-1", "train")
    last = Wire(world.hook_port)
    last.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
    last.read(b"}")

    last.send(bind(pod))

    assert last.read(b"}").endswith(BOUND)
    assert wire.read(b"}").endswith(BOUND)
    last.close()


def test_idle_and_unfinished_connections_end_and_held_ones_do_not(world: World, wire: Wire) -> None:
    hold(world, wire)
    idle, slow = Wire(world.hook_port), Wire(world.hook_port)
    slow.send(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
    port = world.port
    eventually(lambda: sum(each.is_asked for each in port.connections) == 2)
    assert len(port.connections) == 3
    now = world.loop.time()

    assert not any(each.is_overdue(now) for each in port.connections)
    late = now + hookport.PATIENCE_S + 1
    assert sum(each.is_overdue(late) for each in port.connections) == 1
    late = now + hookport.KEEP_ALIVE_S + 1
    assert sum(each.is_overdue(late) for each in port.connections) == 2
    idle.close()
    slow.close()

"""HTTP on the hook port: as kube-scheduler speaks it, and invalid input."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
import uvloop

from extender.hooks.handlers import BODY_LIMIT, HookAnswer, RetryDelay
from extender.hooks.server import LIMITS
from tests.unit.web.conftest import World, eventually

BOUND = b'{"Error":""}'
#: The headers of every call of kube-scheduler.
HEADERS = "Host: localhost\r\nContent-Type: application/json\r\n"


class Wire:
    """A client connection that sends and receives bytes."""

    def __init__(
        self, port: int, tls: ssl.SSLContext | None = None, receive: int | None = None
    ) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(20)
        if receive is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self._socket.connect(("127.0.0.1", port))
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
        except ConnectionError:
            return True

    def reads_something(self) -> bool:
        return self._socket.recv(64) != b""

    def size_of_the_rest(self) -> int:
        """Read to the end and return the number of bytes."""
        size = 0
        with suppress(ConnectionError):
            while piece := self._socket.recv(1 << 20):
                size += len(piece)
        return size

    def ends_with_status(self) -> int | None:
        """Read to the end and return the status, or None if it was lost with the connection."""
        got = b""
        with suppress(ConnectionError):
            while piece := self._socket.recv(65536):
                got += piece
        return int(got.split()[1]) if got else None

    def finish(self) -> None:
        """Close the sending side; responses may still arrive."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    made = Wire(world.hook_port)
    yield made
    made.close()


def request(body: bytes, path: str = "filter", extra: str = "", method: str = "POST") -> bytes:
    head = f"{method} /{path} HTTP/1.1\r\n{HEADERS}Content-Length: {len(body)}\r\n{extra}\r\n"
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


def send_waiting_bind(world: World, wire: Wire, *, node: bool = True) -> None:
    """Send a bind that waits for the second member of its gang, on a new node if *node* is true."""
    if node:
        world.node("node-0")
    world.group("train", 2)
    pod = world.pod("train-0", "train")
    wire.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
    wire.read(b"}")
    wire.send(bind(pod))
    eventually(lambda: world.runtime.holds == 1)


def test_a_connection_is_reused(world: World, wire: Wire) -> None:
    for _ in range(3):
        wire.send(request(question(world)))
        assert wire.read(b"}").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_request_may_be_split_anywhere(world: World, wire: Wire) -> None:
    whole = request(question(world), "v1/filter?from=kube-scheduler")
    wire.send(*(whole[at : at + 7] for at in range(0, len(whole), 7)))

    assert b'"NodeNames":["node-0"]' in wire.read(b"}")


def test_a_chunked_body_is_decoded(world: World, wire: Wire) -> None:
    body = question(world)
    head = f"POST /filter HTTP/1.1\r\n{HEADERS}Transfer-Encoding: chunked\r\n\r\n".encode()
    wire.send(head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    assert b"200 OK" in wire.read(b"}")


def test_a_client_that_expects_100_continue_gets_it(world: World, wire: Wire) -> None:
    head, _, body = request(question(world), extra="Expect: 100-continue\r\n").partition(
        b"\r\n\r\n"
    )
    wire.send(head, b"\r\n\r\n")
    assert wire.read(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"

    wire.send(body)
    assert b"200 OK" in wire.read(b"}")


def test_a_connection_is_closed_when_the_client_asks_for_it(world: World, wire: Wire) -> None:
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
def test_an_unknown_path_method_or_request_gets_a_status_and_a_sentence(
    wire: Wire, sent: bytes, status: int, words: bytes
) -> None:
    wire.send(sent)
    answer = wire.read(b"}")

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert words in answer


def test_repeated_requests_of_unknown_paths_are_counted_and_disconnected(
    world: World,
) -> None:
    for _ in range(2):
        with closing(Wire(world.hook_port)) as unknown:
            unknown.send(request(b"{}", "nothing"))
            unknown.read(b"}")
            assert unknown.is_closed()

    labels = {"port": "hooks", "reason": "no_hook"}
    registry = world.runtime.pages.metrics.registry
    assert registry.get_sample_value("gang_extender_calls_refused_total", labels) == 2


def test_after_an_invalid_request_the_connection_is_closed(wire: Wire) -> None:
    wire.send(b"what is this?\r\n\r\n")
    wire.read(b"}")

    assert wire.is_closed()


def test_an_endless_body_is_not_read_for_ever(wire: Wire) -> None:
    size = 20 * BODY_LIMIT
    wire.send(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    with suppress(ConnectionError):
        wire.send(*[b" " * BODY_LIMIT] * 17)

    assert wire.is_closed()


def test_a_disconnected_client_ends_its_waiting_bind(world: World, wire: Wire) -> None:
    send_waiting_bind(world, wire)

    wire.close()

    eventually(lambda: world.runtime.holds == 0)


def test_a_second_request_before_the_response_closes_the_connection(
    world: World, wire: Wire
) -> None:
    send_waiting_bind(world, wire)

    wire.send(request(question(world)))

    assert wire.is_closed()
    eventually(lambda: world.runtime.holds == 0)


def test_a_waiting_bind_is_answered_when_the_last_member_arrives(world: World, wire: Wire) -> None:
    send_waiting_bind(world, wire)
    pod = world.pod("train-1", "train")
    last = Wire(world.hook_port)
    last.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
    last.read(b"}")

    last.send(bind(pod))

    assert last.read(b"}").endswith(BOUND)
    assert wire.read(b"}").endswith(BOUND)
    last.close()


def test_idle_and_unfinished_connections_time_out_and_those_with_a_waiting_bind_do_not(
    world: World, wire: Wire
) -> None:
    send_waiting_bind(world, wire)
    idle, slow = Wire(world.hook_port), Wire(world.hook_port)
    idle.send(b"\r\n")  # a silent connection is not accepted yet
    slow.send(request(b"{}")[:-1])
    port = world.port
    eventually(lambda: sum(each.has_call for each in port.connections) == 2)
    assert len(port.connections) == 3
    now = world.loop.time()

    def late(at: float) -> int:
        return sum(each.deadline < at for each in port.connections)

    assert late(now) == 0
    assert late(now + LIMITS.call_s + 1) == 1
    assert late(now + LIMITS.idle_s + 1) == 2
    assert late(now + 1e9) == 2
    idle.close()
    slow.close()


def test_a_half_closed_connection_ends_its_waiting_bind(world: World, wire: Wire) -> None:
    send_waiting_bind(world, wire)

    wire.finish()

    assert wire.is_closed()
    eventually(lambda: world.runtime.holds == 0)


def test_a_filter_call_pipelined_after_a_bind_is_never_answered_in_its_place(
    world: World, wire: Wire
) -> None:
    world.node("node-0")
    world.group("train", 2)
    pod = world.pod("train-0", "train")
    ask = request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode())
    wire.send(ask)
    wire.read(b"}")

    wire.send(bind(pod) + ask)

    assert wire.is_closed()
    eventually(lambda: world.runtime.holds == 0)


def test_a_request_of_another_protocol_version_is_refused_and_closed(
    world: World, wire: Wire
) -> None:
    extra = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    wire.send(request(question(world), extra=extra))

    assert b"400 Bad Request" in wire.read(b"}")
    assert wire.is_closed()


def test_a_body_that_is_too_long_is_refused_in_an_error_that_kube_scheduler_shows(
    wire: Wire,
) -> None:
    wire.send(request(b" " * (BODY_LIMIT + 1)))
    answer = wire.read(b"}")

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"the body is over" in answer
    assert wire.is_closed()


def test_a_request_on_a_kept_connection_during_shutdown_is_answered_with_close(
    world: World, wire: Wire
) -> None:
    world.node("node-0")
    wire.send(request(question(world)))
    wire.read(b"}")
    world.wait_for(world.port.drain(grace_s=5))

    wire.send(request(question(world, "next")))
    answer = wire.read(b"}")

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer
    assert wire.is_closed()


@pytest.mark.parametrize("callers", [1, 40])
def test_a_request_sent_before_the_port_closes_is_answered(world: World, callers: int) -> None:
    world.node("node-0")
    asked = request(question(world))
    wires: list[Wire] = []

    async def ask_and_close() -> None:
        # This coroutine does not yield: no connection is accepted meanwhile.
        for _ in range(callers):
            wires.append(Wire(world.hook_port))
            wires[-1].send(asked)
        await world.port.close(grace_s=5)

    world.wait_for(ask_and_close())

    answers = [wire.read(b"}") for wire in wires]
    for wire in wires:
        wire.close()
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)


def test_a_connection_made_before_the_port_closes_is_answered_afterwards(
    world: World,
) -> None:
    world.node("node-0")
    asked = request(question(world))

    async def close_and_ask() -> Wire:
        wire = Wire(world.hook_port)
        closed = asyncio.ensure_future(world.port.close(grace_s=5))
        await asyncio.sleep(0)  # let it start
        wire.send(asked)
        await closed
        return wire

    with closing(asyncio.run_coroutine_threadsafe(close_and_ask(), world.loop).result(20)) as wire:
        assert wire.read(b"}").startswith(b"HTTP/1.1 200 ")


def test_a_new_connection_during_shutdown_is_answered_with_close(world: World) -> None:
    world.node("node-0")
    world.wait_for(world.port.drain(grace_s=5))

    with closing(Wire(world.hook_port)) as late:
        late.send(request(question(world)))
        assert b"connection: close" in late.read(b"}")
        assert late.is_closed()

    world.wait_for(world.port.end())
    with closing(socket.socket()) as refused:
        assert refused.connect_ex(("127.0.0.1", world.hook_port)) == errno.ECONNREFUSED


def test_an_unfinished_request_does_not_delay_shutdown(
    world: World, wire: Wire, without_group: bytes
) -> None:
    world.runtime.hooks.retries = RetryDelay(0.3)
    ask_until_delayed(world, wire, without_group)

    async def drain_and_ask() -> Wire:
        drained = asyncio.ensure_future(world.port.drain(grace_s=3600))
        await asyncio.sleep(0)  # let it start
        late = Wire(world.hook_port)
        late.send(without_group[:-1])  # the rest is never sent
        await drained
        return late

    begun = asyncio.run_coroutine_threadsafe(drain_and_ask(), world.loop)
    with closing(begun.result(20)):
        assert b"PodGroupMissing" in wire.read(b"}}")


def test_requests_sent_while_the_loop_was_blocked_are_answered_before_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The production loop runs ready coroutines before it reads again.
    with (
        World(new_loop=uvloop.new_event_loop) as world,
        closing(Wire(world.hook_port)) as wire,
        closing(Wire(world.hook_port)) as other,
    ):
        world.node("node-0")
        asked = request(question(world))
        for each in (wire, other):
            each.send(asked)
            each.read(b"}")
        answer = world.runtime.hooks.answer

        def stand_still(verb: str, body: bytes) -> HookAnswer:
            monkeypatch.undo()
            wire.send(asked)
            time.sleep(0.3)  # longer than any remaining poll
            return answer(verb, body)

        async def end() -> None:
            await world.port.drain(grace_s=5)
            monkeypatch.setattr(world.runtime.hooks, "answer", stand_still)
            ending = asyncio.ensure_future(world.port.end())
            # By then the acceptor is closed, and the last poll has started.
            asyncio.get_running_loop().call_later(0.05, other.send, asked)
            await ending

        world.wait_for(end())

        assert wire.read(b"}").startswith(b"HTTP/1.1 200 ")


@pytest.fixture
def without_group(world: World) -> bytes:
    """A filter call for a member of a gang without a PodGroup."""
    world.node("node-0")
    return request(question(world, "lost-0", gang="lost"))


def refuse(wire: Wire, without_group: bytes, times: int) -> None:
    """Send the call repeatedly; each is refused."""
    for _ in range(times):
        wire.send(without_group)
        assert b"PodGroupMissing" in wire.read(b"}}")


def delayed_refusals(world: World) -> float | None:
    registry = world.runtime.pages.metrics.registry
    return registry.get_sample_value("gang_extender_delayed_refusals_total")


def test_a_pod_that_kube_scheduler_retries_rapidly_is_refused_after_a_delay(
    world: World, wire: Wire, without_group: bytes
) -> None:
    refuse(wire, without_group, 2)
    assert delayed_refusals(world) == 0

    refuse(wire, without_group, 3)

    assert delayed_refusals(world) == 3


def ask_until_delayed(world: World, wire: Wire, without_group: bytes) -> None:
    """Send the call until a refusal is delayed; do not wait for that one."""
    refuse(wire, without_group, 2)
    wire.send(without_group)
    eventually(lambda: delayed_refusals(world) == 1)


def test_other_calls_are_answered_while_a_refusal_is_delayed(
    world: World, wire: Wire, without_group: bytes
) -> None:
    world.runtime.hooks.retries = RetryDelay(20.0)
    ask_until_delayed(world, wire, without_group)

    with closing(Wire(world.hook_port)) as other:
        other.send(request(question(world, "web")))
        assert b'"node-0"' in other.read(b"}")


def test_a_delayed_refusal_is_sent_at_shutdown(
    world: World, wire: Wire, without_group: bytes
) -> None:
    world.runtime.hooks.retries = RetryDelay(0.3)
    ask_until_delayed(world, wire, without_group)

    world.wait_for(world.port.drain(grace_s=5))

    assert b"PodGroupMissing" in wire.read(b"}}")
    assert wire.is_closed()


def test_a_client_that_disconnects_before_a_delayed_refusal_causes_no_error(
    world: World,
    without_group: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world.runtime.hooks.retries = RetryDelay(0.1)
    with closing(Wire(world.hook_port)) as wire:
        refuse(wire, without_group, 2)
        wire.send(without_group)
        eventually(lambda: delayed_refusals(world) == 1)
    with closing(Wire(world.hook_port)) as wire:
        refuse(wire, without_group, 2)

    assert [record for record in caplog.records if record.levelname == "ERROR"] == []

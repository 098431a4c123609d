"""HTTP on the hook port: as kube-scheduler speaks it, and invalid input."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
import uvloop

from extender.hooks.handlers import BODY_LIMIT, HookAnswer, RetryDelay
from extender.hooks.server import LIMITS
from tests.unit.web.conftest import World, eventually
from tests.unit.web.wire import BOUND, Wire, bind, question, request, send_waiting_bind


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    made = Wire(world.hook_port)
    yield made
    made.close()


def test_an_endless_body_is_not_read_for_ever(wire: Wire) -> None:
    size = 20 * BODY_LIMIT
    wire.send(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    with suppress(ConnectionError):
        wire.send(*[b" " * BODY_LIMIT] * 17)

    assert wire.is_closed()


def test_a_disconnected_client_ends_its_waiting_bind(world: World, wire: Wire) -> None:
    send_waiting_bind(world, wire)

    wire.close()

    eventually(lambda: world.runtime.core.permit.waiting_binds == 0)


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
    eventually(lambda: world.runtime.core.permit.waiting_binds == 0)


def test_a_body_that_is_too_long_is_refused_in_an_error_that_kube_scheduler_shows(
    wire: Wire,
) -> None:
    wire.send(request(b" " * (BODY_LIMIT + 1)))
    answer = wire.read(b"}")

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"the body is over" in answer
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


def test_kept_and_new_connections_during_shutdown_are_answered_with_close(
    world: World, wire: Wire
) -> None:
    world.node("node-0")
    wire.send(request(question(world)))
    wire.read(b"}")
    world.wait_for(world.port.drain(grace_s=5))

    with closing(Wire(world.hook_port)) as late:
        for each in (wire, late):
            each.send(request(question(world)))
            answer = each.read(b"}")
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in answer
            assert each.is_closed()

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

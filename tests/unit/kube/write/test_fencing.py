"""A request is only sent in the term in which it was ordered, however long it waited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from extender.kube.client import ApiClient
from extender.kube.write import bind
from extender.kube.write.bind import ApiBinder
from extender.kube.write.evict import ApiEvictor
from extender.kube.write.wake import ApiWaker
from extender.leader.fencing import Term
from extender.model.pod import PodUid
from extender.ports import EvictOrder, EvictResult, WakeOrder
from tests.api_server import (
    DO_AND_HANG_UP,
    HANG_UP,
    LoopbackServer,
    connected,
    loopback_server,
    scene,
)
from tests.unit.kube.api_double import ApiDouble
from tests.unit.kube.write.test_bind import connected_binder, order, outcomes


class TermClock:
    """A clock set by the test, with a term of ten seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.term = Term(lambda: self.now)
        self.term.begin(until=10.0)

    def expire(self) -> None:
        self.now = 10.0

    def begin_next_term(self) -> None:
        self.expire()
        self.term.begin(until=100.0)


@asynccontextmanager
async def fenced_binder() -> AsyncIterator[tuple[LoopbackServer, ApiBinder, TermClock]]:
    time = TermClock()
    async with connected_binder(size=1, fencing=time.term) as (server, binder):
        yield server, binder, time


@scene(fenced_binder)
async def test_a_gang_is_refused_without_a_lease_and_nothing_is_sent(
    server: LoopbackServer, binder: ApiBinder, time: TermClock, /
) -> None:
    time.expire()
    for index in range(3):
        server.add_pod(f"w-{index}")

    got = await outcomes(binder, *(order(f"w-{index}") for index in range(3)))
    assert got == [bind.NOT_LEADER] * 3
    assert server.requests == []


@scene(fenced_binder)
async def test_a_term_that_ends_before_the_connection_opens_stops_the_bind(
    server: LoopbackServer, binder: ApiBinder, time: TermClock, /
) -> None:
    server.add_pod("w-0")
    answer = asyncio.ensure_future(outcomes(binder, order("w-0")))
    await asyncio.sleep(0)  # the bind is ordered, and the connection is opening
    time.expire()

    assert await answer == [bind.NOT_LEADER]
    assert server.requests == []


@scene(fenced_binder)
async def test_a_bind_does_not_continue_in_the_next_term(
    server: LoopbackServer, binder: ApiBinder, time: TermClock, /
) -> None:
    server.add_pod("w-0")
    answer = asyncio.ensure_future(outcomes(binder, order("w-0")))
    await asyncio.sleep(0)
    time.begin_next_term()

    assert await answer == [bind.NOT_LEADER]
    assert server.requests == []


@scene(fenced_binder)
async def test_a_throttled_bind_is_not_retried_after_its_term(
    server: LoopbackServer, binder: ApiBinder, time: TermClock, /
) -> None:
    server.add_pod("w-0")
    server.script.append(429)
    answer = asyncio.ensure_future(outcomes(binder, order("w-0")))
    await server.has_heard(1)
    time.expire()

    assert await answer == [bind.NOT_LEADER]
    assert len(server.requests) == 1


@scene(fenced_binder)
async def test_a_bind_sent_before_the_term_ended_is_read_and_reported_as_bound(
    server: LoopbackServer, binder: ApiBinder, time: TermClock, /
) -> None:
    server.add_pod("w-0")
    server.script.append(DO_AND_HANG_UP)
    answer = asyncio.ensure_future(outcomes(binder, order("w-0")))
    await server.has_heard(1)
    time.expire()

    assert await answer == [bind.BOUND]
    assert [request.method for request in server.requests] == ["POST", "GET"]


@scene(fenced_binder)
async def test_a_bind_sent_before_the_term_ended_and_not_visible_is_unknown_and_not_resent(
    server: LoopbackServer, binder: ApiBinder, time: TermClock, /
) -> None:
    server.add_pod("w-0")
    server.script.append(HANG_UP)
    answer = asyncio.ensure_future(outcomes(binder, order("w-0")))
    await server.has_heard(1)
    time.expire()

    assert await answer == [bind.UNKNOWN]
    assert [request.method for request in server.requests] == ["POST", "GET"]


@scene()
async def test_a_queued_wake_up_is_not_sent_in_the_next_term() -> None:
    time = TermClock()
    async with loopback_server() as server, connected(server) as pipeline:
        waker = ApiWaker(pipeline, per_s=50, burst=1, fencing=time.term)
        for name in ("w-0", "w-1"):
            server.add_pod(name)
        orders = [
            WakeOrder(uid=PodUid(f"uid-{name}"), namespace="team", name=name, node="n")
            for name in ("w-0", "w-1")
        ]
        waker.wake(orders)
        await server.has_heard(1)
        time.begin_next_term()
        waker.wake(orders[:1])
        await server.has_heard(2)

        assert [request.path.split("/")[6] for request in server.requests] == ["w-0", "w-0"]


EVICT = EvictOrder(uid=PodUid("uid-0"), namespace="a", name="old-0", why="for a/needy")


def test_no_pod_is_evicted_without_a_lease():
    time, api = TermClock(), ApiDouble()
    time.expire()
    evictor = ApiEvictor(cast(ApiClient, api), fencing=time.term)

    assert evictor.evict([EVICT])[0].cancelled()
    assert api.asked == []
    evictor.stop()


def test_a_queued_eviction_is_cancelled_when_its_term_ends():
    time, api, may_go = TermClock(), ApiDouble(), threading.Event()
    evictor = ApiEvictor(cast(ApiClient, api), wait=lambda _: may_go.wait(5), fencing=time.term)
    outcome = evictor.evict([EVICT])[0]
    time.begin_next_term()
    may_go.set()

    assert type(outcome.exception(5)).__name__ == "CancelledError"
    assert api.asked == []
    evictor.stop()


def test_a_throttled_eviction_is_not_retried_in_another_term():
    api = ApiDouble({"POST /api/v1/namespaces/a/pods/old-0/eviction": [(429, {"message": "no"})]})
    time = TermClock()

    def wait(seconds: float) -> None:
        if len(api.asked) == 2:
            time.begin_next_term()

    evictor = ApiEvictor(cast(ApiClient, api), wait=wait, fencing=time.term)

    assert type(evictor.evict([EVICT])[0].exception(5)).__name__ == "CancelledError"
    assert len(api.asked) == 2
    evictor.stop()


def test_an_eviction_whose_condition_was_written_in_one_term_is_not_sent_in_the_next():
    time = TermClock()

    class SlowCondition(ApiDouble):
        def request(self, method: str, path: str, body: object = None, **rest: Any) -> bytes:
            said = super().request(method, path, body, **rest)
            time.begin_next_term()
            return said

    api = SlowCondition()
    evictor = ApiEvictor(cast(ApiClient, api), fencing=time.term)

    assert type(evictor.evict([EVICT])[0].exception(5)).__name__ == "CancelledError"
    assert [asked.method for asked in api.asked] == ["PATCH"]
    evictor.stop()


def test_pods_are_evicted_while_the_lease_is_held():
    time, api = TermClock(), ApiDouble()
    evictor = ApiEvictor(cast(ApiClient, api), fencing=time.term)

    assert evictor.evict([EVICT])[0].result(5).result is EvictResult.LEAVING
    evictor.stop()

"""A request is only sent in the term in which it was ordered, unless it needs no lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from extender.kube.client import ApiClient
from extender.kube.write import bind
from extender.kube.write.evict import ApiEvictor
from extender.kube.write.wake import ApiWaker
from extender.leader.fencing import Term
from extender.model.pod import PodUid
from extender.ports import (
    BindOrder,
    BindOutcome,
    EvictOrder,
    EvictOutcome,
    EvictResult,
    WakeOrder,
    Whose,
)
from tests.api_server import (
    DO_AND_HANG_UP,
    HANG_UP,
    NEVER,
    VirtualLoop,
    connected,
    loopback_server,
    scene,
)
from tests.unit.kube.api_double import ApiDouble
from tests.unit.kube.write.test_bind import Binds, connected_binder, order


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
async def fenced_binder() -> AsyncIterator[tuple[Binds, TermClock]]:
    time = TermClock()
    async with connected_binder(size=1, fencing=time.term) as (binds,):
        yield binds, time


@scene(fenced_binder)
async def test_a_gang_is_refused_without_a_lease_and_nothing_is_sent(
    binds: Binds, time: TermClock, /
) -> None:
    time.expire()

    assert await binds.outcomes(*binds.gang(3)) == [bind.NOT_LEADER] * 3
    assert binds.server.requests == []


@pytest.mark.parametrize("begins_again", [False, True])
@scene(fenced_binder)
async def test_a_term_that_ends_before_the_connection_opens_stops_the_bind(
    binds: Binds, time: TermClock, /, begins_again: bool
) -> None:
    answer = asyncio.ensure_future(binds.outcomes(*binds.gang(1)))
    await asyncio.sleep(0)  # the bind is ordered, and the connection is opening
    if begins_again:
        time.begin_next_term()
    else:
        time.expire()

    assert await answer == [bind.NOT_LEADER]
    assert binds.server.requests == []


@pytest.mark.parametrize(
    ("response", "outcome", "methods"),
    [
        pytest.param(429, bind.NOT_LEADER, ["POST"], id="throttled: not retried"),
        pytest.param(DO_AND_HANG_UP, bind.BOUND, ["POST", "GET"], id="lost, and the pod is bound"),
        pytest.param(HANG_UP, bind.UNKNOWN, ["POST", "GET"], id="lost, and the pod is not bound"),
    ],
)
@scene(fenced_binder)
async def test_a_bind_sent_before_the_term_ended_is_only_read_after_it(
    binds: Binds,
    time: TermClock,
    /,
    response: int | str,
    outcome: BindOutcome,
    methods: list[str],
) -> None:
    binds.server.script.append(response)
    answer = asyncio.ensure_future(binds.outcomes(*binds.gang(1)))
    await binds.server.has_heard(1)
    time.expire()

    assert await answer == [outcome]
    assert [request.method for request in binds.server.requests] == methods


@scene()
async def test_a_queued_wake_up_is_not_sent_in_the_next_term() -> None:
    time = TermClock()
    async with loopback_server() as server, connected(server) as pipeline:
        waker = ApiWaker(pipeline, per_s=50, burst=1, fencing=time.term)
        orders = [
            WakeOrder(uid=PodUid(server.add_pod(name).uid), namespace="team", name=name, node="n")
            for name in ("w-0", "w-1")
        ]
        waker.wake(orders)
        await server.has_heard(1)
        time.begin_next_term()
        waker.wake(orders[:1])
        await server.has_heard(2)

        assert [request.path.split("/")[6] for request in server.requests] == ["w-0", "w-0"]


EVICT = EvictOrder(uid=PodUid("uid-0"), namespace="a", name="old-0", why="for a/needy")


def evict(api: ApiDouble, time: TermClock, **facts: Any) -> Future[EvictOutcome]:
    return ApiEvictor(cast(ApiClient, api), fencing=time.term, **facts).evict([EVICT])[0]


def is_cancelled(eviction: Future[EvictOutcome]) -> bool:
    return type(eviction.exception(5)).__name__ == "CancelledError"


def test_pods_are_evicted_only_while_the_lease_is_held() -> None:
    time, api = TermClock(), ApiDouble()
    assert evict(api, time).result(5).result is EvictResult.LEAVING
    api.asked.clear()
    time.expire()

    assert evict(api, time).cancelled()
    assert api.asked == []


def test_a_queued_eviction_is_cancelled_when_its_term_ends() -> None:
    time, api, may_go = TermClock(), ApiDouble(), threading.Event()
    eviction = evict(api, time, wait=lambda _: may_go.wait(5))
    time.begin_next_term()
    may_go.set()

    assert is_cancelled(eviction)
    assert api.asked == []


def test_a_throttled_eviction_is_not_retried_in_another_term() -> None:
    api = ApiDouble({"POST /api/v1/namespaces/a/pods/old-0/eviction": [(429, {"message": "no"})]})
    time = TermClock()

    def wait(seconds: float) -> None:
        if len(api.asked) == 2:
            time.begin_next_term()

    assert is_cancelled(evict(api, time, wait=wait))
    assert len(api.asked) == 2


def test_an_eviction_whose_condition_was_written_in_one_term_is_not_sent_in_the_next() -> None:
    time = TermClock()

    class SlowCondition(ApiDouble):
        def request(self, method: str, path: str, body: object = None, **rest: Any) -> bytes:
            said = super().request(method, path, body, **rest)
            time.begin_next_term()
            return said

    api = SlowCondition()
    assert is_cancelled(evict(api, time))
    assert [asked.method for asked in api.asked] == ["PATCH"]


def bind_order(whose: Whose) -> BindOrder:
    return msgspec.structs.replace(order("w-0"), whose=whose)


def without_lease(exempt: str = "uid-w-0") -> Any:
    """A binder that never held the lease."""
    return connected_binder(
        fencing=Term(lambda: 0.0), is_exempt=lambda pod: pod.metadata.uid == exempt
    )


@pytest.mark.parametrize(
    ("whose", "script", "outcome", "methods"),
    [
        pytest.param(Whose.SCHEDULERS, [], bind.BOUND, ["POST"], id="kube-scheduler decided it"),
        pytest.param(Whose.SCHEDULERS, [503], bind.BOUND, ["POST"] * 2, id="it is retried"),
        pytest.param(Whose.UNKNOWN, [], bind.BOUND, ["GET", "POST"], id="exempt by its pod"),
        pytest.param(Whose.UNKNOWN, [404], bind.POD_GONE, ["GET"], id="a deleted pod"),
        pytest.param(Whose.UNKNOWN, [NEVER], bind.TIMED_OUT, ["GET"], id="a pod still being read"),
    ],
)
@scene(without_lease, new_loop=VirtualLoop)
async def test_a_bind_that_needs_no_gang_is_sent_without_a_lease_and_an_unknown_pod_is_read_first(
    binds: Binds,
    /,
    whose: Whose,
    script: list[int | str],
    outcome: BindOutcome,
    methods: list[str],
) -> None:
    binds.server.add_pod("w-0")
    binds.server.script.extend(script)

    assert await binds.outcomes(bind_order(whose), within_s=2.0) == [outcome]
    assert [each.method for each in binds.server.requests] == methods


@scene(without_lease, exempt="uid-of-another")
async def test_an_unknown_pod_that_is_not_exempt_is_not_bound(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")

    assert await binds.outcomes(bind_order(Whose.UNKNOWN)) == [bind.NOT_EXEMPT]
    assert [each.method for each in binds.server.requests] == ["GET"]


@scene(without_lease)
async def test_beside_an_exempt_bind_our_own_is_refused_without_a_lease(binds: Binds, /) -> None:
    exempt, ours = binds.gang(2)
    exempt = msgspec.structs.replace(exempt, whose=Whose.SCHEDULERS)

    assert await binds.outcomes(exempt, ours) == [bind.BOUND, bind.NOT_LEADER]
    assert not binds.server.node_of("w-1")

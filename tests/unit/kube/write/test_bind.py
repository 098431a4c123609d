"""Binds over real sockets, with the failures an API server can show."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.kube.write import bind
from extender.kube.write.bind import ApiBinder
from extender.kube.write.bind_limiter import MAX_LIMIT
from extender.model.pod import PodUid
from extender.ports import BindOrder, BindOutcome, BindResult
from tests.api_server import (
    DO_AND_HANG_UP,
    HANG_UP,
    NEVER,
    LoopbackServer,
    Request,
    VirtualLoop,
    connected,
    loopback_server,
    play,
    scene,
)


def order(name: str, node: str = "n-1") -> BindOrder:
    return BindOrder(uid=PodUid(f"uid-{name}"), namespace="team", name=name, node=node)


@asynccontextmanager
async def connected_binder(
    size: int = 4, silence_s: float = 5.0, **facts: Any
) -> AsyncIterator[tuple[LoopbackServer, ApiBinder]]:
    async with (
        loopback_server() as server,
        connected(server, size=size, silence_s=silence_s) as pipeline,
    ):
        now = asyncio.get_running_loop().time
        yield server, ApiBinder(pipeline, now=now, chance=lambda: 0.0, **facts)


async def outcomes(
    binder: ApiBinder, *orders: BindOrder, within_s: float = 10.0
) -> list[BindOutcome]:
    waiting = {order.uid: asyncio.get_running_loop().create_future() for order in orders}
    until = asyncio.get_running_loop().time() + within_s
    binder.bind(orders, lambda order, outcome: waiting[order.uid].set_result(outcome), until)
    return list(await asyncio.gather(*waiting.values()))


@scene(connected_binder)
async def test_each_pod_of_a_gang_is_bound_with_its_uid_and_node(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    for index in range(40):
        server.add_pod(f"w-{index}")
    orders = [order(f"w-{index}", node=f"n-{index % 7}") for index in range(40)]

    assert await outcomes(binder, *orders) == [bind.BOUND] * 40
    assert all(server.node_of(each.name) == each.node for each in orders)
    assert len(server.requests) == 40


@scene(connected_binder)
async def test_the_binds_of_a_gang_are_spread_over_all_connections(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    for index in range(8):
        server.add_pod(f"w-{index}")
    await outcomes(binder, *(order(f"w-{index}") for index in range(8)))

    on_connection: dict[int, list[str]] = {}
    for request in server.requests:
        on_connection.setdefault(request.connection, []).append(request.path.split("/")[6])
    assert sorted(on_connection.values()) == [
        ["w-0", "w-1"],
        ["w-2", "w-3"],
        ["w-4", "w-5"],
        ["w-6", "w-7"],
    ]


@scene(connected_binder)
async def test_single_pods_bound_one_after_the_other_share_one_connection(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    for index in range(5):
        server.add_pod(f"w-{index}")
        await outcomes(binder, order(f"w-{index}"))

    assert server.connections == 1


@scene(connected_binder)
async def test_every_request_carries_the_token(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    await outcomes(binder, order("w-0"))

    assert server.requests[0].headers["authorization"] == "Bearer secret"


@scene(connected_binder)
async def test_a_pod_name_is_escaped_in_the_path_of_its_bind(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    (outcome,) = await outcomes(binder, order("../../nodes"))

    assert outcome.result is BindResult.LOST
    assert server.requests[0].path.endswith("/pods/..%2F..%2Fnodes/binding")


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({"node": "n-1"}, bind.BOUND),
        ({"node": "n-2"}, bind.ELSEWHERE),
        ({"deleting": True}, bind.DELETING),
        ({"gates": [{"name": "wait"}]}, bind.GATED),
    ],
    ids=["on our node", "on another node", "being deleted", "gated"],
)
@scene(connected_binder)
async def test_after_a_conflict_the_pod_is_read_to_find_the_outcome(
    server: LoopbackServer, binder: ApiBinder, /, facts, outcome
) -> None:
    server.add_pod("w-0", **facts)

    assert await outcomes(binder, order("w-0")) == [outcome]
    assert [request.method for request in server.requests] == ["POST", "GET"]


@scene(connected_binder)
async def test_a_pod_recreated_under_the_same_name_is_reported_as_gone(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0").uid = "uid-of-another"

    assert await outcomes(binder, order("w-0")) == [bind.POD_GONE]


@scene(connected_binder)
async def test_a_deleted_pod_is_reported_as_gone(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    assert await outcomes(binder, order("w-0")) == [bind.POD_GONE]


@pytest.mark.parametrize("status", [401, 408, 429, 500, 502, 503, 504])
@scene(connected_binder)
async def test_a_temporary_error_is_retried(
    server: LoopbackServer, binder: ApiBinder, /, status
) -> None:
    server.add_pod("w-0")
    server.script.extend([status, status])

    assert await outcomes(binder, order("w-0")) == [bind.BOUND]
    assert len(server.asked("POST")) == 3


@pytest.mark.parametrize("status", [429, 503])
@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_retry_waits_as_long_as_retry_after_asks(
    server: LoopbackServer, binder: ApiBinder, /, status
) -> None:
    server.add_pod("w-0")
    server.script.append(status)
    server.retry_after = "1"
    now = asyncio.get_running_loop().time
    before = now()

    assert await outcomes(binder, order("w-0")) == [bind.BOUND]
    assert now() - before >= 1.0


@pytest.mark.parametrize("asked", ["3600", "999999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "-1"])
@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_retry_after_beyond_the_deadline_still_leaves_time_for_one_retry(
    server: LoopbackServer, binder: ApiBinder, /, asked
) -> None:
    server.add_pod("w-0")
    server.script.append(429)
    server.retry_after = asked

    assert await outcomes(binder, order("w-0"), within_s=3.0) == [bind.BOUND]


@pytest.mark.parametrize("status", [400, 403, 422])
@scene(connected_binder)
async def test_a_permanent_refusal_is_not_retried(
    server: LoopbackServer, binder: ApiBinder, /, status
) -> None:
    server.add_pod("w-0")
    server.script.append(status)

    assert await outcomes(binder, order("w-0")) == [bind.REFUSED]
    assert len(server.requests) == 1


@scene(connected_binder)
async def test_a_missing_permission_is_named_in_the_outcome_and_remembered(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.words = 'User "us" cannot create resource "pods/binding" in API group ""'
    server.script.append(403)
    (outcome,) = await outcomes(binder, order("w-0"))

    assert outcome.result is BindResult.FAILED
    assert outcome.message.startswith("us may not create pods/binding; grant it")
    (refused,) = server.access.missing_permissions.recent()
    assert refused.account == "us"


@scene(connected_binder)
async def test_a_bind_refused_by_a_terminating_namespace_fails_without_a_warning(
    server: LoopbackServer, binder: ApiBinder, /, caplog
) -> None:
    server.add_pod("w-0")
    server.cause = "NamespaceTerminating"
    server.script.append(403)

    assert await outcomes(binder, order("w-0")) == [bind.NAMESPACE_GOES]

    assert caplog.records == []


@scene(connected_binder)
async def test_a_temporary_conflict_is_retried(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.script.append(409)

    assert await outcomes(binder, order("w-0")) == [bind.BOUND]


@scene(connected_binder, size=1)
async def test_after_a_connection_breaks_the_outcome_of_each_pod_is_found_separately(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    for index in range(4):
        server.add_pod(f"w-{index}")
    server.script.extend([0, DO_AND_HANG_UP])

    assert await outcomes(binder, *(order(f"w-{i}") for i in range(4))) == [bind.BOUND] * 4
    # The bind of w-1 took effect without a response: it is only read; w-2 and w-3 are bound.
    posts = [request.path.split("/")[6] for request in server.asked("POST")]
    assert sorted(posts) == ["w-0", "w-1", "w-2", "w-3"]
    assert len(server.asked("GET")) == 3


@scene(connected_binder)
async def test_an_idle_connection_closed_by_the_server_is_reopened(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.add_pod("w-1")
    await outcomes(binder, order("w-0"))
    server.drop_connections()

    assert await outcomes(binder, order("w-1")) == [bind.BOUND]


@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_server_that_always_closes_the_connection_leaves_the_outcome_unknown(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.script.extend([HANG_UP] * 1000)

    assert await outcomes(binder, order("w-0"), within_s=0.3) == [bind.UNKNOWN]


@scene(connected_binder, silence_s=0.05)
async def test_a_connection_that_stays_silent_is_replaced_and_the_bind_retried(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.script.append(NEVER)

    assert await outcomes(binder, order("w-0")) == [bind.BOUND]


@scene(connected_binder)
async def test_a_bind_without_a_response_until_its_deadline_is_unknown(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.script.append(NEVER)

    assert await outcomes(binder, order("w-0"), within_s=0.05) == [bind.UNKNOWN]


@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_pod_is_not_read_again_after_its_deadline(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.add_pod("w-1")
    server.script.append(HANG_UP)
    server.refused = {"w-0": 500, "w-1": 500}

    assert await outcomes(binder, order("w-0"), within_s=0.3) != [bind.BOUND]
    asked = len(server.requests)
    assert await outcomes(binder, order("w-1"), within_s=1.0) != [bind.BOUND]

    late = [each for each in server.requests[asked:] if each.path.endswith("/w-0")]
    assert len(late) <= 1, "the request that was in flight"


@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_bind_throttled_until_its_deadline_has_certainly_failed(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.script.extend([429] * 1000)

    # Long enough to end between two requests: a request in flight would leave it unknown.
    assert await outcomes(binder, order("w-0"), within_s=2.0) == [bind.TIMED_OUT]
    assert server.node_of("w-0") == ""


@scene()
async def test_a_bind_to_an_unreachable_server_has_certainly_failed() -> None:
    async with loopback_server() as server:
        pass
    async with connected(server) as pipeline:
        binder = ApiBinder(pipeline, chance=lambda: 0.0)

        assert await outcomes(binder, order("w-0"), within_s=0.2) == [bind.TIMED_OUT]


@scene(connected_binder)
async def test_binds_may_be_requested_from_another_thread(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    results: list[BindOutcome] = []

    def elsewhere() -> None:
        settled = threading.Event()
        until = time.monotonic() + 10
        binder.bind([order("w-0")], lambda _, it: (results.append(it), settled.set()), until)
        settled.wait(timeout=5)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)

    assert results == [bind.BOUND]


@scene(connected_binder)
async def test_a_gang_that_could_only_be_bound_in_part_before_its_deadline_is_not_sent(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    gang = [order(f"w-{index}") for index in range(300)]
    for each in gang:
        server.add_pod(each.name)

    assert await outcomes(binder, *gang, within_s=1.0) == [bind.TIMED_OUT] * 300
    assert not server.requests


@scene(connected_binder, silence_s=0.2, new_loop=VirtualLoop)
async def test_binds_in_flight_are_limited_and_the_others_follow_in_order(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    gang = [order(f"w-{index}") for index in range(3 * MAX_LIMIT)]
    for each in gang:
        server.add_pod(each.name)
    server.script.append(NEVER)  # its connection is silent from the first request on
    bound = asyncio.ensure_future(outcomes(binder, *gang))
    await server.has_heard(MAX_LIMIT // 4)
    assert len(server.requests) <= MAX_LIMIT

    assert await bound == [bind.BOUND] * len(gang)


@scene(connected_binder, silence_s=1.0, new_loop=VirtualLoop)
async def test_the_limiter_releases_binds_that_time_out_or_are_no_longer_awaited(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.script.extend([NEVER] * 4)
    stuck = [order(f"w-{index}") for index in range(2 * MAX_LIMIT)]
    for each in [*stuck, order("next-0"), order("next-1")]:
        server.add_pod(each.name)
    results = await outcomes(binder, *stuck, within_s=0.6)
    assert set(results) == {bind.UNKNOWN, bind.TIMED_OUT}
    assert binder.in_flight == 0

    assert await outcomes(binder, order("next-0"), order("next-1")) == [bind.BOUND] * 2
    assert binder.in_flight == 0


@pytest.mark.parametrize("status", [429, 500])
@scene(connected_binder, new_loop=VirtualLoop)
async def test_pods_that_are_refused_temporarily_do_not_delay_other_pods(
    server: LoopbackServer, binder: ApiBinder, /, status
) -> None:
    server.refused = {f"w-{index}": status for index in range(MAX_LIMIT)}
    for index in range(MAX_LIMIT):
        server.add_pod(f"w-{index}")
    server.add_pod("other")
    crowd = (order(f"w-{index}") for index in range(MAX_LIMIT))
    waiting = asyncio.ensure_future(outcomes(binder, *crowd))

    assert await outcomes(binder, order("other"), within_s=2.0) == [bind.BOUND]
    server.refused = {}
    assert await waiting == [bind.BOUND] * MAX_LIMIT


@scene(connected_binder)
async def test_a_callback_that_raises_does_not_cost_other_pods_their_outcome(
    server: LoopbackServer, binder: ApiBinder, /, caplog
) -> None:
    settled: list[str] = []
    all_settled = asyncio.Event()

    def settle(order: BindOrder, outcome: BindOutcome) -> None:
        settled.append(order.name)
        if len(settled) == 3:
            all_settled.set()
        if order.name == "w-0":
            raise RuntimeError("callback failed")

    server.script.extend([NEVER] * 3)
    gang = [order(f"w-{index}") for index in range(3)]
    binder.bind(gang, settle, asyncio.get_running_loop().time() + 0.1)
    await all_settled.wait()

    assert settled == ["w-0", "w-1", "w-2"]

    assert "callback failed" in caplog.text


@scene(connected_binder, size=1, new_loop=VirtualLoop)
async def test_a_bind_is_retried_for_as_long_as_the_caller_waits(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    for name in ("w-0", "w-1"):
        server.add_pod(name)
    server.script.extend([DO_AND_HANG_UP, HANG_UP, *[503] * 6])

    assert await outcomes(binder, order("w-0"), order("w-1")) == [bind.BOUND] * 2


@scene(connected_binder, silence_s=0.3, new_loop=VirtualLoop)
async def test_gangs_are_bound_after_a_server_stall_longer_than_the_silence_limit(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    gangs = [[order(f"g{gang}-{index}") for index in range(20)] for gang in range(10)]
    for each in (each for gang in gangs for each in gang):
        server.add_pod(each.name)
    server.goes_on.clear()
    waiting = [asyncio.ensure_future(outcomes(binder, *gang)) for gang in gangs]
    # Every connection is replaced once; the pods of binds in flight are read on new ones.
    await server.has_heard(2 * 4 + 1)
    server.goes_on.set()

    assert await asyncio.gather(*waiting) == [[bind.BOUND] * 20] * 10
    assert all(server.node_of(each.name) for gang in gangs for each in gang)
    assert binder.in_flight == 0


def test_no_message_has_counters_or_percent_signs():
    messages = [bind.POD_GONE, bind.DELETING, bind.ELSEWHERE, bind.GATED, bind.REFUSED]

    for outcome in [*messages, bind.TIMED_OUT, bind.UNKNOWN]:
        assert outcome.message
        assert not any(character in "%0123456789" for character in outcome.message)


@scene()
async def test_a_bind_annotates_the_pod_with_the_queue_that_admitted_it() -> None:
    async with loopback_server() as server, connected(server) as pipeline:
        queues = {"uid-w-0": "gold"}
        binder = ApiBinder(pipeline, started_in=lambda uid: queues.get(uid, ""))
        server.add_pod("w-0")
        server.add_pod("other")
        await outcomes(binder, order("w-0"), order("other"))

        said = {each.path.split("/")[6]: each.body["metadata"] for each in server.requests}
        marks = said["w-0"]["annotations"]
        assert marks == {"gang-extender.io/started-in": "gold"}
        assert "annotations" not in said["other"]


class UnconnectedLoop(VirtualLoop):
    """An event loop that opens connections once `is_up` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_up = asyncio.Event()

    async def create_connection(self, *arguments: Any, **rest: Any) -> Any:
        await self.is_up.wait()
        return await super().create_connection(*arguments, **rest)


def test_a_bind_that_never_got_a_connection_has_certainly_failed():
    async def scene() -> None:
        async with loopback_server() as server, connected(server, size=1) as pipeline:
            binder = ApiBinder(pipeline, now=loop.time)
            for name in ("w-0", "w-1"):
                server.add_pod(name)

            assert await outcomes(binder, order("w-0"), within_s=0.1) == [bind.TIMED_OUT]
            loop.is_up.set()
            assert await outcomes(binder, order("w-1")) == [bind.BOUND]
            assert server.node_of("w-0") == ""

    loop = UnconnectedLoop()
    play(scene(), lambda: loop)


@scene(connected_binder, size=1)
async def test_an_informational_response_does_not_shift_the_outcomes_of_other_pods(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.add_pod("w-1", node="n-2")

    def hint_first(request: Request) -> tuple[int, object]:
        server.send_raw(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        return server.answer(request)

    server.respond = hint_first
    gang = [order("w-0"), order("w-1")]
    assert await outcomes(binder, *gang) == [bind.BOUND, bind.ELSEWHERE]


@pytest.mark.parametrize("status", [202, 206, 300, 307])
@pytest.mark.parametrize("took_effect", [True, False])
@scene(connected_binder)
async def test_an_unexpected_success_or_redirect_is_not_taken_as_a_refusal(
    server: LoopbackServer, binder: ApiBinder, /, status, took_effect, caplog
) -> None:
    server.add_pod("w-0")
    unexpected = [status]

    def answer_unexpectedly(request: Request) -> tuple[int, object]:
        if request.method != "POST" or not unexpected:
            return server.answer(request)
        return unexpected.pop(), server.answer(request) if took_effect else {}

    server.respond = answer_unexpectedly
    assert await outcomes(binder, order("w-0")) == [bind.BOUND]
    assert len(server.asked("POST")) == (1 if took_effect else 2)

    (record,) = caplog.records
    assert record.getMessage() == "unexpected response to a binding"


@scene(connected_binder, new_loop=VirtualLoop)
async def test_unexpected_responses_until_the_deadline_leave_the_outcome_unknown(
    server: LoopbackServer, binder: ApiBinder, /
) -> None:
    server.add_pod("w-0")
    server.script.extend([307] * 1000)

    assert await outcomes(binder, order("w-0"), within_s=0.3) == [bind.UNKNOWN]


NO_OBJECT = ["<html>", ["<html>"], {"metadata": 3}, {"kind": "Status"}, None]


@pytest.mark.parametrize("said", NO_OBJECT)
@scene(connected_binder)
async def test_a_response_that_is_no_pod_is_requested_again(
    server: LoopbackServer, binder: ApiBinder, /, said
) -> None:
    server.add_pod("w-0")
    server.script.append(DO_AND_HANG_UP)
    answer_once(server, "GET", said)

    assert await outcomes(binder, order("w-0")) == [bind.BOUND]


@pytest.mark.parametrize("said", NO_OBJECT)
@scene()
async def test_a_response_that_is_no_node_list_is_requested_again(said) -> None:
    async with loopback_server() as server, connected(server) as pipeline:
        server.add_pod("w-0")
        server.nodes.append("n-1")
        answer_once(server, "GET", said)
        binder = ApiBinder(pipeline, chance=lambda: 0.0, knows_node=lambda name: False)

        assert await outcomes(binder, order("w-0")) == [bind.BOUND]


def answer_once(server: LoopbackServer, method: str, said: object) -> None:
    """Answer the first request of *method* with status 200 and the body *said*."""
    unexpected = [said]

    def answer_first(request: Request) -> tuple[int, object]:
        if request.method == method and unexpected:
            return 200, unexpected.pop()
        return server.answer(request)

    server.respond = answer_first

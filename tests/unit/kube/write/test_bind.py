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
    scene,
)


def order(name: str, node: str = "n-1") -> BindOrder:
    return BindOrder(uid=PodUid(f"uid-{name}"), namespace="team", name=name, node=node)


class Binds:
    """A binder, and the API server that it calls."""

    def __init__(self, server: LoopbackServer, binder: ApiBinder) -> None:
        self.server = server
        self.binder = binder

    def gang(self, size: int, prefix: str = "w") -> list[BindOrder]:
        """Add pods, and return the order to bind each."""
        orders = [order(f"{prefix}-{index}") for index in range(size)]
        for each in orders:
            self.server.add_pod(each.name)
        return orders

    async def outcomes(self, *orders: BindOrder, within_s: float = 10.0) -> list[BindOutcome]:
        loop = asyncio.get_running_loop()
        waiting = {order.uid: loop.create_future() for order in orders}
        self.binder.bind(
            orders,
            lambda order, outcome: waiting[order.uid].set_result(outcome),
            loop.time() + within_s,
        )
        return list(await asyncio.gather(*waiting.values()))


@asynccontextmanager
async def connected_binder(
    size: int = 4, silence_s: float = 5.0, check_after_s: float = 2.0, **facts: Any
) -> AsyncIterator[tuple[Binds]]:
    async with (
        loopback_server() as server,
        connected(server, size, silence_s, check_after_s) as pipeline,
    ):
        now = asyncio.get_running_loop().time
        yield (Binds(server, ApiBinder(pipeline, now=now, chance=lambda: 0.0, **facts)),)


@scene(connected_binder)
async def test_each_pod_of_a_gang_is_bound_with_its_uid_and_node(binds: Binds, /) -> None:
    binds.gang(40)
    orders = [order(f"w-{index}", node=f"n-{index % 7}") for index in range(40)]

    assert await binds.outcomes(*orders) == [bind.BOUND] * 40
    assert all(binds.server.node_of(each.name) == each.node for each in orders)
    assert len(binds.server.requests) == 40


@scene(connected_binder)
async def test_the_binds_of_a_gang_are_spread_over_all_connections(binds: Binds, /) -> None:
    await binds.outcomes(*binds.gang(8))

    on_connection: dict[int, list[str]] = {}
    for request in binds.server.requests:
        on_connection.setdefault(request.connection, []).append(request.path.split("/")[6])
    pairs = [["w-0", "w-1"], ["w-2", "w-3"], ["w-4", "w-5"], ["w-6", "w-7"]]
    assert sorted(on_connection.values()) == pairs


@scene(connected_binder)
async def test_single_pods_bound_one_after_the_other_share_one_connection(binds: Binds, /) -> None:
    for each in binds.gang(5):
        await binds.outcomes(each)

    assert binds.server.connections == 1


@scene(connected_binder)
async def test_every_request_carries_the_token(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")
    await binds.outcomes(order("w-0"))

    assert binds.server.requests[0].headers["authorization"] == "Bearer secret"


@scene(connected_binder)
async def test_a_pod_name_is_escaped_in_the_path_of_its_bind(binds: Binds, /) -> None:
    (outcome,) = await binds.outcomes(order("../../nodes"))

    assert outcome.result is BindResult.LOST
    assert binds.server.requests[0].path.endswith("/pods/..%2F..%2Fnodes/binding")


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
    binds: Binds, /, facts, outcome
) -> None:
    binds.server.add_pod("w-0", **facts)

    assert await binds.outcomes(order("w-0")) == [outcome]
    assert [request.method for request in binds.server.requests] == ["POST", "GET"]


@scene(connected_binder)
async def test_a_pod_recreated_under_the_same_name_is_reported_as_gone(binds: Binds, /) -> None:
    binds.server.add_pod("w-0").uid = "uid-of-another"

    assert await binds.outcomes(order("w-0")) == [bind.POD_GONE]


@scene(connected_binder)
async def test_a_deleted_pod_is_reported_as_gone(binds: Binds, /) -> None:
    assert await binds.outcomes(order("w-0")) == [bind.POD_GONE]


FOR_EVER = 1000


@pytest.mark.parametrize(
    ("script", "within_s", "outcome"),
    [
        *[([status] * 2, 10.0, bind.BOUND) for status in (401, 408, 429, 500, 502, 503, 504)],
        *[([status], 10.0, bind.REFUSED) for status in (400, 403, 422)],
        pytest.param([409], 10.0, bind.BOUND, id="a temporary conflict"),
        pytest.param([NEVER], 0.05, bind.UNKNOWN, id="no response"),
        pytest.param([HANG_UP] * FOR_EVER, 0.3, bind.UNKNOWN, id="a connection that breaks"),
        pytest.param([307] * FOR_EVER, 0.3, bind.UNKNOWN, id="unexpected responses"),
        # Long enough to end between two requests: a request in flight would leave it unknown.
        pytest.param([429] * FOR_EVER, 2.0, bind.TIMED_OUT, id="throttled"),
    ],
)
@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_temporary_error_is_retried_until_the_deadline_and_a_refusal_is_not(
    binds: Binds, /, script, within_s, outcome
) -> None:
    binds.server.add_pod("w-0")
    binds.server.script.extend(script)

    assert await binds.outcomes(order("w-0"), within_s=within_s) == [outcome]
    assert binds.server.node_of("w-0") == ("n-1" if outcome is bind.BOUND else "")
    if len(script) < FOR_EVER:
        assert len(binds.server.asked("POST")) == len(script) + (outcome is bind.BOUND)


@pytest.mark.parametrize("status", [429, 503])
@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_retry_waits_as_long_as_retry_after_asks(binds: Binds, /, status) -> None:
    binds.server.add_pod("w-0")
    binds.server.script.append(status)
    binds.server.retry_after = "1"
    now = asyncio.get_running_loop().time
    before = now()

    assert await binds.outcomes(order("w-0")) == [bind.BOUND]
    assert now() - before >= 1.0


@pytest.mark.parametrize("asked", ["3600", "999999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "-1"])
@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_retry_after_beyond_the_deadline_still_leaves_time_for_one_retry(
    binds: Binds, /, asked
) -> None:
    binds.server.add_pod("w-0")
    binds.server.script.append(429)
    binds.server.retry_after = asked

    assert await binds.outcomes(order("w-0"), within_s=3.0) == [bind.BOUND]


@scene(connected_binder)
async def test_a_missing_permission_is_named_in_the_outcome_and_remembered(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")
    binds.server.words = 'User "us" cannot create resource "pods/binding" in API group ""'
    binds.server.script.append(403)
    (outcome,) = await binds.outcomes(order("w-0"))

    assert outcome.result is BindResult.FAILED
    assert outcome.message.startswith("us may not create pods/binding; grant it")
    (refused,) = binds.server.access.missing_permissions.recent()
    assert refused.account == "us"


@scene(connected_binder)
async def test_a_bind_refused_by_a_terminating_namespace_fails_without_a_warning(
    binds: Binds, /, caplog
) -> None:
    binds.server.add_pod("w-0")
    binds.server.cause = "NamespaceTerminating"
    binds.server.script.append(403)

    assert await binds.outcomes(order("w-0")) == [bind.NAMESPACE_GOES]
    assert caplog.records == []


@scene(connected_binder, size=1)
async def test_after_a_connection_breaks_the_outcome_of_each_pod_is_found_separately(
    binds: Binds, /
) -> None:
    gang = binds.gang(4)
    binds.server.script.extend([0, DO_AND_HANG_UP])

    assert await binds.outcomes(*gang) == [bind.BOUND] * 4
    # The bind of w-1 took effect without a response: it is only read; w-2 and w-3 are bound.
    posts = [request.path.split("/")[6] for request in binds.server.asked("POST")]
    assert sorted(posts) == ["w-0", "w-1", "w-2", "w-3"]
    assert len(binds.server.asked("GET")) == 3


@scene(connected_binder)
async def test_an_idle_connection_closed_by_the_server_is_reopened(binds: Binds, /) -> None:
    first, second = binds.gang(2)
    await binds.outcomes(first)
    binds.server.drop_connections()

    assert await binds.outcomes(second) == [bind.BOUND]


@scene(connected_binder, silence_s=0.05)
async def test_a_connection_that_stays_silent_is_replaced_and_the_bind_retried(
    binds: Binds, /
) -> None:
    binds.server.add_pod("w-0")
    binds.server.script.append(NEVER)

    assert await binds.outcomes(order("w-0")) == [bind.BOUND]


@scene(connected_binder, new_loop=VirtualLoop)
async def test_a_pod_is_not_read_again_after_its_deadline(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")
    binds.server.add_pod("w-1")
    binds.server.script.append(HANG_UP)
    binds.server.refused = {"w-0": 500, "w-1": 500}

    assert await binds.outcomes(order("w-0"), within_s=0.3) != [bind.BOUND]
    asked = len(binds.server.requests)
    assert await binds.outcomes(order("w-1"), within_s=1.0) != [bind.BOUND]

    late = [each for each in binds.server.requests[asked:] if each.path.endswith("/w-0")]
    assert len(late) <= 1, "the request that was in flight"


@scene(connected_binder)
async def test_a_bind_to_an_unreachable_server_has_certainly_failed(binds: Binds, /) -> None:
    binds.server.access.port = 1

    assert await binds.outcomes(order("w-0"), within_s=0.2) == [bind.TIMED_OUT]


@scene(connected_binder)
async def test_binds_may_be_requested_from_another_thread(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")
    results: list[BindOutcome] = []

    def elsewhere() -> None:
        settled = threading.Event()
        until = time.monotonic() + 10
        binds.binder.bind([order("w-0")], lambda _, it: (results.append(it), settled.set()), until)
        settled.wait(timeout=5)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)

    assert results == [bind.BOUND]


@scene(connected_binder)
async def test_a_gang_that_could_only_be_bound_in_part_before_its_deadline_is_not_sent(
    binds: Binds, /
) -> None:
    assert await binds.outcomes(*binds.gang(300), within_s=1.0) == [bind.TIMED_OUT] * 300
    assert not binds.server.requests


@scene(connected_binder, silence_s=0.2, new_loop=VirtualLoop)
async def test_binds_in_flight_are_limited_and_the_others_follow_in_order(binds: Binds, /) -> None:
    gang = binds.gang(3 * MAX_LIMIT)
    binds.server.script.append(NEVER)  # its connection is silent from the first request on
    bound = asyncio.ensure_future(binds.outcomes(*gang))
    await binds.server.has_heard(MAX_LIMIT // 4)
    assert len(binds.server.requests) <= MAX_LIMIT

    assert await bound == [bind.BOUND] * len(gang)


@scene(connected_binder, silence_s=1.0, new_loop=VirtualLoop)
async def test_the_limiter_releases_binds_that_time_out_or_are_no_longer_awaited(
    binds: Binds, /
) -> None:
    binds.server.script.extend([NEVER] * 4)
    results = await binds.outcomes(*binds.gang(2 * MAX_LIMIT), within_s=0.6)
    assert set(results) == {bind.UNKNOWN, bind.TIMED_OUT}
    assert binds.binder.in_flight == 0

    assert await binds.outcomes(*binds.gang(2, "next")) == [bind.BOUND] * 2
    assert binds.binder.in_flight == 0


@pytest.mark.parametrize("status", [429, 500])
@scene(connected_binder, new_loop=VirtualLoop)
async def test_pods_that_are_refused_temporarily_do_not_delay_other_pods(
    binds: Binds, /, status
) -> None:
    binds.server.refused = {f"w-{index}": status for index in range(MAX_LIMIT)}
    binds.server.add_pod("other")
    waiting = asyncio.ensure_future(binds.outcomes(*binds.gang(MAX_LIMIT)))

    assert await binds.outcomes(order("other"), within_s=2.0) == [bind.BOUND]
    binds.server.refused = {}
    assert await waiting == [bind.BOUND] * MAX_LIMIT


@scene(connected_binder)
async def test_a_callback_that_raises_does_not_cost_other_pods_their_outcome(
    binds: Binds, /, caplog
) -> None:
    settled: list[str] = []
    all_settled = asyncio.Event()

    def settle(order: BindOrder, outcome: BindOutcome) -> None:
        settled.append(order.name)
        if len(settled) == 3:
            all_settled.set()
        if order.name == "w-0":
            raise RuntimeError("callback failed")

    binds.server.script.extend([NEVER] * 3)
    binds.binder.bind(binds.gang(3), settle, asyncio.get_running_loop().time() + 0.1)
    await all_settled.wait()

    assert settled == ["w-0", "w-1", "w-2"]
    assert "callback failed" in caplog.text


@scene(connected_binder, size=1, new_loop=VirtualLoop)
async def test_a_bind_is_retried_for_as_long_as_the_caller_waits(binds: Binds, /) -> None:
    gang = binds.gang(2)
    binds.server.script.extend([DO_AND_HANG_UP, HANG_UP, *[503] * 6])

    assert await binds.outcomes(*gang) == [bind.BOUND] * 2


@scene(connected_binder, silence_s=0.3, new_loop=VirtualLoop)
async def test_gangs_are_bound_after_a_server_stall_longer_than_the_silence_limit(
    binds: Binds, /
) -> None:
    gangs = [binds.gang(20, f"g{number}") for number in range(10)]
    binds.server.goes_on.clear()
    waiting = [asyncio.ensure_future(binds.outcomes(*gang)) for gang in gangs]
    # Every connection is replaced once; the pods of binds in flight are read on new ones.
    await binds.server.has_heard(2 * 4 + 1)
    binds.server.goes_on.set()

    assert await asyncio.gather(*waiting) == [[bind.BOUND] * 20] * 10
    assert all(binds.server.node_of(each.name) for gang in gangs for each in gang)
    assert binds.binder.in_flight == 0


def test_no_message_has_counters_or_percent_signs():
    messages = [bind.POD_GONE, bind.DELETING, bind.ELSEWHERE, bind.GATED, bind.REFUSED]

    for outcome in [*messages, bind.TIMED_OUT, bind.UNKNOWN]:
        assert outcome.message
        assert not any(character in "%0123456789" for character in outcome.message)


@scene(connected_binder, started_in=lambda uid: "gold" if uid == "uid-w-0" else "")
async def test_a_bind_annotates_the_pod_with_the_queue_that_admitted_it(binds: Binds, /) -> None:
    await binds.outcomes(*binds.gang(2))

    said = {each.path.split("/")[6]: each.body["metadata"] for each in binds.server.requests}
    assert said["w-0"]["annotations"] == {"gang-extender.io/started-in": "gold"}
    assert "annotations" not in said["w-1"]


class UnconnectedLoop(VirtualLoop):
    """An event loop that opens connections once `is_up` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_up = asyncio.Event()

    async def create_connection(self, *arguments: Any, **rest: Any) -> Any:
        await self.is_up.wait()
        return await super().create_connection(*arguments, **rest)


@scene(connected_binder, size=1, new_loop=UnconnectedLoop)
async def test_a_bind_that_never_got_a_connection_has_certainly_failed(binds: Binds, /) -> None:
    first, second = binds.gang(2)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, UnconnectedLoop)

    assert await binds.outcomes(first, within_s=0.1) == [bind.TIMED_OUT]
    loop.is_up.set()
    assert await binds.outcomes(second) == [bind.BOUND]
    assert binds.server.node_of("w-0") == ""


@scene(connected_binder, size=1)
async def test_an_informational_response_does_not_shift_the_outcomes_of_other_pods(
    binds: Binds, /
) -> None:
    binds.server.add_pod("w-0")
    binds.server.add_pod("w-1", node="n-2")

    def hint_first(request: Request) -> tuple[int, object]:
        binds.server.send_raw(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        return binds.server.answer(request)

    binds.server.respond = hint_first
    gang = [order("w-0"), order("w-1")]
    assert await binds.outcomes(*gang) == [bind.BOUND, bind.ELSEWHERE]


@pytest.mark.parametrize("status", [202, 206, 300, 307])
@pytest.mark.parametrize("took_effect", [True, False])
@scene(connected_binder)
async def test_an_unexpected_success_or_redirect_is_not_taken_as_a_refusal(
    binds: Binds, /, status, took_effect, caplog
) -> None:
    binds.server.add_pod("w-0")
    unexpected = [status]

    def answer_unexpectedly(request: Request) -> tuple[int, object]:
        if request.method != "POST" or not unexpected:
            return binds.server.answer(request)
        return unexpected.pop(), binds.server.answer(request) if took_effect else {}

    binds.server.respond = answer_unexpectedly
    assert await binds.outcomes(order("w-0")) == [bind.BOUND]
    assert len(binds.server.asked("POST")) == (1 if took_effect else 2)

    (record,) = caplog.records
    assert record.getMessage() == "unexpected response to a binding"


NO_OBJECT = ["<html>", ["<html>"], {"metadata": 3}, {"kind": "Status"}, None]


@pytest.mark.parametrize("said", NO_OBJECT)
@scene(connected_binder)
async def test_a_response_that_is_no_pod_is_requested_again(binds: Binds, /, said) -> None:
    binds.server.add_pod("w-0")
    binds.server.script.append(DO_AND_HANG_UP)
    answer_once(binds.server, said)

    assert await binds.outcomes(order("w-0")) == [bind.BOUND]


@pytest.mark.parametrize("said", NO_OBJECT)
@scene(connected_binder, knows_node=lambda name: False)
async def test_a_response_that_is_no_node_list_is_requested_again(binds: Binds, /, said) -> None:
    binds.server.add_pod("w-0")
    binds.server.nodes.append("n-1")
    answer_once(binds.server, said)

    assert await binds.outcomes(order("w-0")) == [bind.BOUND]


def answer_once(server: LoopbackServer, said: object) -> None:
    """Answer the first GET with status 200 and the body *said*."""
    unexpected = [said]

    def answer_first(request: Request) -> tuple[int, object]:
        if request.method == "GET" and unexpected:
            return 200, unexpected.pop()
        return server.answer(request)

    server.respond = answer_first

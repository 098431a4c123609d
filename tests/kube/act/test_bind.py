"""Bindings over real sockets, with everything an API server can do to us."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from extender.kube.act import bind
from extender.kube.act.bind import PipelinedBinder
from extender.model.pod import PodUid
from extender.ports import BindOrder, BindOutcome, BindResult
from tests.kube.loopback import (
    DO_AND_HANG_UP,
    HANG_UP,
    NEVER,
    LoopbackServer,
    connected,
    loopback_server,
    play,
)


def order(name: str, node: str = "n-1") -> BindOrder:
    return BindOrder(uid=PodUid(f"uid-{name}"), namespace="team", name=name, node=node)


def run(
    story: Callable[[LoopbackServer, PipelinedBinder], Awaitable[None]],
    *,
    size: int = 4,
    silence_s: float = 5.0,
    budget_s: float = 10.0,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:
    async def scene() -> None:
        async with (
            loopback_server() as server,
            connected(server, size=size, silence_s=silence_s) as pipeline,
        ):
            binder = PipelinedBinder(pipeline, budget_s=budget_s, chance=lambda: 0.0)
            await story(server, binder)

    play(scene(), new_loop)


async def outcomes(binder: PipelinedBinder, *orders: BindOrder) -> list[BindOutcome]:
    waiting = {order.uid: asyncio.get_running_loop().create_future() for order in orders}
    binder.bind(orders, lambda order, outcome: waiting[order.uid].set_result(outcome))
    return list(await asyncio.gather(*waiting.values()))


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_gang_is_bound_with_its_uids_and_nodes(new_loop):
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        for index in range(40):
            server.add_pod(f"w-{index}")
        orders = [order(f"w-{index}", node=f"n-{index % 7}") for index in range(40)]

        assert await outcomes(binder, *orders) == [bind.BOUND] * 40
        assert all(server.node_of(each.name) == each.node for each in orders)
        assert len(server.requests) == 40

    run(story, new_loop=new_loop)


def test_a_gang_is_spread_over_the_connections_in_runs():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
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

    run(story)


def test_lone_pods_one_after_the_other_share_one_connection():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        for index in range(5):
            server.add_pod(f"w-{index}")
            await outcomes(binder, order(f"w-{index}"))

        assert server.connections == 1

    run(story)


def test_every_request_carries_the_token():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        await outcomes(binder, order("w-0"))

        assert server.requests[0].headers["authorization"] == "Bearer secret"

    run(story)


def test_a_name_cannot_leave_its_place_in_the_path():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        (outcome,) = await outcomes(binder, order("../../nodes"))

        assert outcome.result is BindResult.LOST
        assert server.requests[0].path.endswith("/pods/..%2F..%2Fnodes/binding")

    run(story)


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
def test_a_conflict_is_settled_by_reading_the_pod(facts, outcome):
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0", **facts)

        assert await outcomes(binder, order("w-0")) == [outcome]
        assert [request.method for request in server.requests] == ["POST", "GET"]

    run(story)


def test_a_pod_recreated_under_its_name_is_lost():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0").uid = "uid-of-another"

        assert await outcomes(binder, order("w-0")) == [bind.GONE]

    run(story)


def test_a_pod_that_is_gone_is_lost():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        assert await outcomes(binder, order("w-0")) == [bind.GONE]

    run(story)


@pytest.mark.parametrize("status", [401, 408, 429, 500, 502, 503, 504])
def test_a_passing_trouble_is_tried_again(status):
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.script.extend([status, status])

        assert await outcomes(binder, order("w-0")) == [bind.BOUND]
        assert len(server.asked("POST")) == 3

    run(story)


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_refusal_for_good_is_not_tried_again(status):
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.script.append(status)

        assert await outcomes(binder, order("w-0")) == [bind.REFUSED]
        assert len(server.requests) == 1

    run(story)


def test_a_right_that_we_lack_is_named_to_whoever_waits_and_remembered():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.words = 'User "us" cannot create resource "pods/binding" in API group ""'
        server.script.append(403)
        (outcome,) = await outcomes(binder, order("w-0"))

        assert outcome.result is BindResult.FAILED
        assert outcome.message.startswith("us may not create pods/binding; grant it")
        (refused,) = server.access.missing_rights.lately()
        assert refused.account == "us"

    run(story)


def test_a_namespace_that_is_being_deleted_takes_no_binding_and_that_is_no_warning(caplog):
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.cause = "NamespaceTerminating"
        server.script.append(403)

        assert await outcomes(binder, order("w-0")) == [bind.NAMESPACE_GOES]

    run(story)
    assert caplog.records == []


def test_a_conflict_in_passing_is_tried_again():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.script.append(409)

        assert await outcomes(binder, order("w-0")) == [bind.BOUND]

    run(story)


def test_a_connection_that_breaks_midway_is_settled_pod_by_pod():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        for index in range(4):
            server.add_pod(f"w-{index}")
        server.script.extend([0, DO_AND_HANG_UP])

        assert await outcomes(binder, *(order(f"w-{i}") for i in range(4))) == [bind.BOUND] * 4
        # w-1 took effect unseen and is only read; w-2 and w-3 are read and then bound.
        posts = [request.path.split("/")[6] for request in server.asked("POST")]
        assert sorted(posts) == ["w-0", "w-1", "w-2", "w-3"]
        assert len(server.asked("GET")) == 3

    run(story, size=1)


def test_an_idle_connection_the_server_closed_is_opened_again():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.add_pod("w-1")
        await outcomes(binder, order("w-0"))
        server.drop_connections()

        assert await outcomes(binder, order("w-1")) == [bind.BOUND]

    run(story)


def test_a_server_that_hangs_up_every_time_ends_as_unknown():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.script.extend([HANG_UP] * 1000)

        assert await outcomes(binder, order("w-0")) == [bind.UNKNOWN]

    run(story, budget_s=0.3)


def test_a_silent_server_is_given_up_and_asked_again():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.script.append(NEVER)

        assert await outcomes(binder, order("w-0")) == [bind.BOUND]

    run(story, silence_s=0.05)


def test_silence_until_the_end_of_the_budget_is_unknown():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.script.append(NEVER)

        assert await outcomes(binder, order("w-0")) == [bind.UNKNOWN]

    run(story, budget_s=0.05)


def test_overload_until_the_end_of_the_budget_is_a_certain_failure():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        server.script.extend([429] * 1000)

        assert await outcomes(binder, order("w-0")) == [bind.TIMED_OUT]
        assert server.node_of("w-0") == ""

    run(story, budget_s=0.3)


def test_an_unreachable_server_is_a_certain_failure():
    async def scene() -> None:
        async with loopback_server() as server:
            pass
        async with connected(server) as pipeline:
            binder = PipelinedBinder(pipeline, budget_s=0.2, chance=lambda: 0.0)

            assert await outcomes(binder, order("w-0")) == [bind.TIMED_OUT]

    play(scene())


def test_binds_may_be_ordered_from_another_thread():
    async def story(server: LoopbackServer, binder: PipelinedBinder) -> None:
        server.add_pod("w-0")
        results: list[BindOutcome] = []

        def elsewhere() -> None:
            settled = threading.Event()
            binder.bind([order("w-0")], lambda _, it: (results.append(it), settled.set()))
            settled.wait(timeout=5)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)

        assert results == [bind.BOUND]

    run(story)


def test_no_message_has_counters_or_percent_signs():
    messages = [bind.GONE, bind.DELETING, bind.ELSEWHERE, bind.GATED, bind.REFUSED]

    for outcome in [*messages, bind.TIMED_OUT, bind.UNKNOWN]:
        assert outcome.message
        assert not any(character in "%0123456789" for character in outcome.message)


def test_a_binding_says_in_which_queue_its_pod_is_started():
    async def scene() -> None:
        async with loopback_server() as server, connected(server) as pipeline:
            queues = {"uid-w-0": "gold"}
            binder = PipelinedBinder(pipeline, started_in=lambda uid: queues.get(uid, ""))
            server.add_pod("w-0")
            server.add_pod("stranger")
            await outcomes(binder, order("w-0"), order("stranger"))

            said = {each.path.split("/")[6]: each.body["metadata"] for each in server.requests}
            marks = said["w-0"]["annotations"]
            assert marks == {"gang-extender.io/started-in": "gold"}
            assert "annotations" not in said["stranger"]

    play(scene())

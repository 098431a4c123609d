"""The API server binds to any node name: a node missing in the cache is read before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from extender.kube.write import bind
from extender.kube.write.bind import ApiBinder
from extender.kube.write.bind_limiter import MAX_LIMIT
from extender.ports import BindOrder, Whose
from tests.api_server import NEVER, LoopbackServer, VirtualLoop, connected, loopback_server, play
from tests.unit.kube.write.test_bind import order, outcomes

Story = Callable[[LoopbackServer, ApiBinder], Awaitable[None]]
EVERY_KIND = pytest.mark.parametrize("whose", list(Whose))


def run(story: Story, *, size: int = 1) -> None:
    """Play *story* with a binder that knows no node but n-0."""

    async def scene() -> None:
        async with loopback_server() as server, connected(server, size=size) as pipeline:
            server.add_pod("w-0")
            binder = ApiBinder(
                pipeline,
                now=asyncio.get_running_loop().time,
                chance=lambda: 0.0,
                is_exempt=lambda pod: True,
                knows_node=lambda name: name == "n-0",
            )
            await story(server, binder)

    play(scene(), VirtualLoop)


def bound_for(whose: Whose, node: str = "n-1") -> BindOrder:
    return replace(order("w-0"), whose=whose, node=node)


@EVERY_KIND
def test_no_pod_is_bound_to_a_node_that_does_not_exist(whose: Whose) -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        assert await outcomes(binder, bound_for(whose)) == [bind.NO_NODE]
        assert not server.asked("POST")
        assert not server.node_of("w-0")

    run(story)


@EVERY_KIND
def test_a_node_that_our_watch_has_not_delivered_yet_is_found(whose: Whose) -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.nodes.append("n-1")

        assert await outcomes(binder, bound_for(whose)) == [bind.BOUND]
        assert server.node_of("w-0") == "n-1"

    run(story)


def test_a_node_in_the_cache_is_not_requested() -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        assert await outcomes(binder, bound_for(Whose.OURS, "n-0")) == [bind.BOUND]
        assert not server.asked("GET")

    run(story)


@pytest.mark.parametrize(
    "name", ["", "n-1&limit=500", "n 1", "n\r\nx: y", "N-1", "n/../x", "n%31", "nö", "n" * 254]
)
def test_an_invalid_node_name_is_never_requested(name: str) -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        assert await outcomes(binder, bound_for(Whose.SCHEDULERS, name)) == [bind.NO_NODE]
        assert not server.requests

    run(story)


def test_a_failed_read_of_a_node_is_retried() -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.nodes.append("n-1")
        server.script.append(503)

        assert await outcomes(binder, bound_for(Whose.SCHEDULERS)) == [bind.BOUND]

    run(story)


def test_without_permission_to_list_nodes_binding_continues() -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.script.append(403)

        assert await outcomes(binder, bound_for(Whose.SCHEDULERS)) == [bind.BOUND]

    run(story)


def test_a_bind_whose_node_was_still_being_read_has_certainly_failed() -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.script.append(NEVER)

        assert await outcomes(binder, bound_for(Whose.OURS), within_s=0.05) == [bind.TIMED_OUT]

    run(story)


def test_other_pods_of_the_gang_do_not_wait_for_the_node_read() -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.add_pod("w-1")
        other = replace(order("w-1"), node="n-0")

        found = await outcomes(binder, bound_for(Whose.OURS), other)
        assert found == [bind.NO_NODE, bind.BOUND]

    run(story)


def test_a_pod_whose_node_was_read_does_not_overtake_pods_that_wait_in_the_limiter() -> None:
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.nodes.append("n-1")
        server.held = {"POST"}
        server.goes_on.clear()
        crowd = [replace(order(f"c-{index}"), node="n-0") for index in range(MAX_LIMIT)]
        gang = [replace(order(f"g-{index}"), node="n-0") for index in range(2)]
        for each in (*crowd, *gang):
            server.add_pod(each.name)
        before = asyncio.ensure_future(outcomes(binder, *crowd))  # takes all slots of the limiter
        waiting = asyncio.ensure_future(outcomes(binder, *gang))
        late = asyncio.ensure_future(outcomes(binder, bound_for(Whose.OURS)))
        await server.has_heard(MAX_LIMIT + 1)
        await asyncio.sleep(0.1)  # of virtual time: the node is read
        server.goes_on.set()

        assert await late + await waiting + await before == [bind.BOUND] * (3 + MAX_LIMIT)
        posts = [each.path.split("/")[6] for each in server.asked("POST")]
        assert posts[MAX_LIMIT:] == ["g-0", "g-1", "w-0"]

    run(story, size=MAX_LIMIT + 1)

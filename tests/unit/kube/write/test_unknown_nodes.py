"""The API server binds to any node name: a node missing in the cache is read before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from extender.kube.write import bind
from extender.kube.write.bind_limiter import MAX_LIMIT
from extender.ports import BindOrder, BindOutcome, Whose
from tests.api_server import NEVER, VirtualLoop, scene
from tests.unit.kube.write.test_bind import Binds, connected_binder, order

EVERY_KIND = pytest.mark.parametrize("whose", list(Whose))


@asynccontextmanager
async def without_nodes(size: int = 1) -> AsyncIterator[tuple[Binds]]:
    """A pod, and a binder that knows no node but n-0."""
    facts = {"is_exempt": lambda pod: True, "knows_node": lambda name: name == "n-0"}
    async with connected_binder(size=size, **facts) as (binds,):
        binds.server.add_pod("w-0")
        yield (binds,)


def bound_for(whose: Whose, node: str = "n-1") -> BindOrder:
    return replace(order("w-0"), whose=whose, node=node)


@EVERY_KIND
@scene(without_nodes, new_loop=VirtualLoop)
async def test_no_pod_is_bound_to_a_node_that_does_not_exist(binds: Binds, /, whose: Whose) -> None:
    assert await binds.outcomes(bound_for(whose)) == [bind.NO_NODE]
    assert not binds.server.asked("POST")
    assert not binds.server.node_of("w-0")


@EVERY_KIND
@scene(without_nodes, new_loop=VirtualLoop)
async def test_a_node_that_our_watch_has_not_delivered_yet_is_found(
    binds: Binds, /, whose: Whose
) -> None:
    binds.server.nodes.append("n-1")

    assert await binds.outcomes(bound_for(whose)) == [bind.BOUND]
    assert binds.server.node_of("w-0") == "n-1"


@scene(without_nodes, new_loop=VirtualLoop)
async def test_a_node_in_the_cache_is_not_requested(binds: Binds, /) -> None:
    assert await binds.outcomes(bound_for(Whose.OURS, "n-0")) == [bind.BOUND]
    assert not binds.server.asked("GET")


@pytest.mark.parametrize(
    "name", ["", "n-1&limit=500", "n 1", "n\r\nx: y", "N-1", "n/../x", "n%31", "nö", "n" * 254]
)
@scene(without_nodes, new_loop=VirtualLoop)
async def test_an_invalid_node_name_is_never_requested(binds: Binds, /, name: str) -> None:
    assert await binds.outcomes(bound_for(Whose.SCHEDULERS, name)) == [bind.NO_NODE]
    assert not binds.server.requests


@pytest.mark.parametrize(
    ("response", "nodes", "outcome"),
    [
        pytest.param(503, ["n-1"], bind.BOUND, id="a failed read is retried"),
        pytest.param(403, [], bind.BOUND, id="without permission binding continues"),
        pytest.param(NEVER, ["n-1"], bind.TIMED_OUT, id="no bind was sent before the deadline"),
    ],
)
@scene(without_nodes, new_loop=VirtualLoop)
async def test_a_node_that_cannot_be_read(
    binds: Binds, /, response: int | str, nodes: list[str], outcome: BindOutcome
) -> None:
    binds.server.nodes += nodes
    binds.server.script.append(response)

    assert await binds.outcomes(bound_for(Whose.OURS), within_s=2.0) == [outcome]


@scene(without_nodes, new_loop=VirtualLoop)
async def test_other_pods_of_the_gang_do_not_wait_for_the_node_read(binds: Binds, /) -> None:
    binds.server.add_pod("w-1")
    other = replace(order("w-1"), node="n-0")

    found = await binds.outcomes(bound_for(Whose.OURS), other)
    assert found == [bind.NO_NODE, bind.BOUND]


@scene(without_nodes, new_loop=VirtualLoop, size=MAX_LIMIT + 1)
async def test_a_pod_whose_node_was_read_does_not_overtake_pods_that_wait_in_the_limiter(
    binds: Binds, /
) -> None:
    binds.server.nodes.append("n-1")
    binds.server.held = {"POST"}
    binds.server.goes_on.clear()
    crowd = [replace(order(f"c-{index}"), node="n-0") for index in range(MAX_LIMIT)]
    gang = [replace(order(f"g-{index}"), node="n-0") for index in range(2)]
    for each in (*crowd, *gang):
        binds.server.add_pod(each.name)
    before = asyncio.ensure_future(binds.outcomes(*crowd))  # takes all slots of the limiter
    waiting = asyncio.ensure_future(binds.outcomes(*gang))
    late = asyncio.ensure_future(binds.outcomes(bound_for(Whose.OURS)))
    await binds.server.has_heard(MAX_LIMIT + 1)
    await asyncio.sleep(0.1)  # of virtual time: the node is read
    binds.server.goes_on.set()

    assert await late + await waiting + await before == [bind.BOUND] * (3 + MAX_LIMIT)
    posts = [each.path.split("/")[6] for each in binds.server.asked("POST")]
    assert posts[MAX_LIMIT:] == ["g-0", "g-1", "w-0"]

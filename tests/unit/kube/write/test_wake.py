"""Wake-ups over real sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest

from extender.kube.write.wake import ApiWaker
from extender.model.annotations import WOKEN
from extender.model.pod import PodUid
from extender.ports import WakeOrder
from tests.api_server import (
    HANG_UP,
    NEVER,
    LoopbackServer,
    Request,
    connected,
    loopback_server,
    scene,
)


def order(name: str, node: str = "n-1") -> WakeOrder:
    return WakeOrder(uid=PodUid(f"uid-{name}"), namespace="team", name=name, node=node)


class Wakes:
    """A waker, and the API server that it calls, with a dozen pods."""

    def __init__(self, server: LoopbackServer, waker: ApiWaker) -> None:
        self.server = server
        self.waker = waker
        for index in range(12):
            server.add_pod(f"w-{index}")

    async def wake(self, *orders: WakeOrder, heard: int = 1) -> list[Request]:
        """Wake; return all requests once *heard* of them have arrived."""
        self.waker.wake(orders)
        await self.server.has_heard(heard)
        return self.server.requests


@asynccontextmanager
async def connected_waker(
    silence_s: float = 5.0, per_s: float = 200.0, burst: int = 400, identity: str = ""
) -> AsyncIterator[tuple[Wakes]]:
    moments = count(1)
    async with loopback_server() as server, connected(server, silence_s=silence_s) as pipeline:
        waker = ApiWaker(
            pipeline,
            per_s=per_s,
            burst=burst,
            chance=lambda: 0.0,
            now=lambda: f"moment {next(moments)}",
            identity=identity,
        )
        yield (Wakes(server, waker),)


@scene(connected_waker)
async def test_a_pod_is_nominated_to_its_reserved_node(wakes: Wakes, /) -> None:
    (patch,) = await wakes.wake(order("w-0", node="n-7"))

    assert (patch.method, patch.path) == ("PATCH", "/api/v1/namespaces/team/pods/w-0/status")
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert patch.body == {
        "metadata": {"uid": "uid-w-0", "annotations": {WOKEN: "moment 1"}},
        "status": {"nominatedNodeName": "n-7"},
    }


@scene(connected_waker)
async def test_a_wake_up_without_a_node_clears_the_nomination(wakes: Wakes, /) -> None:
    (patch,) = await wakes.wake(order("w-0", node=""))

    assert patch.body["status"] == {"nominatedNodeName": None}


@scene(connected_waker)
async def test_a_brief_nomination_is_cleared_as_soon_as_it_is_written(wakes: Wakes, /) -> None:
    patches = await wakes.wake(replace(order("w-0"), briefly=True, refusal="said"), heard=2)

    first, second = (patch.body["status"] for patch in patches)
    assert first["nominatedNodeName"] == "n-1"
    assert second == {"nominatedNodeName": None}


@scene(connected_waker)
async def test_a_brief_nomination_gives_way_to_a_lasting_one(wakes: Wakes, /) -> None:
    wakes.waker.wake([replace(order("w-0"), briefly=True)])
    patches = await wakes.wake(order("w-0", node="n-2"), heard=2)

    nodes = [patch.body["status"]["nominatedNodeName"] for patch in patches]
    assert nodes == ["n-1", "n-2"]


@scene(connected_waker, identity="host_1a2b")
async def test_a_wake_up_names_the_extender_that_wrote_it(wakes: Wakes, /) -> None:
    (patch,) = await wakes.wake(order("w-0"))

    assert patch.body["metadata"]["annotations"] == {WOKEN: "moment 1 by host_1a2b"}


@scene(connected_waker)
async def test_the_scheduling_message_is_changed_without_touching_other_conditions(
    wakes: Wakes, /
) -> None:
    (patch,) = await wakes.wake(replace(order("w-0", node=""), refusal="no capacity (called)"))

    assert patch.headers["content-type"] == "application/strategic-merge-patch+json"
    assert patch.body["status"] == {
        "nominatedNodeName": None,
        "conditions": [{"type": "PodScheduled", "message": "no capacity (called)"}],
    }


@scene(connected_waker)
async def test_a_second_wake_for_the_same_node_is_not_the_same_patch(wakes: Wakes, /) -> None:
    await wakes.wake(order("w-0"))
    first, second = await wakes.wake(order("w-0"), heard=2)

    assert first.body != second.body


@scene(connected_waker, per_s=40, burst=10)
async def test_wake_ups_beyond_the_burst_are_rate_limited(wakes: Wakes, /) -> None:
    started = asyncio.get_running_loop().time()
    await wakes.wake(*(order(f"w-{index}") for index in range(12)), heard=12)

    # The loop's clock ticks in milliseconds, so each end may be off by one.
    assert asyncio.get_running_loop().time() - started >= 2 / 40 - 0.002


@scene(connected_waker, per_s=50, burst=1)
async def test_of_queued_wake_ups_for_a_pod_the_latest_wins(wakes: Wakes, /) -> None:
    wakes.waker.wake([order("w-0"), order("w-1", node="n-1")])
    patches = await wakes.wake(order("w-1", node="n-2"), heard=2)

    nodes = [patch.body["status"]["nominatedNodeName"] for patch in patches]
    assert nodes == ["n-1", "n-2"]


@scene(connected_waker, silence_s=0.1)
async def test_a_newer_wake_up_waits_for_the_one_in_flight(wakes: Wakes, /) -> None:
    wakes.server.script.append(NEVER)
    await wakes.wake(order("w-0", node="n-1"))
    wakes.waker.wake([order("w-0", node="n-2")])
    _, patch = await wakes.wake(order("w-0", node="n-3"), heard=2)

    assert patch.body["status"] == {"nominatedNodeName": "n-3"}


@pytest.mark.parametrize("failure", [401, 429, 500, 503, HANG_UP])
@scene(connected_waker)
async def test_a_temporary_error_is_retried(wakes: Wakes, /, failure: int | str) -> None:
    wakes.server.script.append(failure)
    patches = await wakes.wake(order("w-0"), heard=2)

    assert [patch.method for patch in patches] == ["PATCH", "PATCH"]


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
@scene(connected_waker)
async def test_a_permanent_refusal_is_not_retried(wakes: Wakes, /, status: int) -> None:
    wakes.server.script.append(status)
    await wakes.wake(order("w-0"))
    await wakes.wake(order("w-1"), heard=2)
    patches = await wakes.wake(order("w-0"), heard=3)  # nothing of it is in flight

    assert [patch.path.split("/")[-2] for patch in patches] == ["w-0", "w-1", "w-0"]


@scene(connected_waker)
async def test_a_newer_wake_up_replaces_a_retry(wakes: Wakes, /) -> None:
    wakes.server.script.append(500)
    await wakes.wake(order("w-0", node="n-1"))
    await wakes.wake(order("w-0", node=""), heard=2)
    # A retry scheduled later than the first one is sent after it.
    wakes.server.script.append(500)
    patches = await wakes.wake(order("w-1"), heard=4)

    assert [patch.path.split("/")[-2] for patch in patches] == ["w-0", "w-0", "w-1", "w-1"]
    assert patches[1].body["status"] == {"nominatedNodeName": None}


@scene(connected_waker)
async def test_pods_may_be_woken_from_another_thread(wakes: Wakes, /) -> None:
    thread = threading.Thread(target=wakes.waker.wake, args=([order("w-0")],))
    thread.start()
    await wakes.server.has_heard(1)
    await asyncio.to_thread(thread.join)

    assert wakes.server.requests[0].path.endswith("/w-0/status")

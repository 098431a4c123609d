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
    connected,
    loopback_server,
    scene,
)


def order(name: str, node: str = "n-1") -> WakeOrder:
    return WakeOrder(uid=PodUid(f"uid-{name}"), namespace="team", name=name, node=node)


@asynccontextmanager
async def connected_waker(
    per_s: float = 200.0, burst: int = 400, silence_s: float = 5.0
) -> AsyncIterator[tuple[LoopbackServer, ApiWaker]]:
    moments = count(1)
    async with loopback_server() as server, connected(server, silence_s=silence_s) as pipeline:
        yield (
            server,
            ApiWaker(
                pipeline,
                per_s=per_s,
                burst=burst,
                chance=lambda: 0.0,
                now=lambda: f"moment {next(moments)}",
            ),
        )


@scene(connected_waker)
async def test_a_pod_is_nominated_to_its_reserved_node(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    waker.wake([order("w-0", node="n-7")])
    await server.has_heard(1)

    (patch,) = server.requests
    assert (patch.method, patch.path) == ("PATCH", "/api/v1/namespaces/team/pods/w-0/status")
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert patch.body == {
        "metadata": {"uid": "uid-w-0", "annotations": {WOKEN: "moment 1"}},
        "status": {"nominatedNodeName": "n-7"},
    }


@scene(connected_waker)
async def test_a_wake_up_without_a_node_clears_the_nomination(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    waker.wake([order("w-0", node="")])
    await server.has_heard(1)

    (patch,) = server.requests
    assert patch.path == "/api/v1/namespaces/team/pods/w-0/status"
    assert patch.body["status"] == {"nominatedNodeName": None}


@scene(connected_waker)
async def test_a_brief_nomination_is_cleared_as_soon_as_it_is_written(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    waker.wake([replace(order("w-0"), briefly=True, refusal="said")])
    await server.has_heard(2)

    first, second = (patch.body["status"] for patch in server.requests)
    assert first["nominatedNodeName"] == "n-1"
    assert second == {"nominatedNodeName": None}


@scene(connected_waker)
async def test_a_brief_nomination_gives_way_to_a_lasting_one(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    waker.wake([replace(order("w-0"), briefly=True)])
    waker.wake([order("w-0", node="n-2")])
    await server.has_heard(2)

    nodes = [patch.body["status"]["nominatedNodeName"] for patch in server.requests]
    assert nodes == ["n-1", "n-2"]


@scene()
async def test_a_wake_up_names_the_extender_that_wrote_it() -> None:
    async with loopback_server() as server, connected(server) as pipeline:
        server.add_pod("w-0")
        waker = ApiWaker(pipeline, now=lambda: "12:00", identity="host_1a2b")
        waker.wake([order("w-0")])
        await server.has_heard(1)

        (patch,) = server.requests
        assert patch.body["metadata"]["annotations"] == {WOKEN: "12:00 by host_1a2b"}


@scene(connected_waker)
async def test_the_scheduling_message_is_changed_without_touching_other_conditions(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    waker.wake([replace(order("w-0", node=""), refusal="no capacity (called)")])
    await server.has_heard(1)

    (patch,) = server.requests
    assert patch.headers["content-type"] == "application/strategic-merge-patch+json"
    assert patch.body == {
        "metadata": {"uid": "uid-w-0", "annotations": {WOKEN: "moment 1"}},
        "status": {
            "nominatedNodeName": None,
            "conditions": [{"type": "PodScheduled", "message": "no capacity (called)"}],
        },
    }


@scene(connected_waker)
async def test_a_second_wake_for_the_same_node_is_not_the_same_patch(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    waker.wake([order("w-0")])
    await server.has_heard(1)
    waker.wake([order("w-0")])
    await server.has_heard(2)

    first, second = server.requests
    assert first.body != second.body


@scene(connected_waker, per_s=40, burst=10)
async def test_wake_ups_beyond_the_burst_are_rate_limited(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    for index in range(12):
        server.add_pod(f"w-{index}")
    started = asyncio.get_running_loop().time()
    waker.wake([order(f"w-{index}") for index in range(12)])
    await server.has_heard(12)

    # The loop's clock ticks in milliseconds, so each end may be off by one.
    assert asyncio.get_running_loop().time() - started >= 2 / 40 - 0.002


@scene(connected_waker, per_s=50, burst=1)
async def test_of_queued_wake_ups_for_a_pod_the_latest_wins(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    server.add_pod("w-1")
    waker.wake([order("w-0"), order("w-1", node="n-1")])
    waker.wake([order("w-1", node="n-2")])
    await server.has_heard(2)

    nominations = [request.body["status"] for request in server.requests]
    assert nominations == [{"nominatedNodeName": "n-1"}, {"nominatedNodeName": "n-2"}]


@scene(connected_waker, silence_s=0.1)
async def test_a_newer_wake_up_waits_for_the_one_in_flight(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    server.script.append(NEVER)
    waker.wake([order("w-0", node="n-1")])
    await server.has_heard(1)
    waker.wake([order("w-0", node="n-2")])
    waker.wake([order("w-0", node="n-3")])
    await server.has_heard(2)

    assert server.requests[1].body["status"] == {"nominatedNodeName": "n-3"}
    assert len(server.requests) == 2


@pytest.mark.parametrize("failure", [401, 429, 500, 503, HANG_UP])
@scene(connected_waker)
async def test_a_temporary_error_is_retried(
    server: LoopbackServer, waker: ApiWaker, /, failure
) -> None:
    server.add_pod("w-0")
    server.script.append(failure)
    waker.wake([order("w-0")])
    await server.has_heard(2)

    assert [request.method for request in server.requests] == ["PATCH", "PATCH"]


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
@scene(connected_waker)
async def test_a_permanent_refusal_is_not_retried(
    server: LoopbackServer, waker: ApiWaker, /, status
) -> None:
    server.add_pod("w-0")
    server.add_pod("w-1")
    server.script.append(status)
    waker.wake([order("w-0")])
    await server.has_heard(1)
    waker.wake([order("w-1")])
    await server.has_heard(2)

    assert server.requests[1].path.endswith("/w-1/status")
    waker.wake([order("w-0")])  # nothing of it is in flight
    await server.has_heard(3)
    assert server.requests[2].path.endswith("/w-0/status")


@scene(connected_waker)
async def test_a_newer_wake_up_replaces_a_retry(server: LoopbackServer, waker: ApiWaker, /) -> None:
    server.add_pod("w-0")
    server.script.append(500)
    waker.wake([order("w-0", node="n-1")])
    await server.has_heard(1)
    waker.wake([order("w-0", node="n-2")])
    await server.has_heard(2)

    assert server.requests[1].body["status"] == {"nominatedNodeName": "n-2"}


@scene(connected_waker)
async def test_a_retry_does_not_undo_a_newer_wake_up_that_was_sent_meanwhile(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    server.add_pod("w-1")
    server.script.append(500)
    waker.wake([order("w-0", node="n-1")])
    await server.has_heard(1)
    waker.wake([order("w-0", node="")])
    await server.has_heard(2)
    # A retry scheduled later than the first one is sent after it.
    server.script.append(500)
    waker.wake([order("w-1")])
    await server.has_heard(4)

    named = [request.path.split("/")[-2] for request in server.requests]
    assert named == ["w-0", "w-0", "w-1", "w-1"]
    assert server.requests[1].body["status"] == {"nominatedNodeName": None}


@scene(connected_waker)
async def test_pods_may_be_woken_from_another_thread(
    server: LoopbackServer, waker: ApiWaker, /
) -> None:
    server.add_pod("w-0")
    thread = threading.Thread(target=waker.wake, args=([order("w-0")],))
    thread.start()
    await server.has_heard(1)
    await asyncio.to_thread(thread.join)

    assert server.requests[0].path.endswith("/w-0/status")

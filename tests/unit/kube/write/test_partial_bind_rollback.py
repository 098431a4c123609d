"""Evicting a partly bound gang: all of its pods or none, and only if all are recreated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager

import pytest

from extender.kube.pipeline import Pipeline
from extender.kube.write.evict import ROLLBACK_ATTEMPTS, ApiPartialBindRollback
from extender.leader.fencing import Term
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.ports import EvictOrder, EvictOutcome, EvictResult, Fencing
from tests.api_server import (
    HANG_UP,
    LoopbackServer,
    VirtualLoop,
    connected,
    loopback_server,
    scene,
)

GANG = GangKey("team/train")
JOB = {"kind": "Job", "name": "train", "uid": "j-1", "controller": True}
NODE_OWNER = {"kind": "Node", "name": "n-1", "uid": "n-1"}
KEPT = "partly bound gang is not evicted: not every pod has a controller"


class Rollback:
    """A rollback, and the `Evictor` that records what it evicts."""

    def __init__(self, pipeline: Pipeline, fencing: Fencing | None) -> None:
        self._pipeline = pipeline
        self._rollback = ApiPartialBindRollback(pipeline, self, chance=lambda: 0.0, fencing=fencing)
        self.evicted: list[str] = []
        self.outcomes: list[Future[EvictOutcome]] = []
        self.left: list[GangKey] = []
        self.stayed: list[GangKey] = []

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        self.evicted += [order.name for order in orders]
        self.outcomes += [Future() for _ in orders]
        return self.outcomes

    def begin(self, *names: str) -> None:
        orders = [EvictOrder(uid=PodUid(f"uid-{n}"), namespace="team", name=n) for n in names]
        self._rollback.evict_all(GANG, orders, leaves=self.left.append, stays=self.stayed.append)

    async def all_responses(self) -> None:
        """Responses on one connection come in order: after this one, all are received."""
        answered = asyncio.Event()
        self._pipeline.request(self._pipeline.frame(b"GET", "/last"), lambda _: answered.set())
        await answered.wait()

    async def evict_all(self, *names: str) -> list[str]:
        """Return the evicted pods after the API server has answered the read of each."""
        self.begin(*names)
        await self.all_responses()
        return self.evicted


@asynccontextmanager
async def connected_rollback(
    fencing: Fencing | None = None,
) -> AsyncIterator[tuple[LoopbackServer, Rollback]]:
    async with loopback_server() as server, connected(server, size=1) as pipeline:
        yield server, Rollback(pipeline, fencing)


def has_pod(
    server: LoopbackServer, name: str, *owners: dict[str, object], uid: str = "", on: str = "n-1"
) -> None:
    metadata = {"uid": uid or f"uid-{name}", "ownerReferences": list(owners)}
    spec = {"nodeName": on} if on else {}
    server.objects[f"/api/v1/namespaces/team/pods/{name}"] = {"metadata": metadata, "spec": spec}


@scene(connected_rollback)
async def test_bound_pods_of_a_controller_are_evicted_together(
    server: LoopbackServer, rollback: Rollback, /
) -> None:
    has_pod(server, "w-0", JOB)
    has_pod(server, "w-1", NODE_OWNER, JOB)

    assert await rollback.evict_all("w-0", "w-1") == ["w-0", "w-1"]
    assert (rollback.left, rollback.stayed) == ([GANG], [])


@scene(connected_rollback)
async def test_a_pod_that_was_not_bound_is_not_evicted(
    server: LoopbackServer, rollback: Rollback, /
) -> None:
    has_pod(server, "w-0", JOB)
    has_pod(server, "w-1", JOB, on="")

    assert await rollback.evict_all("w-0", "w-1") == ["w-0"]


@pytest.mark.parametrize(
    ("failure", "stayed"),
    [
        (EvictOutcome(EvictResult.BLOCKED, "a budget says no"), [GANG]),
        (EvictOutcome(EvictResult.FAILED, "no answer"), [GANG]),
        (OSError("the connection broke"), [GANG]),
        (CancelledError(), []),
    ],
)
@scene(connected_rollback)
async def test_after_an_eviction_fails_the_other_pods_may_return_at_once(
    server: LoopbackServer,
    rollback: Rollback,
    /,
    failure: EvictOutcome | BaseException,
    stayed: list[GangKey],
) -> None:
    """An eviction that was cancelled was not sent, so it did not fail."""
    has_pod(server, "w-0", JOB)
    has_pod(server, "w-1", JOB)
    await rollback.evict_all("w-0", "w-1")
    gone, kept = rollback.outcomes
    gone.set_result(EvictOutcome(EvictResult.LEAVING))
    assert rollback.stayed == []

    if isinstance(failure, EvictOutcome):
        kept.set_result(failure)
    else:
        kept.set_exception(failure)
    assert rollback.stayed == stayed


@pytest.mark.parametrize("owners", [(), (NODE_OWNER,)])
@scene(connected_rollback)
async def test_no_pod_is_evicted_if_one_would_not_be_recreated(
    server: LoopbackServer,
    rollback: Rollback,
    /,
    owners: tuple[dict[str, object], ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    has_pod(server, "w-0", JOB)
    has_pod(server, "w-1", *owners)

    assert await rollback.evict_all("w-0", "w-1") == []
    assert KEPT in caplog.text
    assert (rollback.left, rollback.stayed) == ([], [GANG]), "the waiting gang must be told"


@scene(connected_rollback)
async def test_a_deleted_or_replaced_pod_does_not_stop_the_rollback(
    server: LoopbackServer, rollback: Rollback, /
) -> None:
    has_pod(server, "w-0", JOB)
    has_pod(server, "w-1", uid="another")

    assert await rollback.evict_all("w-0", "w-1", "w-2") == ["w-0", "w-1", "w-2"]


@scene(connected_rollback)
async def test_a_gang_without_bound_pods_leaves_at_once(
    server: LoopbackServer, rollback: Rollback, /
) -> None:
    assert await rollback.evict_all() == []
    assert rollback.left == [GANG]


@pytest.mark.parametrize("failure", [500, 429, 409, 403, HANG_UP])
@scene(connected_rollback, new_loop=VirtualLoop)
async def test_a_failed_read_of_a_pod_is_retried_and_the_pod_then_evicted(
    server: LoopbackServer, rollback: Rollback, /, failure: int | str
) -> None:
    has_pod(server, "w-0", JOB)
    server.script.append(failure)
    rollback.begin("w-0")
    await server.has_heard(2)
    await rollback.all_responses()

    assert rollback.evicted == ["w-0"]


@pytest.mark.parametrize("said", ["<html>", ["<html>"], {"metadata": 3}, {"kind": "Status"}, None])
@scene(connected_rollback, new_loop=VirtualLoop)
async def test_a_response_that_is_no_pod_is_requested_again(
    server: LoopbackServer, rollback: Rollback, /, said: object
) -> None:
    server.objects["/api/v1/namespaces/team/pods/w-0"] = said

    assert await rollback.evict_all("w-0") == []
    has_pod(server, "w-0", JOB)
    await server.has_heard(3)
    await rollback.all_responses()

    assert rollback.evicted == ["w-0"]


@scene(connected_rollback, new_loop=VirtualLoop)
async def test_no_pod_is_evicted_and_it_is_logged_if_the_read_never_returns_a_pod(
    server: LoopbackServer, rollback: Rollback, /, caplog: pytest.LogCaptureFixture
) -> None:
    has_pod(server, "w-0", JOB)
    server.objects["/api/v1/namespaces/team/pods/w-1"] = ["<html>"]
    rollback.begin("w-0", "w-1")
    await server.has_heard(1 + ROLLBACK_ATTEMPTS)
    await rollback.all_responses()

    assert (rollback.evicted, rollback.left, rollback.stayed) == ([], [], [GANG])
    assert KEPT in caplog.text


@scene()
async def test_a_rollback_requested_in_an_earlier_term_evicts_no_pod(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A leader in between may have completed the gang: its deadline restarts with the term."""
    term = Term(lambda: 0.0)
    term.begin(until=1.0)
    async with connected_rollback(term) as (server, rollback):
        has_pod(server, "w-0", JOB)
        rollback.begin("w-0")
        term.end()
        term.begin(until=1.0)
        await rollback.all_responses()

    assert rollback.evicted == []
    assert "partly bound gang is not evicted" in caplog.text

"""Evicting a partly bound gang: all of its pods or none, and only if all are recreated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future

import pytest

from extender.kube.pipeline import Pipeline
from extender.kube.write.evict import ROLLBACK_ATTEMPTS, ApiPartialBindRollback
from extender.leader.fencing import Term
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.ports import EvictOrder, EvictOutcome, EvictResult
from tests.api_server import (
    HANG_UP,
    LoopbackServer,
    VirtualLoop,
    connected,
    loopback_server,
    play,
    scene,
)

GANG = GangKey("team/train")
JOB = {"kind": "Job", "name": "train", "uid": "j-1", "controller": True}
NODE_OWNER = {"kind": "Node", "name": "n-1", "uid": "n-1"}


class Evictions:
    """Records the pods to evict."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.outcomes: list[Future[EvictOutcome]] = []

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        self.asked += [order.name for order in orders]
        self.outcomes += [Future() for _ in orders]
        return self.outcomes


def order(name: str) -> EvictOrder:
    return EvictOrder(uid=PodUid(f"uid-{name}"), namespace="team", name=name)


def has_pod(
    server: LoopbackServer, name: str, *owners: dict[str, object], uid: str = "", on: str = "n-1"
) -> None:
    metadata = {"uid": uid or f"uid-{name}", "ownerReferences": list(owners)}
    spec = {"nodeName": on} if on else {}
    server.objects[f"/api/v1/namespaces/team/pods/{name}"] = {"metadata": metadata, "spec": spec}


def ignore(gang: str) -> None:
    """Do nothing: this story has no waiting gang."""


def evicted_names(
    prepare,
    *names: str,
    stayed: list[str] | None = None,
    left: list[str] | None = None,
    evictions: Evictions | None = None,
) -> list[str]:
    """Return the evicted pods after the API server has answered the read of each."""
    evictions, stayed = evictions or Evictions(), [] if stayed is None else stayed
    left = [] if left is None else left

    async def scene() -> None:
        async with loopback_server() as server, connected(server, size=1) as pipeline:
            prepare(server)
            ApiPartialBindRollback(pipeline, evictions).evict_all(
                GANG, [order(name) for name in names], leaves=left.append, stays=stayed.append
            )
            await all_responses(pipeline)

    play(scene())
    return evictions.asked


def test_bound_pods_of_a_controller_are_evicted_together():
    def prepare(server: LoopbackServer) -> None:
        has_pod(server, "w-0", JOB)
        has_pod(server, "w-1", NODE_OWNER, JOB)

    stayed: list[str] = []
    left: list[str] = []
    assert evicted_names(prepare, "w-0", "w-1", stayed=stayed, left=left) == ["w-0", "w-1"]
    assert (left, stayed) == ([GANG], [])


def test_a_pod_that_was_not_bound_is_not_evicted():
    def prepare(server: LoopbackServer) -> None:
        has_pod(server, "w-0", JOB)
        has_pod(server, "w-1", JOB, on="")

    assert evicted_names(prepare, "w-0", "w-1") == ["w-0"]


@pytest.mark.parametrize("result", [EvictResult.BLOCKED, EvictResult.FAILED, None])
def test_after_an_eviction_fails_the_other_pods_may_return_at_once(result, caplog):
    def prepare(server: LoopbackServer) -> None:
        has_pod(server, "w-0", JOB)
        has_pod(server, "w-1", JOB)

    stayed, evictions = [], Evictions()
    evicted_names(prepare, "w-0", "w-1", stayed=stayed, evictions=evictions)
    gone, kept = evictions.outcomes
    gone.set_result(EvictOutcome(EvictResult.LEAVING))
    assert stayed == []

    if result is None:
        kept.set_exception(OSError("the connection broke"))
    else:
        kept.set_result(EvictOutcome(result, "a budget says no"))
    assert stayed == [GANG]
    assert "could not be evicted" in caplog.text


def test_a_cancelled_eviction_does_not_report_that_the_gang_stays():
    stayed, evictions = [], Evictions()
    names = ["w-0", "w-1"]
    evicted_names(
        lambda server: [has_pod(server, name, JOB) for name in names],
        *names,
        stayed=stayed,
        evictions=evictions,
    )
    first, second = evictions.outcomes
    first.cancel()
    first.set_running_or_notify_cancel()
    second.set_exception(CancelledError())

    assert stayed == []


@pytest.mark.parametrize("owners", [(), (NODE_OWNER,)])
def test_no_pod_is_evicted_if_one_would_not_be_recreated(owners, caplog):
    def prepare(server: LoopbackServer) -> None:
        has_pod(server, "w-0", JOB)
        has_pod(server, "w-1", *owners)

    stayed: list[str] = []
    left: list[str] = []
    assert evicted_names(prepare, "w-0", "w-1", stayed=stayed, left=left) == []
    assert "not every pod has a controller" in caplog.text
    assert (left, stayed) == ([], [GANG]), "the waiting gang must be told"


def test_a_deleted_or_replaced_pod_does_not_stop_the_rollback():
    def prepare(server: LoopbackServer) -> None:
        has_pod(server, "w-0", JOB)
        has_pod(server, "w-1", uid="another")

    assert evicted_names(prepare, "w-0", "w-1", "w-2") == ["w-0", "w-1", "w-2"]


def test_a_gang_without_bound_pods_leaves_at_once():
    left: list[str] = []
    assert evicted_names(lambda server: None, left=left) == []
    assert left == [GANG]


def test_no_pod_is_evicted_before_each_pod_was_read(caplog):
    def prepare(server: LoopbackServer) -> None:
        has_pod(server, "w-0", JOB)
        server.script.append(500)

    assert evicted_names(prepare, "w-0") == []


@pytest.mark.parametrize("failure", [500, 429, 409, 403, HANG_UP])
@scene(new_loop=VirtualLoop)
async def test_a_failed_read_of_a_pod_is_retried_and_the_pod_then_evicted(
    failure: int | str,
) -> None:
    evictions = Evictions()
    async with loopback_server() as server, connected(server, size=1) as pipeline:
        has_pod(server, "w-0", JOB)
        server.script.append(failure)
        ApiPartialBindRollback(pipeline, evictions).evict_all(
            GANG, [order("w-0")], leaves=ignore, stays=ignore
        )
        await server.has_heard(2)
        await all_responses(pipeline)

    assert evictions.asked == ["w-0"]


@scene(new_loop=VirtualLoop)
async def test_no_pod_is_evicted_if_reads_never_succeed(caplog) -> None:
    evictions = Evictions()
    async with loopback_server() as server, connected(server, size=1) as pipeline:
        has_pod(server, "w-0", JOB)
        server.script.extend([500] * 10)
        rollback = ApiPartialBindRollback(pipeline, evictions, chance=lambda: 0.0)
        rollback.evict_all(GANG, [order("w-0")], leaves=ignore, stays=ignore)
        await server.has_heard(ROLLBACK_ATTEMPTS)
        await all_responses(pipeline)

    assert evictions.asked == []
    assert "not every pod has a controller" in caplog.text


NO_POD = ["<html>", ["<html>"], {"metadata": 3}, {"kind": "Status"}, None]


@pytest.mark.parametrize("said", NO_POD)
@scene(new_loop=VirtualLoop)
async def test_a_response_that_is_no_pod_is_requested_again(said: object) -> None:
    evictions = Evictions()
    async with loopback_server() as server, connected(server, size=1) as pipeline:
        server.objects["/api/v1/namespaces/team/pods/w-0"] = said
        rollback = ApiPartialBindRollback(pipeline, evictions, chance=lambda: 0.0)
        rollback.evict_all(GANG, [order("w-0")], leaves=ignore, stays=ignore)
        await server.has_heard(1)
        await all_responses(pipeline)
        has_pod(server, "w-0", JOB)
        await server.has_heard(3)
        await all_responses(pipeline)

    assert evictions.asked == ["w-0"]


@scene(new_loop=VirtualLoop)
async def test_no_pod_is_evicted_and_it_is_logged_if_the_read_never_returns_a_pod(caplog) -> None:
    evictions, left, stayed = Evictions(), [], []
    async with loopback_server() as server, connected(server, size=1) as pipeline:
        has_pod(server, "w-0", JOB)
        server.objects["/api/v1/namespaces/team/pods/w-1"] = ["<html>"]
        rollback = ApiPartialBindRollback(pipeline, evictions, chance=lambda: 0.0)
        orders = [order("w-0"), order("w-1")]
        rollback.evict_all(GANG, orders, leaves=left.append, stays=stayed.append)
        await server.has_heard(1 + ROLLBACK_ATTEMPTS)
        await all_responses(pipeline)

    assert (evictions.asked, left, stayed) == ([], [], [GANG])
    assert "not every pod has a controller" in caplog.text


async def all_responses(pipeline: Pipeline) -> None:
    """Responses on one connection come in order: after this one, all are received."""
    answered = asyncio.Event()
    pipeline.request(pipeline.frame(b"GET", "/last"), lambda _: answered.set())
    await answered.wait()


@scene()
async def test_a_rollback_requested_in_an_earlier_term_evicts_no_pod(caplog) -> None:
    """A leader in between may have completed the gang: its deadline restarts with the term."""
    evictions, term = Evictions(), Term(lambda: 0.0)
    term.begin(until=1.0)
    async with loopback_server() as server, connected(server, size=1) as pipeline:
        has_pod(server, "w-0", JOB)
        rollback = ApiPartialBindRollback(pipeline, evictions, fencing=term)
        rollback.evict_all(GANG, [order("w-0")], leaves=ignore, stays=ignore)
        term.end()
        term.begin(until=1.0)
        await all_responses(pipeline)

    assert evictions.asked == []
    assert "partly bound gang is not evicted" in caplog.text

"""A gang of thousands, from its bind calls to the API server: it starts whole, or nobody is bound.

The book, the barrier and the binder are the real ones, and so are the connections; the clock stands
still unless it is turned, so that no machine is too slow. What is measured is the pace of whoever
came before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from extender.kube.pipeline import Pipeline
from extender.kube.write import bind
from extender.kube.write.bind import ApiBinder
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.permit.machine import StateMachine
from extender.permit.runner import PermitRunner
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder, BindOutcome
from extender.sim.clock import VirtualClock
from tests.api_server import LoopbackServer, connected, loopback_server, play
from tests.doubles import ManualReader, RecordingObserver, RecordingUndo
from tests.unit.permit.world import GANG, World

HOLD_S, BIND_TIMEOUT_S = 30.0, 300.0
#: So long an answer took before. At the one pace 10,000 take less than a minute, at the other 5,000
#: take twenty.
QUICK_S, SLOW_S = 0.1, 60.0


class Counted(World):
    """Counts who is seated as they come: to ask each of thousands at each call takes minutes."""

    count = 0

    def mark_bound(self, uid: PodUid, node: str) -> None:
        super().mark_bound(uid, node)
        self.count += 1

    def scheduled(self, key: GangKey) -> int:
        return self.count


class Scene:
    """A gang that is complete but for its calls, before a barrier in front of an API server."""

    def __init__(self, server: LoopbackServer, pipeline: Pipeline, members: int) -> None:
        self.server = server
        self.world = Counted()
        self.world.add_node("n-1")
        self.world.add_group(members)
        self.orders = [self._order(f"w-{index}") for index in range(members)]
        for order in self.orders:
            self.world.add_pod(order.uid)
        self.clock = VirtualClock()
        self.binder = ApiBinder(pipeline, now=self.clock.monotonic, chance=lambda: 0.0)
        self.notebook, reader = RecordingObserver(), ManualReader()
        reader.at_once = True
        limits = Timeouts.within(HOLD_S, BIND_TIMEOUT_S)
        self.barrier = PermitRunner(
            StateMachine(self.world, limits, chance=lambda: 0.0),
            binder=self.binder,
            groups=reader,
            ledger=self.world,
            undo=RecordingUndo(),
            timer=self.clock,  # type: ignore[arg-type]
            clock=self.clock,
            observer=self.notebook,
        )

    def _order(self, name: str) -> BindOrder:
        uid = PodUid(self.server.add_pod(name).uid)
        return BindOrder(uid=uid, namespace="team", name=name, node="n-1")

    def calls(self, orders: list[BindOrder]) -> list[asyncio.Future[str]]:
        """Bring these to the barrier; give what they will be answered."""
        answers = [asyncio.get_running_loop().create_future() for _ in orders]
        for order, answer in zip(orders, answers, strict=True):
            self.barrier.bind(order, answer.set_result)
        return answers

    async def somebody_is_answered_in(self, seconds: float) -> None:
        """Bind one who is alone, and let the API server take so long for it by our clock."""
        settled: asyncio.Future[BindOutcome] = asyncio.get_running_loop().create_future()
        self.server.goes_on.clear()
        until = self.clock.monotonic() + BIND_TIMEOUT_S
        self.binder.bind([self._order("alone")], lambda _, it: settled.set_result(it), until)
        await self.server.has_heard(1)
        self.clock.advance(seconds)
        self.server.goes_on.set()
        assert await settled == bind.BOUND
        self.server.requests.clear()

    @property
    def bound(self) -> int:
        """Count the members that the API server has bound."""
        return sum(bool(self.server.node_of(order.name)) for order in self.orders)


def run(members: int, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def scene() -> None:
        async with loopback_server() as server, connected(server, size=16) as pipeline:
            await story(Scene(server, pipeline, members))

    play(scene())


@pytest.mark.parametrize("members", [5_000, 10_000])
def test_a_gang_of_thousands_is_sent_whole_where_the_pace_allows_it(members):
    async def story(scene: Scene) -> None:
        await scene.somebody_is_answered_in(QUICK_S)
        *most, last = scene.orders
        waiting = scene.calls(most)
        assert not scene.server.requests, "one is missing"
        waiting += scene.calls([last])

        assert {*await asyncio.gather(*waiting)} == {""}
        assert scene.bound == members
        assert len(scene.server.requests) == members, "each once"
        assert scene.world.count == members
        assert not scene.notebook.partial

    run(members, story)


@pytest.mark.parametrize("members", [5_000, 10_000])
def test_nobody_of_thousands_is_bound_where_the_pace_does_not_allow_all(members):
    async def story(scene: Scene) -> None:
        await scene.somebody_is_answered_in(SLOW_S)
        answers = await asyncio.gather(*scene.calls(scene.orders))

        assert {*answers} == {bind.TIMED_OUT.message}
        assert not scene.server.requests
        assert not scene.bound
        assert not scene.world.flight, "no room is kept for them"
        assert [gang for gang, _ in scene.world.backoffs] == [GANG]

    run(members, story)

"""A gang of thousands of pods is bound as a whole or not at all.

State machine, runner, binder and connections are those of the product. The clock is virtual, so
that no machine is too slow. The binder measures its rate with the bind of another pod before.
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
#: The duration of an earlier answer. At the first rate 10,000 binds take less than a minute, at the
#: second 5,000 take twenty.
QUICK_S, SLOW_S = 0.1, 60.0


class Counted(World):
    """Counts bound pods as they come: to look at thousands for each call takes minutes."""

    count = 0

    def mark_bound(self, uid: PodUid, node: str) -> None:
        super().mark_bound(uid, node)
        self.count += 1

    def scheduled(self, key: GangKey) -> int:
        return self.count


class Scene:
    """A gang whose bind calls have yet to come, with the permit runner and an API server."""

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
        self.observer, reader = RecordingObserver(), ManualReader()
        reader.at_once = True
        limits = Timeouts.within(HOLD_S, BIND_TIMEOUT_S)
        self.permit = PermitRunner(
            StateMachine(self.world, limits, chance=lambda: 0.0),
            binder=self.binder,
            groups=reader,
            ledger=self.world,
            undo=RecordingUndo(),
            timer=self.clock,  # type: ignore[arg-type]
            clock=self.clock,
            observer=self.observer,
        )

    def _order(self, name: str) -> BindOrder:
        uid = PodUid(self.server.add_pod(name).uid)
        return BindOrder(uid=uid, namespace="team", name=name, node="n-1")

    def calls(self, orders: list[BindOrder]) -> list[asyncio.Future[str]]:
        """Call bind for *orders*; return their answers."""
        answers = [asyncio.get_running_loop().create_future() for _ in orders]
        for order, answer in zip(orders, answers, strict=True):
            self.permit.bind(order, answer.set_result)
        return answers

    async def bind_takes(self, seconds: float) -> None:
        """Bind another pod; the API server answers after *seconds*."""
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
        """Return how many members the API server has bound."""
        return sum(bool(self.server.node_of(order.name)) for order in self.orders)


def run(members: int, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def scene() -> None:
        async with loopback_server() as server, connected(server, size=16) as pipeline:
            await story(Scene(server, pipeline, members))

    play(scene())


@pytest.mark.parametrize("members", [5_000, 10_000])
def test_a_gang_of_thousands_is_bound_if_the_rate_allows_it(members):
    async def story(scene: Scene) -> None:
        await scene.bind_takes(QUICK_S)
        *most, last = scene.orders
        waiting = scene.calls(most)
        assert not scene.server.requests, "a member is missing"
        waiting += scene.calls([last])

        assert {*await asyncio.gather(*waiting)} == {""}
        assert scene.bound == members
        assert len(scene.server.requests) == members
        assert scene.world.count == members
        assert not scene.observer.partial

    run(members, story)


@pytest.mark.parametrize("members", [5_000, 10_000])
def test_no_member_is_bound_if_the_rate_does_not_allow_all(members):
    async def story(scene: Scene) -> None:
        await scene.bind_takes(SLOW_S)
        answers = await asyncio.gather(*scene.calls(scene.orders))

        assert {*answers} == {bind.TIMED_OUT.message}
        assert not scene.server.requests
        assert not scene.bound
        assert not scene.world.flight, "capacity is still reserved"
        assert [gang for gang, _ in scene.world.backoffs] == [GANG]

    run(members, story)

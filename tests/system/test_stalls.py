"""An API server that stalls or is slow: gangs start late, and none stays bound in part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from extender.model.pod import Status
from extender.sim.api_server import Read

from .world import World, worlds

MakeWorld = Callable[..., World]
GANGS = [f"g{number}" for number in range(10)]
SIZE = 4
#: How long a gang may be bound in part, once the API server answers.
WHOLE_S = 5.0


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    with worlds() as make:
        yield make


def partly_bound(world: World) -> set[str]:
    running = Counter(name.partition("-")[0] for name in world.running())
    return {gang for gang, count in running.items() if count < SIZE}


def gangs_at_the_moment_of_binding(make_world: MakeWorld) -> World:
    """Return ten gangs whose bindings were sent to an API server that does not answer."""
    world = make_world(**{f"n{number}": SIZE for number in range(len(GANGS))})
    world.api.answers_at_once = False
    for gang in GANGS:
        world.create_gang(gang, SIZE)
    world.deliver()
    world.run_cycle()
    world.deliver()
    world.schedule_all()
    world.send_binds()
    for read in [each for each in world.api.in_flight if isinstance(each, Read)]:
        world.api.answer(read)
    assert len(world.api.bindings) == len(GANGS) * SIZE
    world.api.stalled = True
    return world


def take_effect(world: World, count: int) -> None:
    """Let bindings take effect that no watch shows while the API server stalls."""
    for order in world.api.bindings[:count]:
        world.api.patch(order.uid, status_only=False, node=order.node, status=Status.RUNNING)
        world.referee.disturbed(world.api.pods[order.uid].membership.key)


@pytest.mark.parametrize("seconds", [10, 30])
@pytest.mark.parametrize("applied", [0, 7], ids=["nothing was bound", "some were bound unnoticed"])
def test_gangs_start_after_a_short_stall_of_the_api_server(
    make_world: MakeWorld, seconds: int, applied: int
) -> None:
    world = gangs_at_the_moment_of_binding(make_world)
    answers: list[str] = []
    world.scheduler.on_bind_result = answers.append
    take_effect(world, applied)
    world.advance(seconds)
    assert not answers, "no bind of unknown outcome is reported as failed"

    world.api.stalled, world.api.answers_at_once = False, True
    world.advance(WHOLE_S)

    assert len(world.running()) == len(GANGS) * SIZE
    assert not partly_bound(world)
    assert not any(answers), "every successful bind was reported as such"


def test_gangs_whose_calls_time_out_during_a_stall_start_whole_after_it(
    make_world: MakeWorld,
) -> None:
    world = gangs_at_the_moment_of_binding(make_world)
    world.advance(60)
    assert not world.running()

    world.api.stalled, world.api.answers_at_once = False, True
    for _ in range(120):
        world.advance(1)
        assert not partly_bound(world)

    assert len(world.running()) == len(GANGS) * SIZE


def test_members_bound_unnoticed_during_a_stall_are_completed_by_the_rest(
    make_world: MakeWorld,
) -> None:
    world = gangs_at_the_moment_of_binding(make_world)
    take_effect(world, 2)
    world.advance(60)

    world.api.stalled, world.api.answers_at_once = False, True
    world.advance(30)

    assert not partly_bound(world)

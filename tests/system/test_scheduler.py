"""The simulated kube-scheduler does what was measured of the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from extender.hooks.gate import Filtered
from extender.model.gang import Membership
from extender.model.pod import Pod
from extender.ports import BindOrder, WakeOrder
from extender.sim.kube_scheduler import BIND_TIMEOUT_S, SchedulerOptions

from .world import World, uid


class Scripted:
    """An extender that answers as a test says, and records its calls."""

    def __init__(self) -> None:
        self.offers: list[tuple[str, list[str]]] = []
        self.lets_in = True
        self.calls: list[tuple[str, Callable[[str], None]]] = []
        self.hung_up: list[int] = []

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        self.offers.append((pod.name, list(offered)))
        return Filtered(offered) if self.lets_in else Filtered((), dict.fromkeys(offered, "no"))

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        return victims

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int:
        self.calls.append((order.name, answer))
        return len(self.calls)

    def hang_up(self, call: int) -> None:
        self.hung_up.append(call)


Stage = Callable[..., tuple[World, Scripted]]


@pytest.fixture
def stage() -> Iterator[Stage]:
    made: list[World] = []

    def make(ways: SchedulerOptions | None = None, nodes: int = 2) -> tuple[World, Scripted]:
        extender = Scripted()
        world = World(ways, extender=extender)
        made.append(world)
        for number in range(1, nodes + 1):
            world.create_node(f"n{number}", 4)
        world.deliver_to_scheduler()
        return world, extender

    yield make
    for world in made:
        world.close()


def ask(world: World, *names: str, cpu: int = 1) -> None:
    for name in names:
        world.create_pod(name, cpu=cpu)
    world.deliver_to_scheduler()
    while world.scheduler.schedule():
        pass


def refused(stage: Stage, ways: SchedulerOptions) -> tuple[World, Scripted]:
    """Let the pod `web` be refused, and deliver no more events about it."""
    world, extender = stage(ways)
    extender.lets_in = False
    ask(world, "web")
    world.deliver_to_scheduler()
    while world.scheduler.schedule():
        pass
    world.deliver_to_scheduler()
    extender.offers.clear()
    assert uid("web") in world.scheduler.unschedulable
    return world, extender


def test_only_nodes_with_capacity_by_its_own_count_are_offered(stage: Stage) -> None:
    world, extender = stage()
    ask(world, "a", "b", "c", cpu=4)

    assert extender.offers == [("a", ["n1", "n2"]), ("b", ["n2"])]
    assert uid("c") in world.scheduler.unschedulable, (
        "no call is made about a pod that fits nowhere"
    )


def test_a_sample_of_the_nodes_is_offered_and_the_next_begins_behind_it(stage: Stage) -> None:
    world, extender = stage(SchedulerOptions(sample=2), nodes=5)
    ask(world, "a", "b", "c")

    assert [offer for _, offer in extender.offers] == [["n1", "n2"], ["n3", "n4"], ["n5", "n1"]]


def test_the_nominated_node_is_offered_alone_and_then_all_of_them(stage: Stage) -> None:
    world, extender = stage()
    extender.lets_in = False
    world.create_pod("web")
    world.api.wake([WakeOrder(uid=uid("web"), namespace="a", name="web", node="n2")])
    world.deliver_to_scheduler()
    world.scheduler.schedule()

    assert [offer for _, offer in extender.offers] == [["n2"], ["n1", "n2"]]


def test_capacity_of_a_node_is_kept_for_pods_nominated_to_it(stage: Stage) -> None:
    world, extender = stage()
    world.create_pod("big", cpu=4)
    world.api.wake([WakeOrder(uid=uid("big"), namespace="a", name="big", node="n1")])
    world.deliver_to_scheduler()
    world.scheduler.active.clear()
    ask(world, "web")

    assert extender.offers == [("web", ["n2"])]


def test_a_pod_with_scheduling_gates_is_not_tried_before_they_are_removed(stage: Stage) -> None:
    world, extender = stage()
    world.create_pod("web", gated=True)
    world.deliver_to_scheduler()
    world.scheduler.restart()
    assert not world.scheduler.schedule()

    world.api.patch(uid("web"), status_only=False, gated=False)
    world.deliver_to_scheduler()

    assert world.scheduler.schedule()
    assert extender.offers == [("web", ["n1", "n2"])]


@pytest.mark.parametrize("hints", [True, False])
def test_a_refused_pod_is_not_retried_until_the_extenders_patch_wakes_it(
    stage: Stage, hints: bool
) -> None:
    world, extender = refused(stage, SchedulerOptions(hints=hints))
    assert not world.scheduler.schedule()

    world.api.wake([WakeOrder(uid=uid("web"), namespace="a", name="web", node="n1")])
    world.deliver_to_scheduler()

    assert world.scheduler.schedule()
    assert extender.offers[0] == ("web", ["n1"])


@pytest.mark.parametrize("hints", [True, False])
def test_a_running_pod_that_changes_wakes_refused_ones_only_with_queueing_hints(
    stage: Stage,
    hints: bool,
) -> None:
    world, _ = refused(stage, SchedulerOptions(hints=hints))
    world.create_pod("old")
    world.api.patch(uid("old"), node="n1")
    world.deliver_to_scheduler()

    assert (uid("web") in world.scheduler.active) is hints


def test_a_created_member_wakes_no_refused_pod(stage: Stage) -> None:
    world, _ = refused(stage, SchedulerOptions())
    world.create_pod("other")
    world.deliver_to_scheduler()

    assert world.scheduler.active == [uid("other")]


@pytest.mark.parametrize(("hints", "questions"), [(True, 2), (False, 1)])
def test_its_own_condition_causes_a_second_try_with_queueing_hints(
    stage: Stage, hints: bool, questions: int
) -> None:
    world, extender = stage(SchedulerOptions(hints=hints))
    extender.lets_in = False
    ask(world, "web")
    world.deliver_to_scheduler()
    while world.scheduler.schedule():
        world.deliver_to_scheduler()

    assert len(extender.offers) == questions


def test_bind_calls_run_concurrently_and_wait_for_their_volumes(stage: Stage) -> None:
    world, _ = stage()
    world.scheduler.prebind_s["b"] = 5.0
    ask(world, "a", "b", "c")

    assert world.scheduler.ready_to_bind == [uid("a"), uid("c")]
    world.time.advance(5)
    assert world.scheduler.ready_to_bind == [uid("a"), uid("b"), uid("c")]


def test_a_failed_bind_is_forgotten_and_retried_after_growing_pauses(stage: Stage) -> None:
    world, extender = stage()
    ask(world, "web")
    for pause_s in (1, 2, 4, 8, 10, 10):
        world.scheduler.send_bind(uid("web"))
        extender.calls[-1][1]("the gang did not assemble")
        assert uid("web") not in world.scheduler.assumed
        world.time.advance(pause_s - 0.1)
        world.scheduler.tick()
        assert not world.scheduler.schedule()
        world.time.advance(0.1)
        world.scheduler.tick()
        assert world.scheduler.schedule()


def test_it_disconnects_when_a_bind_takes_too_long(stage: Stage) -> None:
    world, extender = stage()
    ask(world, "web")
    world.scheduler.send_bind(uid("web"))
    world.time.advance(BIND_TIMEOUT_S)
    world.scheduler.tick()

    assert extender.hung_up == [1]
    assert not world.scheduler.assumed


def test_a_bound_pod_is_assumed_until_its_watch_shows_it(stage: Stage) -> None:
    world, extender = stage(nodes=1)
    ask(world, "web", cpu=4)
    world.scheduler.send_bind(uid("web"))
    world.api.patch(uid("web"), status_only=False, node="n1")
    extender.calls[-1][1]("")
    ask_before = len(extender.offers)
    assert uid("web") in world.scheduler.assumed

    world.deliver_to_scheduler()
    ask(world, "other")

    assert not world.scheduler.assumed
    assert len(extender.offers) == ask_before, "the capacity is still used"


def test_a_restart_forgets_assumed_pods_and_disconnects(stage: Stage) -> None:
    world, extender = stage()
    ask(world, "a", "b")
    world.scheduler.send_bind(uid("a"))

    world.scheduler.restart(turn=1)

    assert extender.hung_up == [1]
    assert world.scheduler.active == [uid("b"), uid("a")]

"""The referee itself: it finds a breach of every rule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from extender.hooks.gate import Filtered
from extender.model.gang import Membership
from extender.model.pod import Pod
from extender.model.queue import Namespace, NamespaceShare
from extender.ports import BindOrder, BindOutcome, WakeOrder

from .referee import Breach
from .system import SystemReservation
from .world import World, amounts, key, uid


@pytest.fixture
def world() -> Iterator[World]:
    """A world whose extender reserves what the test says, and nothing else."""
    made = World()
    made.create_node("n1", 4)
    made.create_node("n2", 4)
    made.deliver()
    reserve(made)
    yield made
    made.close()


def plant(world: World, **faults: Callable[..., Any]) -> None:
    """Replace parts of the extender."""
    for name, fault in faults.items():
        setattr(world.system, name, fault)


def reserve(world: World, *reservations: SystemReservation) -> None:
    plant(world, reservations=lambda: list(reservations))


def reservation(
    name: str, gang: str, node: str = "n1", cpu: int = 1, **rest: bool
) -> SystemReservation:
    facts = {"is_tentative": True, "is_placeholder": False} | rest
    return SystemReservation(uid(name), key(gang), node, amounts(cpu, pods=1), **facts)


def send(world: World, *pods: tuple[str, str]) -> None:
    """Send bindings as the permit runner would, without any check."""
    orders = [BindOrder(uid=uid(name), namespace="a", name=name, node=on) for name, on in pods]
    world.api.bind(orders, _ignore, until=float("inf"))


def _ignore(order: BindOrder, outcome: BindOutcome) -> None:
    pass


def broken(world: World, rule: str, by: Callable[[], object] = lambda: None) -> None:
    """Check that the referee finds this breach, and had found none before."""
    world.referee.check()
    with pytest.raises(Breach) as found:  # noqa: PT012 (the next check finds it)
        by()
        world.referee.check()
    assert found.value.rule == rule


def test_more_reserved_on_a_node_than_it_has(world: World) -> None:
    world.create_gang("train", 2, cpu=4)

    broken(world, "capacity", lambda: reserve(world, reservation("train-0", "train", cpu=4),
                                          reservation("train-1", "train", cpu=4)))  # fmt: skip


def test_a_reservation_of_capacity_that_a_running_pod_uses(world: World) -> None:
    world.create_pod("old", cpu=4)
    send(world, ("old", "n1"))
    world.create_pod("web")

    broken(world, "capacity", lambda: reserve(world, reservation("web", "pod:web")))


def test_a_reservation_of_capacity_of_a_binding_in_flight(world: World) -> None:
    world.api.answers_at_once = False
    world.create_pod("old", cpu=4)
    send(world, ("old", "n1"))
    world.create_pod("web")

    broken(world, "capacity", lambda: reserve(world, reservation("web", "pod:web")))


def test_a_node_that_shrinks_below_its_pods_is_no_breach(world: World) -> None:
    world.create_pod("old", cpu=4)
    send(world, ("old", "n1"))

    world.shrink("n1", cpu=1)
    world.deliver()

    world.referee.check()


def test_a_reservation_on_a_node_that_is_known_to_have_shrunk(world: World) -> None:
    world.create_pod("web", cpu=4)
    world.shrink("n1", cpu=1)
    reserved = reservation("web", "pod:web", cpu=4)
    reserve(world, reserved)
    world.referee.check()  # the extender's watch has not shown it
    reserve(world)
    world.deliver_to_extender()

    broken(world, "capacity", lambda: reserve(world, reserved))


def test_a_queue_above_its_ceiling(world: World) -> None:
    world.create_queue("q", capability=amounts(cpu=1))
    world.create_gang("train", 1, cpu=2, queue="q")

    broken(world, "ceiling", lambda: reserve(world, reservation("train-0", "train", cpu=2)))


def test_a_queue_above_its_ceiling_with_what_runs_there_without_its_pod_group(
    world: World,
) -> None:
    world.create_queue("default", capability=amounts(cpu=3))
    world.create_queue("q")
    world.create_gang("lost", 2, cpu=1, queue="q")
    send(world, ("lost-0", "n1"), ("lost-1", "n1"))
    world.delete_group("lost")
    world.deliver()
    world.create_pod("web", cpu=2)

    broken(world, "ceiling", lambda: reserve(world, reservation("web", "pod:web", cpu=2)))


def test_an_ancestor_above_its_ceiling(world: World) -> None:
    world.create_queue("top", capability=amounts(cpu=1))
    world.create_queue("q", parent="top")
    world.create_gang("train", 1, cpu=2, queue="q")

    broken(world, "ceiling", lambda: reserve(world, reservation("train-0", "train", cpu=2)))


def test_use_of_capacity_guaranteed_to_another_queue(world: World) -> None:
    world.create_queue("greedy")
    world.create_queue("poor", guarantee=amounts(cpu=6))
    world.create_gang("train", 1, cpu=4, queue="greedy")

    broken(world, "guarantee", lambda: reserve(world, reservation("train-0", "train", cpu=4)))


def test_a_namespace_above_what_it_may_have_of_a_queue(world: World) -> None:
    world.create_queue("q")
    world.api.put(
        Namespace(
            name="a", shares=(NamespaceShare(queue="q", namespace="a", limit=amounts(cpu=1)),)
        )
    )
    world.create_gang("train", 1, cpu=2, queue="q")

    broken(world, "ceiling", lambda: reserve(world, reservation("train-0", "train", cpu=2)))


def test_use_of_capacity_guaranteed_to_another_namespace(world: World) -> None:
    world.create_queue("q")
    world.api.put(
        Namespace(
            name="b", shares=(NamespaceShare(queue="q", namespace="b", guarantee=amounts(cpu=6)),)
        )
    )
    world.create_gang("train", 1, cpu=4, queue="q")

    broken(world, "guarantee", lambda: reserve(world, reservation("train-0", "train", cpu=4)))


def test_a_reservation_for_a_deleted_pod(world: World) -> None:
    world.create_pod("web")
    reserve(world, reservation("web", "pod:web"))
    world.delete_pod("web")
    world.deliver_to_extender()

    broken(world, "owner", lambda: world.advance(6, busy=False))


def test_a_placeholder_of_a_gang_without_members(world: World) -> None:
    world.create_group("train", 2)
    world.deliver_to_extender()
    reserve(world, reservation("to-come", "train", is_placeholder=True))

    broken(world, "owner", lambda: world.advance(6, busy=False))


def test_a_reservation_for_a_deleted_gang(world: World) -> None:
    world.create_gang("train", 2)
    reserve(world, reservation("train-0", "train"))
    world.delete_group("train")
    world.deliver_to_extender()

    broken(world, "owner", lambda: world.advance(31, busy=False))


def test_an_unschedulable_pod_with_a_reservation_that_is_not_woken(world: World) -> None:
    _refuse_gang(world)
    reserve(world, reservation("train-0", "train"))

    broken(world, "awake", lambda: world.advance(2, busy=False))


def test_an_unschedulable_pod_with_a_reservation_that_was_woken_in_time(world: World) -> None:
    _refuse_gang(world)
    reserve(world, reservation("train-0", "train"))
    world.referee.check()
    world.api.wake([WakeOrder(uid=uid("train-0"), namespace="a", name="train-0")])

    world.advance(2, busy=False)


def test_a_wake_up_before_the_refusal_does_not_count(world: World) -> None:
    world.create_gang("train", 2)
    reserve(world, reservation("train-0", "train"))
    world.api.wake([WakeOrder(uid=uid("train-0"), namespace="a", name="train-0")])
    world.referee.check()
    _refuse_all(world)
    world.deliver_to_scheduler()
    world.schedule_pod("train-0")
    world.deliver_to_scheduler()
    world.schedule_all()

    broken(world, "awake", lambda: world.advance(2, busy=False))


def test_a_member_in_prebind_whose_reservation_ends_while_other_binds_wait(world: World) -> None:
    plant(world, filter=lambda pod, member, offered, _: Filtered(offered))
    plant(world, bind=lambda order, answer: 7)
    world.create_gang("train", 2)
    both = [reservation(f"train-{number}", "train", is_tentative=False) for number in range(2)]
    reserve(world, *both)
    world.scheduler.prebind_s["train-1"] = 30.0
    world.deliver_to_scheduler()
    world.schedule_all()
    world.send_binds()

    broken(world, "waiting", lambda: reserve(world, both[0]))


def test_a_binding_to_a_tainted_node(world: World) -> None:
    world.create_gang("train", 2)
    world.taint("n1")
    world.deliver_to_extender()

    broken(world, "node", lambda: send(world, ("train-0", "n1"), ("train-1", "n2")))


def test_a_binding_to_a_node_that_is_too_small_by_now(world: World) -> None:
    world.create_gang("train", 2, cpu=2)
    world.shrink("n1", cpu=1)
    world.deliver_to_extender()

    broken(world, "node", lambda: send(world, ("train-0", "n1"), ("train-1", "n2")))


def test_an_ordinary_binding_to_a_node_that_is_too_small_by_now(world: World) -> None:
    world.create_pod("web", cpu=4)
    world.shrink("n1", cpu=1)
    world.deliver_to_extender()

    broken(world, "node", lambda: send(world, ("web", "n1")))


def test_a_binding_of_an_incomplete_gang(world: World) -> None:
    world.create_gang("train", 2)

    broken(world, "whole", lambda: send(world, ("train-0", "n1")))


def test_a_gang_that_stays_bound_in_part(world: World) -> None:
    world.create_gang("train", 2)
    world.api.patch(uid("train-0"), node="n1")

    broken(world, "partial", lambda: world.advance(16, busy=False))


def test_an_offer_that_ends_a_good_reservation_of_a_gang(world: World) -> None:
    world.create_gang("train", 2)
    reserve(world, reservation("train-0", "train"), reservation("train-1", "train", "n2"))
    _refuse_all(world, then=lambda: reserve(world))
    world.deliver_to_scheduler()

    broken(world, "reservation", world.schedule)


def test_an_answer_with_a_node_that_was_not_offered(world: World) -> None:
    plant(world, filter=lambda pod, member, offered, _: Filtered(("n9",)))
    world.create_pod("web")
    member = world.api.pods[uid("web")].membership
    world.referee.check()

    broken(world, "subset", lambda: world.filter(world.api.pods[uid("web")].pod, member, ["n1"]))


def test_an_ordinary_pod_that_is_refused_without_a_reason(world: World) -> None:
    _refuse_all(world)
    world.run_cycle()
    world.create_pod("web")
    world.deliver_to_scheduler()

    broken(world, "refusal", world.schedule)


def test_an_ordinary_pod_that_is_refused_because_a_gang_waits(world: World) -> None:
    _refuse_all(world)
    world.run_cycle()
    world.create_gang("train", 2)
    world.create_pod("web")
    world.deliver_to_scheduler()

    world.schedule_pod("web")


def test_success_without_a_binding(world: World) -> None:
    plant(world, bind=lambda order, answer: answer(""))
    world.create_pod("web")
    order = BindOrder(uid=uid("web"), namespace="a", name="web", node="n1")

    broken(world, "success", lambda: world.bind(order, lambda error: None))


def test_a_requested_cycle_that_never_runs(world: World) -> None:
    plant(world, tick=lambda: None)

    broken(world, "cycle", lambda: (world.request_cycle(), world.advance(2, busy=False)))


def test_a_part_that_fails_and_only_logs_it(world: World) -> None:
    def fail() -> None:
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            logging.getLogger("extender.permit").exception("permit runner failed")

    broken(world, "crash", fail)


def test_a_gang_that_fits_and_never_starts(world: World) -> None:
    world.create_gang("train", 8)

    broken(world, "progress", world.referee.check_everything_that_fits_has_started)


@pytest.mark.parametrize("size", [3, 9])
def test_a_gang_that_does_not_fit_may_wait(world: World, size: int) -> None:
    world.create_queue("q", capability=amounts(cpu=2))
    world.create_gang("train", size, queue="q" if size == 3 else "")

    world.referee.check_everything_that_fits_has_started()


def test_a_gang_may_wait_while_a_node_has_more_pods_than_capacity(world: World) -> None:
    # The queue uses all that the nodes have together, and so has all it deserves.
    for number in range(4):
        world.create_pod(f"old-{number}")
    send(world, *((f"old-{number}", "n1") for number in range(4)))
    world.shrink("n1", cpu=1)
    world.create_pod("web")

    world.referee.check_everything_that_fits_has_started()


def test_rules_that_are_not_checked_report_no_breach(world: World) -> None:
    world.referee.ignored = frozenset({"whole"})
    world.create_gang("train", 2)

    send(world, ("train-0", "n1"))

    world.referee.check()


def _refuse_gang(world: World) -> None:
    """Let kube-scheduler ask about a gang of two, refuse both, and deliver no more events."""
    world.create_gang("train", 2)
    _refuse_all(world)
    world.deliver_to_scheduler()
    world.schedule_all()
    assert uid("train-0") in world.scheduler.unschedulable


def _refuse_all(world: World, then: Callable[[], None] = lambda: None) -> None:
    def refuse(pod: Pod, member: Membership, offered: Sequence[str], _: object) -> Filtered:
        then()
        return Filtered((), dict.fromkeys(offered, "because"))

    plant(world, filter=refuse)

"""Gangs of two kinds of pods, a launcher and its workers, that arrive one by one."""

from __future__ import annotations

from extender.model.snapshot import Snapshot
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.reservations.apply_plan import MOST_REFUSALS
from tests.builders import pod_group, seen, shape, uid
from tests.unit.reservations.world import World

LAUNCHER = shape(cpu=1, memory=2)


def arriving() -> World:
    """A gang of four. The bind of its first worker waits, and its launcher was refused."""
    world = World(pod_group(min_member=4))
    world.turn()
    assert world.ask("w0").nodes
    world.see(seen("w0"), seen("launcher", shape=LAUNCHER))
    assert not world.ask("launcher", shape=LAUNCHER).nodes
    world.ledger.mark_waiting(uid("w0"), world.of("w0").node)
    return world


def test_a_member_of_another_shape_gets_its_reservation_while_the_others_are_created() -> None:
    world = arriving()

    assert world.turn(after_s=0.25) == ["launcher"]

    assert world.ask("launcher", shape=LAUNCHER).nodes
    assert len(world.kept) == 2, "for the workers to come"
    for name in ("w1", "w2"):
        assert world.ask(name).nodes
    assert sorted(world.places()) == ["launcher", "w0", "w1", "w2"]


def test_a_gang_whose_members_come_slowly_gets_no_backoff() -> None:
    world = arriving()

    for number in range(1, 3):
        for _ in range(MOST_REFUSALS):
            world.turn(after_s=0.25)
        world.see(seen(f"w{number}"))
        assert world.ask(f"w{number}").nodes

    assert sorted(world.places()) == ["launcher", "w0", "w1", "w2"]
    assert world.backs_off_for() == 0


def test_a_plan_from_before_the_arrival_adds_no_reservations_to_the_placeholders() -> None:
    """The plan saw all of it waiting. Meanwhile filter reserved capacity for the whole minimum."""
    world = World(pod_group(min_member=2))
    world.turn()
    world.see(seen("w0"), seen("w1"))

    def plan_while_kube_scheduler_asks(snapshot: Snapshot) -> Plan:
        plan = make_plan(snapshot)
        assert world.ask("w0").nodes
        return plan

    world.make_plan = plan_while_kube_scheduler_asks
    world.turn()

    assert len(world.published.plan.placements) == 1
    assert sorted(world.places()) == ["train-to-come-0", "w0"]
    assert world.cycle.is_due()

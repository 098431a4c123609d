"""Reserved capacity is not used in a queue that was closed, left, or whose ceiling was lowered."""

from __future__ import annotations

import pytest

from extender.cache.reservation_table import Stage
from extender.model.gang import GangKey
from extender.model.pod import Status
from extender.model.queue import Queue, QueueState
from extender.model.resources import Resources
from tests.builders import GANG, pod_group, seen, uid

from .world import World

BLUE = GangKey("a/blue")


def queue(name: str, cpus: int, parent: str = "") -> Queue:
    return Queue(name=name, parent=parent, capability=Resources({"cpu": 1000 * cpus}))


def admitted(*more: object, **rest: object) -> World:
    """A gang of two that waits in the queue red and has reservations."""
    world = World(queue("all", 8), queue("red", 4, "all"), *more)
    world.see(pod_group(queue="red", **rest), seen("w-0"), seen("w-1"))
    world.turn()
    assert len(world.table.of_gang(GANG)) == 2
    return world


@pytest.mark.parametrize(("name", "parent"), [("red", "all"), ("all", "")])
def test_a_reservation_is_released_when_the_ceiling_of_its_queue_or_an_ancestor_is_lowered(
    name: str, parent: str
) -> None:
    world = admitted()
    world.see(queue(name, 1, parent))
    world.turn()

    assert world.table.of_gang(GANG) == ()
    assert not world.ask("w-0").nodes
    world.see(queue(name, 4, parent))
    world.turn()
    assert len(world.table.of_gang(GANG)) == 2, "and given again at once when it may"


def test_a_reservation_below_the_new_ceiling_stays() -> None:
    world = admitted()
    world.see(queue("red", 2, "all"))
    world.turn()

    assert len(world.table.of_gang(GANG)) == 2


def test_of_two_gangs_the_one_that_came_last_loses_its_reservation() -> None:
    world = admitted()
    world.clock.advance(1)
    world.see(pod_group("blue", queue="red"), seen("b-0", "blue"), seen("b-1", "blue"))
    world.turn()
    assert len(world.table.of_gang(BLUE)) == 2
    world.see(queue("red", 3, "all"))
    world.turn()

    assert len(world.table.of_gang(GANG)) == 2
    assert world.table.of_gang(BLUE) == ()


def test_a_gang_in_a_later_stage_keeps_its_reservation() -> None:
    world = admitted()
    world.clock.advance(1)
    world.see(pod_group("blue", queue="red"), seen("b-0", "blue"), seen("b-1", "blue"))
    world.turn()
    assert world.ask("b-0").nodes
    world.see(queue("red", 3, "all"))
    world.turn()

    assert world.table.of_gang(GANG) == ()
    assert len(world.table.of_gang(BLUE)) == 2


def test_a_gang_with_bound_members_is_completed_beyond_the_ceiling() -> None:
    world = admitted()
    world.table.advance(uid("w-0"), Stage.BINDING, "n1")
    world.see(queue("red", 1, "all"))
    world.turn()

    assert len(world.table.of_gang(GANG)) == 2


def test_a_complete_gang_gets_no_more_members_beyond_the_ceiling() -> None:
    world = admitted(min_member=1)
    world.table.advance(uid("w-0"), Stage.BOUND, "n1")
    world.see(queue("red", 1, "all"))
    world.turn()

    assert [each.pod.name for each in world.table.of_gang(GANG)] == ["w-0"]


def test_reservations_without_the_exceeded_resource_stay() -> None:
    world = admitted()
    world.see(Queue(name="red", parent="all", capability=Resources({"nvidia.com/gpu": 0})))
    world.turn()

    assert len(world.table.of_gang(GANG)) == 2


# Queues that close, and gangs that leave


@pytest.mark.parametrize("name", ["red", "all"])
@pytest.mark.parametrize("state", [QueueState.CLOSED, QueueState.CLOSING])
def test_a_reservation_is_released_when_its_queue_or_an_ancestor_is_closed(
    name: str, state: QueueState
) -> None:
    world = admitted()
    parent = "all" if name == "red" else ""
    world.see(Queue(name=name, parent=parent, state=state))
    world.turn()

    assert world.table.of_gang(GANG) == ()
    assert not world.ask("w-0").nodes
    world.see(queue("red", 4, "all"), queue("all", 8))
    world.turn()
    assert len(world.table.of_gang(GANG)) == 2, "and given again at once when it is opened"


@pytest.mark.parametrize("stage", [Stage.BINDING, Stage.BOUND])
def test_a_gang_with_a_sent_binding_continues_in_a_closed_queue(stage: Stage) -> None:
    world = admitted()
    world.table.advance(uid("w-0"), stage, "n1")
    world.see(Queue(name="red", parent="all", state=QueueState.CLOSED))
    world.turn()

    assert len(world.table.of_gang(GANG)) == 2


def test_a_gang_whose_members_are_all_finished_does_not_start_in_a_closed_queue() -> None:
    """No member is on a node, so a new member would start in a closed queue."""
    world = admitted()
    world.see(seen("w-0", on="n1", status=Status.SUCCEEDED))
    world.turn()
    assert [each.uid for each in world.table.of_gang(GANG)] == [uid("w-1")]
    world.see(Queue(name="red", parent="all", state=QueueState.CLOSED))
    world.turn()

    assert world.table.of_gang(GANG) == ()


def test_a_reservation_is_released_when_its_gang_leaves_the_queue() -> None:
    """Otherwise a gang with a reservation could move to a closed or full queue and start there."""
    world = admitted()
    world.see(Queue(name="blue", state=QueueState.CLOSED))
    world.see(pod_group(queue="blue"))
    world.turn()

    assert world.table.of_gang(GANG) == ()
    assert not world.ask("w-0").nodes
    world.see(Queue(name="blue"))
    world.turn()
    assert {each.queue for each in world.table.of_gang(GANG)} == {"blue"}


def test_a_gang_with_bound_members_is_completed_in_any_queue_it_moves_to() -> None:
    world = admitted()
    world.table.advance(uid("w-0"), Stage.BOUND, "n1")
    world.see(Queue(name="blue", state=QueueState.CLOSED))
    world.see(pod_group(queue="blue"))
    world.turn()

    assert len(world.table.of_gang(GANG)) == 2

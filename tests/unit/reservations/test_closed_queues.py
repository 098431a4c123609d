"""Capacity that was reserved before its queue was closed is not used afterwards."""

from __future__ import annotations

import pytest

from extender.cache.reservation_table import Stage
from extender.model.pod import Status
from extender.model.queue import Queue, QueueState
from tests.builders import GANG, pod_group, seen, uid

from .world import World

RED = Queue(name="red", parent="all")
ALL = Queue(name="all")


def admitted() -> World:
    """A gang of two that waits in the queue red and has reservations."""
    world = World(ALL, RED, pod_group(queue="red"), seen("w-0"), seen("w-1"))
    world.turn()
    assert len(world.table.of_gang(GANG)) == 2
    return world


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
    world.see(RED, ALL)
    world.turn()
    assert len(world.table.of_gang(GANG)) == 2, "and given again at once when it is opened"


def test_a_gang_with_bound_members_continues_in_a_closed_queue() -> None:
    world = admitted()
    world.table.advance(uid("w-0"), Stage.BOUND, "n1")
    world.see(Queue(name="red", state=QueueState.CLOSED))
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


def test_a_gang_with_a_binding_in_flight_continues_in_a_closed_queue() -> None:
    world = admitted()
    world.table.advance(uid("w-0"), Stage.BINDING, "n1")
    world.see(Queue(name="red", parent="all", state=QueueState.CLOSED))
    world.turn()

    assert len(world.table.of_gang(GANG)) == 2


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

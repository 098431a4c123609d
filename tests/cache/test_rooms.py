from __future__ import annotations

from extender.cache.rooms import Rooms
from extender.model.pod import Shape

from .building import SMALL, amounts, node


def rows_kept(rooms: Rooms) -> int:
    return len(rooms._arrays.used)


def test_nodes_that_come_and_go_leave_no_rows_behind() -> None:
    rooms = Rooms()
    for number in range(1000):
        rooms.put(node(f"n{number}"))
        rooms.occupy(f"n{number}", SMALL, releasing=False)
        rooms.promise([(f"n{number}", SMALL, 1)])
        rooms.drop(f"n{number}")
        rooms.promise([(f"n{number}", SMALL, -1)])
        rooms.vacate(f"n{number}", SMALL, releasing=False)

    assert rows_kept(rooms) == 64


def test_a_row_that_is_used_again_is_empty() -> None:
    rooms = Rooms()
    rooms.put(node("old", cpu=64))
    rooms.occupy("old", SMALL, releasing=True)
    rooms.vacate("old", SMALL, releasing=True)
    rooms.drop("old")
    rooms.put(node("new", cpu=1))

    table = rooms.table()

    assert [each.name for each in table.nodes] == ["new"]
    assert table.allocatable[0, 0] == 1000
    assert table.used.sum() == table.releasing.sum() == 0


def test_idle_room_has_every_resource_the_node_offers() -> None:
    rooms = Rooms()
    rooms.put(node("n", allocatable=amounts(cpu=4, memory=8, gpu=2)))
    rooms.occupy("n", Shape(amounts(cpu=1, memory=1, gpu=1)), releasing=False)

    idle = rooms.idle("n")

    assert idle is not None
    assert idle.amount("cpu") == 3000
    assert idle.amount("gpu") == 1
    assert idle.amount("memory") == 7 << 30


def test_more_kinds_of_resources_than_anybody_has_are_left_out() -> None:
    rooms = Rooms()
    rooms.put(node("n", allocatable=amounts(**{f"r{number}": 1 for number in range(500)})))
    rooms.occupy("n", Shape(amounts(**{f"x{number}": 1 for number in range(500)})), releasing=False)

    table = rooms.table()

    assert len(table.dimensions) == 128
    assert table.used[0, 0] == 1000

"""The capacity that nodes and queues have left, with many host ports and terminating pods."""

from __future__ import annotations

from extender.model.gang import GangKey, Membership
from extender.model.pod import HostPort, Shape, Status
from extender.model.queue import Namespace, Queue
from extender.reservations.capacity import NodeCapacity
from tests.builders import amounts, cache, node, pod, seen, shape, uid
from tests.steps import steps

from .world import NODES, World


def ported(first: int, count: int) -> Shape:
    ports = tuple(HostPort(first + number) for number in range(count))
    return shape(cpu=1, host_ports=ports)


def test_a_host_port_is_free_again_when_its_reservation_is_released() -> None:
    made = cache(node("n"), seen("x", "", shape=ported(80, 1)))
    node_capacity = NodeCapacity(made)
    made.reservations.reserve(pod("x", shape=ported(80, 1)), GangKey("a/pod:x"), "n", 1.0)

    assert node_capacity.slots("n", ported(80, 1)) == 0
    assert node_capacity.slots("n", ported(81, 1)) == 1

    made.reservations.release(uid("x"))

    assert node_capacity.slots("n", ported(80, 1)) == 1


def test_a_check_of_host_ports_does_not_compare_all_pairs() -> None:
    seated = seen("x", "", on="n", shape=ported(1000, 400))
    made = cache(node("n"), seated, seen("y", "", shape=ported(2000, 400)))
    made.reservations.reserve(pod("y", shape=ported(2000, 400)), GangKey("a/pod:y"), "n", 1.0)
    node_capacity = NodeCapacity(made)

    assert steps(lambda: node_capacity.slots("n", ported(3000, 400))) < 20 * 400


HOME = (Namespace(name="a", queue="home"), Queue(name="home", capability=amounts(cpu=1)))


def test_an_ordinary_pod_waits_until_the_terminating_pod_it_replaces_is_gone() -> None:
    world = World(*HOME, seen("old", "", on=NODES[0], status=Status.RELEASING))
    world.turn()
    member = Membership(key=GangKey("a/pod:new"))

    refused = world.gate.filter(pod("new"), member, NODES)
    world.lose_pod("old")
    world.turn()

    assert not refused.nodes
    assert world.gate.filter(pod("new"), member, NODES).nodes

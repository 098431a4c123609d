"""The share of a namespace in a queue limits every reservation, before the next plan too."""

from __future__ import annotations

from typing import Any

from extender.model.queue import Namespace, NamespaceShare, Queue
from extender.model.resources import Resources
from tests.builders import node, pod_group, seen, shape
from tests.unit.reservations.world import World

#: Fills a node.
BIG = shape(cpu=4)


def cpu(number: int) -> Resources:
    return Resources({"cpu": number * 1000})


def namespace(name: str, **share: Any) -> Namespace:
    """A namespace whose home is queue `q`, where it has a share."""
    return Namespace(
        name=name, queue="q", shares=(NamespaceShare(queue="q", namespace=name, **share),)
    )


def admitted_of(world: World, number: int, **rest: Any) -> int:
    """Let kube-scheduler ask about so many ordinary pods, and count those admitted."""
    names = [f"{rest.get('namespace', 'a')}-{index}" for index in range(number)]
    return sum(bool(world.ask_single(each, ["n1"], **rest).nodes) for each in names)


def test_ordinary_pods_are_admitted_up_to_the_ceiling_of_their_namespace() -> None:
    world = World(node("n1", cpu=10), Queue(name="q"), namespace("a", limit=cpu(3)), nodes=[])
    world.turn()

    assert admitted_of(world, 6) == 3
    assert admitted_of(world, 6, namespace="c", queue="q") == 6, (
        "others of the queue are not limited"
    )


def test_reservations_count_against_the_share_of_the_namespace() -> None:
    world = World(node("n1", cpu=10), Queue(name="q"), namespace("a", limit=cpu(3)), nodes=[])
    world.turn()

    assert admitted_of(world, 2) == 2
    world.turn()
    assert admitted_of(world, 6) == 3, "the two admitted before are admitted again, and one more"


def test_gangs_are_admitted_up_to_the_ceiling_of_their_namespace() -> None:
    world = World(
        node("n1", cpu=10),
        Queue(name="q"),
        namespace("a", limit=cpu(3)),
        pod_group("one", 2),
        pod_group("two", 2),
        nodes=[],
    )
    world.turn()

    assert world.ask("p0", "one", ["n1"]).nodes
    assert not world.ask("r0", "two", ["n1"]).nodes


def test_no_pod_is_admitted_into_the_guarantee_of_another_namespace() -> None:
    world = World(
        node("n1", cpu=10), Queue(name="q"), Queue(name="other"), namespace("b", guarantee=cpu(4)),
        nodes=[],
    )  # fmt: skip
    world.turn()

    assert (
        admitted_of(world, 5, queue="q") + admitted_of(world, 5, namespace="c", queue="other") == 6
    )
    assert admitted_of(world, 5, namespace="b") == 4


def test_filter_and_plan_do_not_use_the_same_remainder_of_a_share() -> None:
    world = World(
        Queue(name="q"),
        namespace("a", limit=cpu(4)),
        pod_group("train", 1),
        pod_group("quick", 1),
    )
    world.turn()
    world.see(seen("p0", shape=BIG))

    world.turn(meanwhile=lambda: world.ask("q0", "quick", ["n2"], shape=BIG))

    assert world.places() == {}
    assert world.cycle.is_due(), "the refused gang is planned again"


def test_an_exempt_pod_counts_in_the_share_of_its_namespace() -> None:
    world = World(node("n1", cpu=10), Queue(name="q"), namespace("a", limit=cpu(3)), nodes=[])
    world.turn()

    assert world.ask_single("vital", ["n1"], priority_class="system-node-critical").nodes
    assert admitted_of(world, 6) == 2


def test_no_pod_is_admitted_by_a_plan_older_than_the_share() -> None:
    home = Namespace(name="a", queue="q")
    world = World(node("n1", cpu=10), Queue(name="q"), home, pod_group("one", 2), nodes=[])
    world.turn()
    world.see(namespace("a", limit=cpu(1)))

    assert admitted_of(world, 3) == 0
    assert not world.ask("p0", "one", ["n1"]).nodes
    world.turn()
    assert admitted_of(world, 3) == 1


def test_no_reservation_is_made_by_a_plan_older_than_the_share() -> None:
    home = Namespace(name="a", queue="q")
    world = World(Queue(name="q"), home, pod_group("train", 1), seen("p0", shape=BIG))

    world.turn(meanwhile=lambda: world.see(namespace("a", limit=cpu(3))))

    assert world.places() == {}


def test_a_lowered_share_applies_at_once() -> None:
    world = World(node("n1", cpu=10), Queue(name="q"), namespace("a", limit=cpu(5)), nodes=[])
    world.turn()
    world.see(namespace("a", limit=cpu(2)))

    assert admitted_of(world, 4) == 2

"""The memory of offered nodes is bounded, by shape and by number."""

from __future__ import annotations

from extender.hooks.gate import MOST_NODES, MOST_SHAPES, RECENT_S, RecentOffers
from extender.model.pod import Shape


def exists(name: str) -> bool:
    return not name.startswith("no node")


def test_an_unknown_node_is_returned_once_and_not_remembered() -> None:
    offers, shape = RecentOffers(lambda: 0.0, exists), Shape()

    assert set(offers.add(shape, ["no node", "n1"])) == {"no node", "n1"}
    assert set(offers.add(shape, ["n1"])) == {"n1"}


def test_offers_are_not_shared_between_shapes() -> None:
    offers = RecentOffers(lambda: 0.0, exists)
    offers.add(Shape(), ["n1"])

    assert set(offers.add(Shape(), ["n2"])) == {"n2"}


def test_with_too_many_nodes_only_the_offered_ones_are_returned() -> None:
    offers, shape = RecentOffers(lambda: 0.0, exists), Shape()
    first = [f"n{number}" for number in range(MOST_NODES)]
    assert set(offers.add(shape, first)) == set(first)

    assert list(offers.add(shape, ["more"])) == ["more"]
    assert list(offers.add(shape, ["n7"])) == ["n7"]


def test_the_number_of_remembered_shapes_is_bounded() -> None:
    offers, first = RecentOffers(lambda: 0.0, exists), Shape()
    offers.add(first, ["n1"])
    for _ in range(MOST_SHAPES):
        offers.add(Shape(), ["n1"])

    assert set(offers.add(first, ["n2"])) == {"n2"}


def test_a_node_is_remembered_for_a_minute_or_two_after_it_was_offered_last() -> None:
    now = 0.0
    offers, shape = RecentOffers(lambda: now, exists), Shape()
    offers.add(shape, ["n1", "n2"])
    now += RECENT_S + 1
    assert set(offers.add(shape, ["n2"])) == {"n1", "n2"}

    now += RECENT_S + 1
    assert set(offers.add(shape, ["n2"])) == {"n2"}
    now += 10 * RECENT_S
    assert set(offers.add(shape, ["n1"])) == {"n1"}

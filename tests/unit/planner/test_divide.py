"""Dividing one resource among queues, by example; the properties are in test_fairness."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.planner.plugins.proportion import Bounds, divide
from tests.strategies import bounds

capacities = st.integers(0, 500)


@given(capacities, bounds(), st.randoms(use_true_random=False))
def test_the_order_of_the_queues_does_not_matter(capacity, wanted, chance) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(wanted)
    chance.shuffle(shuffled)

    assert divide(capacity, shuffled) == divide(capacity, wanted)


def test_what_one_cannot_use_is_split_by_weight_among_the_others() -> None:
    wanted = [Bounds("small", 1, 0, 10), Bounds("one", 1, 0, 100), Bounds("two", 2, 0, 100)]

    assert divide(100, wanted) == {"small": 10, "one": 30, "two": 60}


def test_a_floor_is_kept_even_if_others_get_less_for_it() -> None:
    wanted = [Bounds("guaranteed", 1, 60, 100), Bounds("one", 1, 0, 100), Bounds("two", 1, 0, 100)]

    assert divide(100, wanted) == {"guaranteed": 60, "one": 20, "two": 20}


def test_units_that_do_not_divide_go_to_the_largest_remainder_then_by_name() -> None:
    assert divide(10, [Bounds(name, 1, 0, 10) for name in "abc"]) == {"a": 4, "b": 3, "c": 3}


def test_a_queue_without_weight_gets_its_floor_and_no_more() -> None:
    assert divide(100, [Bounds("zero", 0, 5, 50), Bounds("one", 1, 0, 50)]) == {
        "zero": 5,
        "one": 50,
    }

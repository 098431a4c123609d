"""Vectors of resources: sparse, exact, frozen."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from extender.errors import InvalidQuantity
from extender.model.resources import NOTHING, Resources

NAMES = ("cpu", "memory", "pods", "nvidia.com/gpu", "hugepages-2Mi")
vectors = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 50)).map(Resources)


def test_a_resource_list_is_read_in_the_units_of_each_resource() -> None:
    read = Resources.parse(
        {"cpu": "1.5", "memory": "1Gi", "nvidia.com/gpu": 2, "hugepages-2Mi": "4Mi"}
    )

    assert dict(read) == {
        "cpu": 1500,
        "memory": 2**30,
        "nvidia.com/gpu": 2,
        "hugepages-2Mi": 2**22,
    }


def test_a_resource_list_is_written_as_it_was_read() -> None:
    written = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"}

    assert Resources.parse(written).write() == written


def test_a_bad_amount_is_refused() -> None:
    with pytest.raises(InvalidQuantity):
        Resources.parse({"cpu": "1.5.3"})


@given(vectors, vectors)
def test_addition_can_be_undone_by_subtraction(one: Resources, other: Resources) -> None:
    rest = one + other - other

    assert all(rest.amount(name) == one.amount(name) for name in NAMES)


@given(vectors, vectors)
def test_order_of_addition_does_not_matter(one: Resources, other: Resources) -> None:
    assert one + other == other + one
    assert hash(one + other) == hash(other + one)


@given(vectors, vectors)
def test_resources_fit_when_no_amount_is_larger(one: Resources, room: Resources) -> None:
    assert one.fits_in(room) == all(one.amount(name) <= room.amount(name) for name in NAMES)


@given(vectors, vectors)
def test_beyond_is_the_part_that_does_not_fit(one: Resources, other: Resources) -> None:
    beyond = one.beyond(other)

    assert all(
        beyond.amount(name) == max(0, one.amount(name) - other.amount(name)) for name in NAMES
    )


def test_a_ceiling_lowers_only_what_it_names() -> None:
    ceiling = Resources({"cpu": 2})

    assert Resources({"cpu": 5, "memory": 7}).at_most(ceiling) == Resources({"cpu": 2, "memory": 7})


def test_a_floor_raises_what_is_lower_or_missing() -> None:
    floor = Resources({"cpu": 2, "memory": 3})

    assert Resources({"cpu": 5}).at_least(floor) == Resources({"cpu": 5, "memory": 3})


def test_nothing_times_anything_is_nothing() -> None:
    assert NOTHING * 3 == NOTHING
    assert Resources({"cpu": 2}) * 3 == Resources({"cpu": 6})


def test_adding_in_place_keeps_existing_amounts() -> None:
    total = {"cpu": 1}
    Resources({"cpu": 2, "memory": 3}).add_to(total)

    assert total == {"cpu": 3, "memory": 3}


def test_zero_and_negative_amounts_can_be_dropped() -> None:
    assert Resources({"cpu": 0, "memory": -1, "pods": 2}).positive() == Resources({"pods": 2})

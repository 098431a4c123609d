"""Quantities as Kubernetes writes them, and vectors of resources: sparse, exact, frozen."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from extender.errors import InvalidQuantity
from extender.model.resources import (
    LARGEST,
    Resources,
    parse_milli,
    parse_quantity,
    parse_whole,
    write_bytes,
    write_milli,
)

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


def test_a_ceiling_lowers_only_what_it_names() -> None:
    ceiling = Resources({"cpu": 2})

    assert Resources({"cpu": 5, "memory": 7}).at_most(ceiling) == Resources({"cpu": 2, "memory": 7})


def test_a_floor_raises_what_is_lower_or_missing() -> None:
    floor = Resources({"cpu": 2, "memory": 3})

    assert Resources({"cpu": 5}).at_least(floor) == Resources({"cpu": 5, "memory": 3})


def test_zero_and_negative_amounts_can_be_dropped() -> None:
    assert Resources({"cpu": 0, "memory": -1, "pods": 2}).positive() == Resources({"pods": 2})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("12", 12),
        ("+3", 3),
        ("-3", -3),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("500m", Fraction(1, 2)),
        ("250u", Fraction(1, 4000)),
        ("7n", Fraction(7, 10**9)),
        ("2k", 2000),
        ("3M", 3 * 10**6),
        ("4G", 4 * 10**9),
        ("5T", 5 * 10**12),
        ("6P", 6 * 10**15),
        ("7E", 7 * 10**18),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("1Mi", 2**20),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E-1", Fraction(6, 5)),
        ("1e+2", 100),
        (2, 2),
        (0.1, Fraction(1, 10)),
        (1e-05, Fraction(1, 100_000)),
    ],
)
def test_every_quantity_format_of_kubernetes_is_read_exactly(
    text: str | float, value: Fraction
) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", " ", " 1", "1 ", "1.5.3Gi", "1Kib", "1KI", "1ki", "1g", "Gi", ".", "-", "1e", "1e3Gi",
        "1,5", "1_000", "0x10", "\u0663", "nan", "inf", "1e9999", "9" * 100, True, None,
    ],
)  # fmt: skip
def test_any_other_quantity_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(InvalidQuantity) as caught:
        parse_quantity(text)

    assert repr(text) in str(caught.value)


def test_fractions_of_the_unit_round_up_as_in_the_api_server() -> None:
    assert parse_whole("100m") == 1
    assert parse_milli("1n") == 1
    assert parse_milli("0.0005") == 1


def test_huge_amounts_are_capped() -> None:
    assert parse_whole("1E") == LARGEST
    assert parse_milli("-9E") == -LARGEST


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (1500, "1500m"), (2000, "2"), (1, "1m"), (-500, "-500m")]
)
def test_milli_amounts_are_written_as_kubectl_writes_them(amount: int, text: str) -> None:
    assert write_milli(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (1000, "1000"), (1024, "1Ki"), (3 * 2**29, "1536Mi"), (2**40, "1Ti"), (7, "7")],
)
def test_bytes_are_written_with_the_largest_suffix_that_fits(amount: int, text: str) -> None:
    assert write_bytes(amount) == text


@given(st.integers(0, LARGEST))
def test_written_quantities_are_read_back_unchanged(amount: int) -> None:
    assert parse_whole(write_bytes(amount)) == amount
    assert parse_milli(write_milli(amount)) == amount

"""Role minima of a PodGroup."""

from __future__ import annotations

import pytest

from extender.model.gang import PodGroup


@pytest.mark.parametrize(
    ("least", "by_role", "counts"),
    [
        (3, {"master": 1, "worker": 2}, {"master": 1, "worker": 2}),
        (4, {"master": 1, "worker": 2}, {"master": 1, "worker": 2}),
        (2, {"master": 1, "worker": 2}, {}),
        (2, {"master": 0, "worker": 2}, {"worker": 2}),
        (2, {}, {}),
    ],
    ids=["as many", "fewer", "more", "a role without a minimum", "no roles"],
)
def test_role_minima_count_unless_they_exceed_the_minimum_of_the_gang(
    least: int, by_role: dict[str, int], counts: dict[str, int]
) -> None:
    group = PodGroup(namespace="a", name="train", min_member=least, min_by_role=by_role)

    assert group.role_minima == counts

"""What is left of all queues at once is what is left of each."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.model.resources import NOTHING, Resources
from extender.planner.quota import QueueLimits, left_of_all, tree

AMOUNTS = st.one_of(st.just(NOTHING), st.integers(0, 20).map(lambda n: Resources({"cpu": n})))


@st.composite
def families(draw: st.DrawFn) -> list[QueueLimits]:
    """Queues below each other or below none; a circle is possible too."""
    names = [f"q{number}" for number in range(draw(st.integers(1, 8)))]
    parent = st.sampled_from([*names, "nobody"])
    return [
        QueueLimits(name, draw(parent), draw(AMOUNTS), draw(AMOUNTS), draw(AMOUNTS))
        for name in names
    ]


@given(families())
def test_left_of_all_at_once_is_left_of_each(stakes: list[QueueLimits]) -> None:
    quotas = tree(stakes, Resources({"cpu": 30})).values()

    assert left_of_all(quotas, "cpu") == {each: each.left("cpu") for each in quotas}

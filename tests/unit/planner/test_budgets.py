"""Budgets are found by labels: the same as by a check of each, with less work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, strategies as st

from extender.durations import Backoff
from extender.evictions.backoff import EvictionBackoff
from extender.evictions.checks import find, objections
from extender.model.budgets import MOST_BUDGETS, MOST_WORDS, BudgetIndex, selects
from extender.model.pod import PodUid, Requirement
from extender.model.snapshot import DisruptionBudget
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests import scene
from tests.builders import gang, node, pod, shape, snapshot
from tests.steps import steps

VOLCANO = policy_parser.parse(
    "compatibility: volcano\ntiers: [{plugins: [{name: gang}, {name: pdb}]}]"
)
KEYS, VALUES = ("app", "tier", "3"), ("a", "b", "7")
requirements = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from(["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Nonsense"]),
    st.lists(st.sampled_from(VALUES), max_size=3).map(tuple),
)
budgets = st.lists(
    st.builds(
        DisruptionBudget,
        namespace=st.sampled_from(["a", "b"]),
        name=st.just("x"),
        selector=st.lists(requirements, max_size=3).map(tuple),
        allowed=st.integers(0, 3),
        disrupted=st.sampled_from([frozenset(), frozenset({"p"})]),
    ),
    max_size=6,
)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@given(budgets, labels)
def test_the_index_finds_the_same_budgets_as_a_check_of_every_budget(some, marks) -> None:  # type: ignore[no-untyped-def]
    mine = replace(pod("p", shape()), namespace="a", labels=marks)
    index = BudgetIndex(some)
    plain = [
        number
        for number, each in enumerate(some)
        if each.namespace == "a" and selects(each.selector, marks)
    ]

    assert list(index.selecting(mine)) == plain
    assert index.selecting(mine) == index.selecting(mine), "and again from memory"
    assert index.covering(mine) == [each for each in plain if "p" not in some[each].disrupted]


def one_each(count: int, allowed: int = 0) -> list[DisruptionBudget]:
    return [
        DisruptionBudget(
            namespace="a",
            name=f"b{number}",
            selector=(Requirement("app", "In", ("x",)), Requirement("i", "In", (str(number),))),
            allowed=allowed,
        )
        for number in range(count)
    ]


def planned(
    count: int, policy: Policy = policy_parser.DEFAULT, allowed: int = 0
) -> Callable[[], object]:
    """Plan one gang of high priority beside *count* running ones, each with its own budget."""
    running = [
        gang(f"a/g{n:04}", 1, on=["n"], cpu=0.01, each={"labels": {"app": "x", "i": str(n)}})
        for n in range(count)
    ]
    wanted = gang("b/urgent", 1, cpu=4, priority=9)
    before = snapshot(
        [node("n", cpu=4, pods=9999)], [*running, wanted], budgets=one_each(count, allowed)
    )
    return lambda: make_plan(before, policy)


def test_twice_the_gangs_with_a_budget_each_are_twice_the_work() -> None:
    for policy in (policy_parser.DEFAULT, VOLCANO):
        few, many = (steps(planned(count, policy)) for count in (100, 200))

        assert many < 2.5 * few


def test_evictions_are_checked_without_a_look_at_every_budget() -> None:
    def work(count: int) -> int:
        members = [pod(f"old-{n}", on="n0", labels={"app": "x", "i": str(n)}) for n in range(count)]
        old = scene.gang("old", members)
        seen = scene.snapshot(old, budgets=one_each(count, allowed=1))
        victims = find(scene.evictions(old), seen)
        leaving = {PodUid(each.uid) for each in members}
        return steps(lambda: objections(victims, seen, leaving))

    assert work(200) < 2.5 * work(100)


def test_protected_pods_are_found_without_a_look_at_every_budget_that_refused() -> None:
    def work(count: int) -> int:
        members = [pod(f"old-{n}", on="n0", labels={"app": "x", "i": str(n)}) for n in range(count)]
        each = one_each(count)
        seen = scene.snapshot(scene.gang("old", members), budgets=each)
        backoff = EvictionBackoff()
        for one in each:
            backoff.forbid(one, "no", Backoff(600, 600), 0.0)
        protected = backoff.protected(seen, {}.get, 1.0)
        assert len(protected) == count

        def look() -> None:
            backoff.protected(seen, {}.get, 1.0)
            for one in members:
                assert backoff.protects(one, 1.0)

        return steps(look)

    assert work(200) < 2.5 * work(100)


def test_a_pod_that_too_many_budgets_may_cover_stays_and_the_namespace_is_named() -> None:
    too_many = [
        DisruptionBudget(
            namespace="a", name=f"b{n}", selector=(Requirement("k", "Exists"),), allowed=9
        )
        for n in range(MOST_BUDGETS + 1)
    ]
    low, high = gang("a/low", 1, on=["n"], cpu=4), gang("a/high", 1, cpu=4, priority=9)

    few, many = (
        make_plan(snapshot([node("n", cpu=4)], [low, high], budgets=some))
        for some in (too_many[1:], too_many)
    )

    assert [each.name for each in few.evictions] == ["low-0"]
    assert many.evictions == ()
    assert "one of too many PodDisruptionBudgets in namespace a" in many.verdicts[high.key].message


def test_a_budget_with_too_many_values_is_not_read_and_allows_no_disruption() -> None:
    long = Requirement("k", "NotIn", tuple(map(str, range(MOST_WORDS))))
    index = BudgetIndex([DisruptionBudget(namespace="a", name="b", selector=(long,), allowed=9)])
    (found,) = index.selecting(pod("p", shape()))

    assert index.is_too_many(found)
    assert index[found].allowed == 0

"""Capacity that kube-scheduler freed for an ordinary pod goes to that pod."""

from __future__ import annotations

import pytest

from extender.model.gang import Gang, GangKey
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import gang, nodes, single, snapshot

VOLCANO = policy_parser.parse(f"{policy_parser.DEFAULT_TEXT}\ncompatibility: volcano\n")
#: Of higher priority than all waiting pods: only the free slot counts here.
RUNS = gang("a/runs", 3, on=["n1"] * 3, cpu=1, priority=100)


def alone(name: str, created: float = 5.0, *, nominated: str = "", priority: int = 9) -> Gang:
    each = {"nominated": nominated}
    return single(f"a/{name}", cpu=1, priority=priority, created=created, each=each)


def admitted(*waiting: Gang, policy: Policy = policy_parser.DEFAULT) -> list[str]:
    """Return which pod gets the one free slot."""
    plan = make_plan(snapshot(nodes(1), [RUNS, *waiting]), policy)
    return [key for key, placement in plan.placements.items() if placement.placements]


@pytest.mark.parametrize("created", [5.0, 7.0])
def test_of_equal_pods_the_nominated_one_goes_first_though_it_is_younger(created: float) -> None:
    others = [alone("one"), alone("two")]

    assert admitted(*others, alone("z", created, nominated="n1")) == ["a/z"]


def test_a_pod_of_higher_priority_still_goes_before_the_nominated_one() -> None:
    assert admitted(alone("a", priority=10), alone("z", nominated="n1")) == ["a/a"]


def test_a_nominated_member_of_a_gang_does_not_go_first() -> None:
    written = gang(
        "a/z", 1, cpu=1, created=7.0, priority=9, each={"nominated": "n1", "priority": 9}
    )

    assert admitted(alone("one"), written) == ["a/one"]


def test_with_the_rules_of_volcano_a_nominated_pod_does_not_go_first() -> None:
    assert admitted(alone("one"), alone("z", 7.0, nominated="n1"), policy=VOLCANO) == ["a/one"]


def test_a_pod_behind_the_nominated_one_is_told_so() -> None:
    full = gang("a/runs", 4, on=["n1"] * 4, cpu=1, priority=100)
    state = snapshot(nodes(1), [full, alone("one"), alone("z", 7.0, nominated="n1")])

    told = explain(state, make_plan(state), policy_parser.DEFAULT, GangKey("a/one"))

    assert told is not None
    assert [(each.gang, each.why) for each in told.ahead] == [
        ("a/z", "kube-scheduler freed capacity for it")
    ]

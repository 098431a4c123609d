"""Room that kube-scheduler made for an ordinary pod is that pod's: it offers it to nobody else."""

from __future__ import annotations

import pytest

from extender.model.gang import Gang, GangKey
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import gang, nodes, single, snapshot

VOLCANO = policy_parser.parse(f"{policy_parser.DEFAULT_TEXT}\ncompatibility: volcano\n")
#: More important than all who wait: only the free place counts here.
RUNS = gang("a/runs", 3, on=["n1"] * 3, cpu=1, priority=100)


def alone(name: str, created: float = 5.0, *, nominated: str = "", priority: int = 9) -> Gang:
    each = {"nominated": nominated}
    return single(f"a/{name}", cpu=1, priority=priority, created=created, each=each)


def admitted(*waiting: Gang, policy: Policy = policy_parser.DEFAULT) -> list[str]:
    """Say who gets the one place that is free."""
    plan = make_plan(snapshot(nodes(1), [RUNS, *waiting]), policy)
    return [key for key, ticket in plan.placements.items() if ticket.placements]


@pytest.mark.parametrize("created", [5.0, 7.0])
def test_of_equals_it_goes_first_though_it_is_younger(created: float) -> None:
    others = [alone("one"), alone("two")]

    assert admitted(*others, alone("z", created, nominated="n1")) == ["a/z"]


def test_who_is_more_important_still_goes_before_it() -> None:
    assert admitted(alone("a", priority=10), alone("z", nominated="n1")) == ["a/a"]


def test_a_member_of_a_gang_has_no_rank_by_it() -> None:
    written = gang(
        "a/z", 1, cpu=1, created=7.0, priority=9, each={"nominated": "n1", "priority": 9}
    )

    assert admitted(alone("one"), written) == ["a/one"]


def test_volcano_knows_no_such_rank() -> None:
    assert admitted(alone("one"), alone("z", 7.0, nominated="n1"), policy=VOLCANO) == ["a/one"]


def test_who_waits_behind_it_is_told_so() -> None:
    full = gang("a/runs", 4, on=["n1"] * 4, cpu=1, priority=100)
    state = snapshot(nodes(1), [full, alone("one"), alone("z", 7.0, nominated="n1")])

    told = explain(state, make_plan(state), policy_parser.DEFAULT, GangKey("a/one"))

    assert told is not None
    assert [(each.gang, each.why) for each in told.ahead] == [
        ("a/z", "kube-scheduler freed capacity for it")
    ]

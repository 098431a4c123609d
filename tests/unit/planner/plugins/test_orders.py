"""gang, priority and drf: minima, the order of gangs, and the victims they allow."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.gang import Gang, GangKey, PodGroup
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.planner import policy_parser
from extender.planner.plan import GangStatus, Plan
from extender.planner.planner import make_plan
from tests.builders import gang, nodes, pod, shape, snapshot
from tests.unit.planner.plans import evicted, started


def decide(
    members: list[Gang], plugins: str, cpu: float = 4, actions: str = "allocate, preempt"
) -> Plan:
    text = f"actions: '{actions}'\ntiers: [{{plugins: [{plugins}]}}]"
    return make_plan(snapshot(nodes(1, cpu=cpu), members), policy_parser.parse(text))


def test_priority_comes_before_age() -> None:
    old = gang("a/old", 3, cpu=1)
    important = gang("a/important", 3, cpu=1, priority=9, created=9.0)
    plan = decide([old, important], "{name: priority}, {name: gang}")

    assert (started(plan, "a/old"), started(plan, "a/important")) == (0, 3)


def test_the_smaller_dominant_share_goes_first() -> None:
    rich = gang("a/rich", 3, min_member=1, cpu=1, on=["n1", "n1"])
    poor = gang("a/poor", 1, cpu=1, created=9.0)
    plan = decide([rich, poor], "{name: gang}, {name: drf}", cpu=3)

    assert started(plan, "a/poor") == 1
    assert started(plan, "a/rich") == 0


def test_an_order_that_is_switched_off_is_not_used() -> None:
    rich = gang("a/rich", 3, min_member=1, cpu=1, on=["n1", "n1"])
    poor = gang("a/poor", 1, cpu=1, created=9.0)
    quiet = "{name: gang, enableJobOrder: false}, {name: drf, enableJobOrder: false}"

    assert started(decide([rich, poor], quiet, cpu=3, actions="allocate"), "a/rich") == 1


def test_only_gangs_of_lower_priority_are_evicted() -> None:
    same = gang("a/same", 2, min_member=1, cpu=1, priority=5, on=["n1", "n1"])
    new = gang("a/new", 1, cpu=1, priority=5, created=9.0)
    more = gang("a/more", 1, cpu=1, priority=6, created=9.0)

    assert evicted(decide([same, new], "{name: priority}, {name: gang}", cpu=2)) == []
    assert len(evicted(decide([same, more], "{name: priority}, {name: gang}", cpu=2))) == 1


def test_by_share_no_pod_is_evicted_for_a_gang_that_would_then_use_more() -> None:
    two = gang("a/two", 2, min_member=0, cpu=1, on=["n1", "n1"])
    one = gang("a/one", 1, cpu=1, created=9.0)
    large = gang("a/large", 1, cpu=2, created=9.0)

    assert len(evicted(decide([two, one], "{name: drf}, {name: gang}", cpu=2))) == 1
    assert evicted(decide([two, large], "{name: drf}, {name: gang}", cpu=2)) == []


def test_of_one_gang_the_members_of_highest_priority_go_first() -> None:
    kind = shape(cpu=1)
    members = [pod(f"m{n}", kind, priority=n) for n in range(3)]
    plan = decide(
        [gang("a/job", min_member=1, pods=members)], "{name: priority}, {name: gang}", cpu=1
    )

    assert list(plan.placements[GangKey("a/job")].placements) == [members[2].uid]


def verdict(plan: Plan, key: str = "a/train") -> tuple[GangStatus, Reason]:
    found = plan.verdicts[GangKey(key)]
    return found.status, found.reason


def with_roles(minimums: dict[str, int], min_member: int, **sizes: int) -> Gang:
    kinds: dict[str, Any] = {"ps": shape(cpu=1), "worker": shape(cpu=2)}
    pods = [
        pod(f"train-{role}-{number}", kinds[role], role=role)
        for role, size in sizes.items()
        for number in range(size)
    ]
    return gang("a/train", pods=pods, min_member=min_member, group={"min_by_role": minimums})


def test_a_gang_that_fits_whole_starts_whole() -> None:
    plan = make_plan(snapshot(nodes(2, cpu=2), [gang("a/train", 4, cpu=1)]))

    assert verdict(plan) == (GangStatus.ADMITTED, Reason.ADMITTED)
    assert len(plan.placements[GangKey("a/train")].placements) == 4


def test_a_gang_that_does_not_fit_whole_takes_nothing_from_others() -> None:
    before = snapshot(nodes(2, cpu=2), [gang("a/big", 5, cpu=1), gang("a/small", 4, cpu=1)])
    plan = make_plan(before)

    assert list(plan.placements) == ["a/small"]


def test_members_with_a_waiting_bind_count() -> None:
    waiting = [
        pod(f"train-{number}", shape(cpu=1), on="n1", status=Status.ALLOCATED)
        for number in range(2)
    ]
    plan = make_plan(
        snapshot(nodes(2), [gang("a/train", pods=[*waiting, pod("x-y-9", shape(cpu=1))])])
    )

    assert verdict(plan) == (GangStatus.ADMITTED, Reason.ADMITTED)
    assert len(plan.placements[GangKey("a/train")].placements) == 1


def test_every_role_must_reach_its_own_minimum() -> None:
    enough_for_workers = snapshot(
        nodes(2, cpu=4), [with_roles({"ps": 1, "worker": 2}, 3, ps=1, worker=4)]
    )
    plan = make_plan(enough_for_workers)

    placed = plan.placements[GangKey("a/train")].placements
    assert sum("ps" in uid for uid in placed) == 1
    assert len(placed) >= 3


def test_roles_that_ask_for_more_than_the_gang_needs_are_not_counted() -> None:
    plan = make_plan(snapshot(nodes(1, cpu=4), [with_roles({"ps": 2, "worker": 2}, 2, worker=2)]))

    assert verdict(plan) == (GangStatus.ADMITTED, Reason.ADMITTED)


def test_surplus_members_of_several_gangs_take_turns() -> None:
    gangs = [gang(f"a/{name}", 4, min_member=1, cpu=1) for name in ("one", "two")]
    plan = make_plan(snapshot(nodes(1, cpu=6), gangs))

    assert [len(placement.placements) for placement in plan.placements.values()] == [3, 3]


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

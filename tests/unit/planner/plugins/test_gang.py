"""gang: the minimum, whole or not at all, also by role."""

from __future__ import annotations

from typing import Any

from extender.model.gang import Gang, GangKey
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.planner.plan import GangStatus, Plan
from extender.planner.planner import make_plan
from tests.builders import gang, nodes, pod, shape, snapshot


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


def test_missing_members_are_counted() -> None:
    plan = make_plan(snapshot(nodes(2), [gang("a/train", 2, min_member=3, cpu=1)]))

    assert verdict(plan) == (GangStatus.WAITING, Reason.NOT_ENOUGH_MEMBERS)
    assert plan.verdicts[GangKey("a/train")].message == "has 2 of at least 3 members"


def test_members_with_gates_are_named_as_the_reason() -> None:
    pods = [pod("train-0", shape(cpu=1)), pod("train-1", shape(cpu=1), gated=True)]
    plan = make_plan(snapshot(nodes(2), [gang("a/train", pods=pods)]))

    assert verdict(plan) == (GangStatus.WAITING, Reason.GATED)


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


def test_a_gang_at_its_minimum_runs_even_if_more_members_wait() -> None:
    running = gang("a/train", 5, on=["n1", "n1"], min_member=2, cpu=2)
    plan = make_plan(snapshot(nodes(1, cpu=4), [running]))

    assert verdict(plan) == (GangStatus.RUNNING, Reason.RUNNING)


def test_every_role_must_reach_its_own_minimum() -> None:
    enough_for_workers = snapshot(
        nodes(2, cpu=4), [with_roles({"ps": 1, "worker": 2}, 3, ps=1, worker=4)]
    )
    plan = make_plan(enough_for_workers)

    placed = plan.placements[GangKey("a/train")].placements
    assert sum("ps" in uid for uid in placed) == 1
    assert len(placed) >= 3


def test_a_gang_that_lacks_members_of_a_role_says_which() -> None:
    plan = make_plan(snapshot(nodes(2), [with_roles({"ps": 2, "worker": 1}, 3, ps=1, worker=4)]))

    assert verdict(plan) == (GangStatus.WAITING, Reason.NOT_ENOUGH_ROLES)
    assert "'ps'" in plan.verdicts[GangKey("a/train")].message


def test_roles_that_ask_for_more_than_the_gang_needs_are_not_counted() -> None:
    plan = make_plan(snapshot(nodes(1, cpu=4), [with_roles({"ps": 2, "worker": 2}, 2, worker=2)]))

    assert verdict(plan) == (GangStatus.ADMITTED, Reason.ADMITTED)


def test_surplus_members_of_several_gangs_take_turns() -> None:
    gangs = [gang(f"a/{name}", 4, min_member=1, cpu=1) for name in ("one", "two")]
    plan = make_plan(snapshot(nodes(1, cpu=6), gangs))

    assert [len(placement.placements) for placement in plan.placements.values()] == [3, 3]

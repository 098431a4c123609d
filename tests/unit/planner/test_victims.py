"""Victims: as few as possible, and never part of a gang."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from extender.model.gang import Gang
from extender.model.pod import HostPort, Pod, Status
from extender.model.resources import CPU
from extender.model.snapshot import Snapshot
from extender.planner.planner import make_plan
from extender.planner.victims.make_room import MOST_SEARCHES
from tests.builders import after, amounts, gang, node, nodes, pod, queue, shape, snapshot
from tests.scene import budget
from tests.strategies import examples


def preemption(chance: random.Random) -> Snapshot:
    """A small full cluster, and one waiting gang of high priority."""
    members = [
        node(f"n{number}", cpu=chance.randint(2, 6), memory=chance.choice([4, 8, 16]))
        for number in range(chance.randint(1, 4))
    ]
    free = {each.name: dict(each.allocatable) for each in members}
    gangs = []
    for number in range(chance.randint(2, 5)):
        cpu, memory = chance.choice([0.5, 1, 2]), chance.choice([0, 1, 2])
        size = chance.randint(1, 4)
        places = []
        for _ in range(size):
            fitting = [n for n, capacity in free.items() if _fits(capacity, cpu, memory)]
            if fitting:
                places.append(chance.choice(fitting))
                _take(free[places[-1]], cpu, memory)
        if places:
            minimum = chance.randint(1, len(places))
            about = {
                "min_member": minimum,
                "cpu": cpu,
                "memory": memory,
                "created": float(number),
            }
            gangs.append(gang(f"a/low{number}", len(places), on=places, **about))
    size = chance.randint(1, 3)
    wanted = {"cpu": chance.choice([1, 2, 3]), "memory": chance.choice([0, 1, 4])}
    gangs.append(gang("a/high", size, priority=10, created=9.0, **wanted))
    return snapshot(members, gangs)


def _fits(capacity: dict[str, int], cpu: float, memory: float) -> bool:
    return amounts(cpu=cpu, memory=memory, pods=1).fits_in(amounts() + _resources(capacity))


def _resources(capacity: dict[str, int]):  # type: ignore[no-untyped-def]
    return type(amounts())(capacity)


def _take(capacity: dict[str, int], cpu: float, memory: float) -> None:
    for name, amount in amounts(cpu=cpu, memory=memory, pods=1).items():
        capacity[name] -= amount


def fewest(before: Snapshot) -> int | None:
    """Try every set of victims that evicts no gang in part; return the smallest size that helps."""
    request = next(each for each in before.gangs.values() if each.priority)
    running = [each for each in before.gangs.values() if not each.priority]
    best: int | None = None
    for leaving in product(*(_choices(each) for each in running)):
        count = sum(map(len, leaving))
        if best is not None and count >= best:
            continue
        gone = {uid for part in leaving for uid in part}
        if _slots(before, gone, request) >= request.group.min_member:
            best = count
    return best


def _choices(running: Gang) -> list[tuple[str, ...]]:
    pods = [pod.uid for pod in running.pods]
    spare = len(pods) - running.group.min_member
    subsets = [
        tuple(uid for place, uid in enumerate(pods) if mask >> place & 1)
        for mask in range(2 ** len(pods))
    ]
    return [chosen for chosen in subsets if len(chosen) <= spare or len(chosen) == len(pods)]


def _slots(before: Snapshot, gone: set[str], request: Gang) -> int:
    need = request.pods[0].requests
    free = {each.name: each.allocatable for each in before.nodes.nodes}
    for each in before.gangs.values():
        for member in each.pods:
            if member.node and member.uid not in gone:
                free[member.node] = free[member.node] - member.requests
    return sum(
        max(0, min(capacity.amount(name) // amount for name, amount in need.items() if amount))
        for capacity in free.values()
    )


def test_victims_are_as_few_as_possible_in_nearly_all_cases() -> None:
    chance = random.Random(7)
    over: Counter[int] = Counter()
    cases = examples(400)
    while over.total() < cases:
        before = preemption(chance)
        least = fewest(before)
        if not least:
            continue
        plan = make_plan(before)
        over[len(plan.evictions) - least] += 1

    assert min(over) >= 0, "fewer than possible would mean that a gang was evicted in part"
    assert sum(number for extra, number in over.items() if extra > 1) <= cases / 100


def test_a_gang_that_evictions_can_help_is_helped() -> None:
    chance = random.Random(11)
    for _ in range(examples(150)):
        before = preemption(chance)
        possible = fewest(before) is not None
        plan = make_plan(before)
        helped = bool(plan.placements["a/high"]) if "a/high" in plan.placements else False

        assert helped == possible


def with_roles(key: str, *members: tuple[str, Status], **minima: int) -> Gang:
    """A gang of at least two members on n1, given by role and status."""
    name = key.partition("/")[2]
    pods = [
        pod(f"{name}-{number}", shape(cpu=1), on="n1", role=role, status=status)
        for number, (role, status) in enumerate(members)
    ]
    return gang(key, pods=pods, on=["n1"], min_member=2, group={"min_by_role": minima})


def victims(running: Gang, cpus: int) -> set[str]:
    """Return the victims on a full n1 when a pod of higher priority needs *cpus* of it."""
    vip = gang("a/vip", 1, cpu=cpus, priority=10)
    full = snapshot([node("n1", cpu=len(running.pods))], [running, vip])
    return {each.name for each in make_plan(full).evictions}


RUNS, ALLOCATED = Status.RUNNING, Status.ALLOCATED


def test_the_only_member_of_a_needed_role_is_evicted_with_all_others_or_not_at_all() -> None:
    workers = [("worker", RUNS)] * 3
    train = with_roles("a/train", *workers, ("ps", RUNS), ps=1, worker=1)

    for cpus in (1, 2):
        assert len(victims(train, cpus)) == cpus
        assert "train-3" not in victims(train, cpus)
    assert len(victims(train, 3)) == 4


def test_a_gang_is_not_evicted_in_part_while_one_member_is_only_bound() -> None:
    pods = [
        pod("low-0", shape(cpu=1), on="n1", status=Status.BOUND),
        pod("low-1", shape(cpu=1), on="n1"),
    ]
    low = gang("a/low", pods=pods, on=["n1"], queue="q1")
    high = gang("a/high", 1, cpu=1, queue="q2")
    plan = make_plan(snapshot([node("n1", cpu=2)], [low, high], [queue("q1"), queue("q2")]))

    assert plan.evictions == ()


def test_a_gang_that_could_start_again_within_its_queues_deserved_share_is_not_evicted() -> None:
    wide = gang("a/wide", 3, min_member=2, on=["n1"] * 3, cpu=1, queue="q1")
    large = gang("a/large", 1, cpu=2, queue="q2")
    members = [node("n1", cpu=3), node("n2", cpu=1)]
    plan = make_plan(snapshot(members, [wide, large], [queue("q1"), queue("q2")]))

    assert plan.evictions == ()


def test_an_allocated_member_does_not_replace_the_only_running_one_of_a_role() -> None:
    """The allocation may expire, and then the role would have no member."""
    train = with_roles(
        "a/train", ("ps", ALLOCATED), ("worker", RUNS), ("worker", RUNS), ("ps", RUNS), ps=1
    )

    assert victims(train, 1) == {"train-2"}


def test_gangs_that_may_not_be_evicted_do_not_hide_the_one_that_may() -> None:
    """Only some of one queue and priority are considered; they must be evictable."""
    names = [f"n{number}" for number in range(40)]
    old = [
        gang(
            f"a/old{number}", 1, on=[name], cpu=4, created=float(number),
            each={"preemptable": number == 0},
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    vip = gang("a/vip", 1, cpu=4, priority=10, created=99.0)
    full = snapshot([node(name) for name in names], [*old, vip])

    assert [each.name for each in make_plan(full).evictions] == ["old0-0"]

    protected = {member.uid: "it may not" for each in old[1:] for member in each.pods}
    preemptable = [replace(each, pods=(replace(each.pods[0], preemptable=True),)) for each in old]
    full = snapshot([node(name) for name in names], [*preemptable, vip], protected=protected)
    assert [each.name for each in make_plan(full).evictions] == ["old0-0"]


@pytest.mark.parametrize("allowed", [0, 1])
def test_gangs_that_a_budget_protects_do_not_hide_the_one_that_may_be_evicted(allowed: int) -> None:
    names = [f"n{number}" for number in range(40)]
    old = [
        gang(
            f"a/old{number}", 2, on=[name, name], cpu=2, created=float(number),
            each={"labels": {"app": f"db{number}" if number else "free"}},
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    budgets = [
        replace(budget(f"db{number}", allowed, app=f"db{number}"), namespace="a")
        for number in range(1, 40)
    ]
    vip = gang("a/vip", 1, cpu=4, priority=10, created=99.0)
    full = snapshot([node(name) for name in names], [*old, vip], budgets=budgets)

    assert {each.name for each in make_plan(full).evictions} == {"old0-0", "old0-1"}


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_gangs_elsewhere_do_not_hide_the_one_whose_node_is_needed(action: str) -> None:
    """Evicting them would free nothing that the gang can use."""
    theirs, ours = ("q1", "q2") if action == "reclaim" else ("q", "q")
    names = [f"m{number}" for number in range(40)]
    large = [
        gang(f"b/{name}", 1, on=[name], queue=theirs, cpu=8, created=float(number))
        for number, name in enumerate(names)
    ]
    old = gang("b/old", 1, on=["n1"], queue=theirs, cpu=4)
    zone = (("zone", "z"),)
    mine = gang("a/mine", 1, queue=ours, cpu=4, priority=9, created=99.0, selector=zone)
    members = [node("n1", labels=dict(zone)), *(node(name, cpu=8) for name in names)]
    full = snapshot(members, [*large, old, mine], [queue(name) for name in {theirs, ours}])

    leaving = [(each.action, each.name) for each in make_plan(full).evictions]
    assert leaving == [(action, "old-0")]


# ── gangs with placements of the same plan ──────────────────────────────────────────────────


def low_gang_with(*others: Pod, min_member: int = 1, running: int = 7, **rest: Any) -> Gang:
    """A gang of low priority that fills n1 and most of n2, with *others* as further members."""
    names = ["n1"] * 4 + ["n2"] * (running - 4)
    low = gang("a/low", running, on=names, min_member=min_member, cpu=1, created=1.0, **rest)
    return replace(low, pods=tuple(sorted([*low.pods, *others], key=lambda each: each.uid)))


TERMINATES = pod("low-8", shape(cpu=1), on="n2", status=Status.RELEASING, leaves_by=3_700.0)
WAITS = pod("low-9", shape(cpu=1))


@pytest.mark.parametrize("min_member", [1, 7])
@pytest.mark.parametrize("ours", ["q1", "q2"])
def test_a_member_that_waits_for_released_capacity_prevents_no_eviction(
    ours: str, min_member: int
) -> None:
    low = low_gang_with(TERMINATES, WAITS, min_member=min_member, queue="q1")
    high = gang("b/high", 4, cpu=1, priority=10, queue=ours, created=5.0)
    plan = make_plan(snapshot(nodes(2, cpu=4), [low, high], [queue("q1"), queue("q2")]))

    assert len(plan.evictions) in {1: (3, 4), 7: (7,)}[min_member]
    assert list(plan.placements) == ["b/high"], "nothing is placed where pods are evicted"


def test_in_the_end_the_gang_of_higher_priority_runs() -> None:
    low = low_gang_with(TERMINATES, WAITS)
    high = gang("b/high", 4, cpu=1, priority=10, created=5.0)
    state = snapshot(nodes(2, cpu=4), [low, high])
    left = 0
    for _ in range(5):
        plan = make_plan(state)
        left += len(plan.evictions)
        state = after(state, plan)

    assert all(each.node for each in state.gangs[high.key].pods)
    assert plan.evictions == ()
    assert left <= 4


@pytest.mark.parametrize("min_member", [1, 8])
def test_a_member_without_requests_prevents_no_eviction(min_member: int) -> None:
    empty = pod("low-9", shape(host_ports=(HostPort(80),)))
    low = low_gang_with(empty, running=8, min_member=min_member, queue="q1")
    high = gang("b/high", 4, cpu=1, queue="q2", created=5.0)
    plan = make_plan(snapshot(nodes(2, cpu=4), [low, high], [queue("q1"), queue("q2")]))

    assert len(plan.evictions) == {1: 4, 8: 8}[min_member]
    assert list(plan.placements) == ["b/high"]


def test_a_gang_that_reaches_its_minimum_in_the_same_plan_is_not_evicted() -> None:
    low = low_gang_with(TERMINATES, WAITS, min_member=8)
    high = gang("b/high", 4, cpu=1, priority=10, created=5.0)
    plan = make_plan(snapshot(nodes(2, cpu=4), [low, high]))

    assert plan.evictions == ()
    assert list(plan.placements) == ["a/low"]


def test_a_placement_of_the_same_plan_does_not_evict_members_within_the_deserved_share() -> None:
    """Only with the member that starts now is its queue above its deserved share."""
    zone = (("zone", "z"),)
    runs = [pod(f"grows-{number}", shape(cpu=1), on="n1", created=1.0) for number in range(5)]
    next_one = pod("grows-9", shape(cpu=2), created=2.0)
    grows = gang(
        "a/grows", pods=[*runs, next_one], on=["n1"], min_member=1, queue="q1", created=1.0
    )
    first = gang("b/first", 1, cpu=1, queue="q2", created=3.0, selector=zone)
    second = gang("b/second", 1, cpu=2, queue="q2", created=4.0, selector=zone)
    members = [node("n1", cpu=5, labels=dict(zone)), *(node(n, cpu=2) for n in ("n2", "n3"))]
    plan = make_plan(snapshot(members, [grows, first, second], [queue("q1", 2), queue("q2")]))

    assert plan.queues["q1"].deserved[CPU] == 6_000
    assert dict(plan.placements[grows.key].placements) == {"a-grows-9": "n2"}
    assert plan.evictions == ()


# ── searches that found no victims ──────────────────────────────────────────────────────────


def test_a_failed_search_for_a_certain_node_does_not_rule_out_searches_for_any_node() -> None:
    """A small pod whose zone is full of high priorities says nothing about other zones."""
    zoned = node("n1", cpu=4, labels={"zone": "z"})
    kept = gang("a/kept", 1, on=["n1"], cpu=4, priority=20)
    low = gang("a/low", 1, on=["n2"], cpu=4)
    picky = gang("b/picky", 1, cpu=1, priority=10, selector=(("zone", "z"),))
    vip = gang("a/vip", 1, cpu=4, priority=10, created=9.0)
    full = snapshot([zoned, node("n2", cpu=4)], [kept, low, picky, vip])

    assert [each.name for each in make_plan(full).evictions] == ["low-0"]


def test_a_failed_search_for_large_members_does_not_rule_out_large_and_small_ones() -> None:
    kept = gang("a/kept", 1, on=["n1"], cpu=6, priority=20)
    low = gang("a/low", 1, on=["n2"], cpu=6)
    wide = gang("a/wide", 2, cpu=4, priority=10)
    members = [pod("m-0", shape(cpu=4)), pod("m-1", shape(cpu=1)), pod("m-2", shape(cpu=1))]
    mixed = gang("a/mixed", pods=members, priority=10, created=9.0)
    full = snapshot([node("n1", cpu=6), node("n2", cpu=6)], [kept, low, wide, mixed])

    assert [each.name for each in make_plan(full).evictions] == ["low-0"]


def test_failing_searches_of_one_namespace_leave_searches_for_the_others() -> None:
    failing = [
        gang(f"b/failing-{n:02}", 1, queue="q0", cpu=3 - n / 20, selector=(("zone", "z"),))
        for n in range(MOST_SEARCHES + 8)
    ]
    borrowed = [gang(f"c/borrowed-{n}", 1, on=[f"n{n}"], queue="q1", cpu=8) for n in (1, 2)]
    mine = gang("a/mine", 1, queue="q2", cpu=4, created=9.0)
    members = [node("n1", cpu=8), node("n2", cpu=8), node("n3", cpu=4, labels={"zone": "z"})]
    full = snapshot(
        members,
        [*failing, *borrowed, mine],
        [queue("q0"), queue("q1"), queue("q2")],
        taken={"n3": amounts(cpu=3.9)},
    )

    assert {each.beneficiary for each in make_plan(full).evictions} == {"a/mine"}

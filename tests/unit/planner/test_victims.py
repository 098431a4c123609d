"""Who has to leave: as few as possible, and never part of a gang."""

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
    """A full little cluster, and one important gang that wants in."""
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
            fitting = [n for n, room in free.items() if _fits(room, cpu, memory)]
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


def _fits(room: dict[str, int], cpu: float, memory: float) -> bool:
    return amounts(cpu=cpu, memory=memory, pods=1).fits_in(amounts() + _resources(room))


def _resources(room: dict[str, int]):  # type: ignore[no-untyped-def]
    return type(amounts())(room)


def _take(room: dict[str, int], cpu: float, memory: float) -> None:
    for name, amount in amounts(cpu=cpu, memory=memory, pods=1).items():
        room[name] -= amount


def fewest(before: Snapshot) -> int | None:
    """Try every set of victims that tears no gang; give the size of the smallest that helps."""
    wish = next(each for each in before.gangs.values() if each.priority)
    running = [each for each in before.gangs.values() if not each.priority]
    best: int | None = None
    for leaving in product(*(_choices(each) for each in running)):
        count = sum(map(len, leaving))
        if best is not None and count >= best:
            continue
        gone = {uid for part in leaving for uid in part}
        if _slots(before, gone, wish) >= wish.group.min_member:
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


def _slots(before: Snapshot, gone: set[str], wish: Gang) -> int:
    need = wish.pods[0].requests
    free = {each.name: each.allocatable for each in before.nodes.nodes}
    for each in before.gangs.values():
        for member in each.pods:
            if member.node and member.uid not in gone:
                free[member.node] = free[member.node] - member.requests
    return sum(
        max(0, min(room.amount(name) // amount for name, amount in need.items() if amount))
        for room in free.values()
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

    assert min(over) >= 0, "fewer than possible would mean that a gang was torn"
    assert sum(number for extra, number in over.items() if extra > 1) <= cases / 100


def test_whoever_can_be_helped_is_helped() -> None:
    chance = random.Random(11)
    for _ in range(examples(150)):
        before = preemption(chance)
        possible = fewest(before) is not None
        plan = make_plan(before)
        helped = bool(plan.placements["a/high"]) if "a/high" in plan.placements else False

        assert helped == possible


def with_roles(key: str, *members: tuple[str, Status], **minima: int) -> Gang:
    """A gang of two members at least, on n1; each is told by its role and how far it is."""
    name = key.partition("/")[2]
    pods = [
        pod(f"{name}-{number}", shape(cpu=1), on="n1", role=role, status=status)
        for number, (role, status) in enumerate(members)
    ]
    return gang(key, pods=pods, on=["n1"], min_member=2, group={"min_by_role": minima})


def leavers(running: Gang, cpus: int) -> set[str]:
    """Name who leaves a full n1 when a more important pod wants *cpus* of it."""
    vip = gang("a/vip", 1, cpu=cpus, priority=10)
    full = snapshot([node("n1", cpu=len(running.pods))], [running, vip])
    return {each.name for each in make_plan(full).evictions}


RUNS, PROMISED = Status.RUNNING, Status.ALLOCATED


def test_the_only_member_of_a_needed_role_leaves_with_all_others_or_not_at_all() -> None:
    workers = [("worker", RUNS)] * 3
    train = with_roles("a/train", *workers, ("ps", RUNS), ps=1, worker=1)

    for cpus in (1, 2):
        assert len(leavers(train, cpus)) == cpus
        assert "train-3" not in leavers(train, cpus)
    assert len(leavers(train, 3)) == 4


def test_a_gang_is_not_evicted_in_part_while_one_member_is_only_bound() -> None:
    pods = [
        pod("low-0", shape(cpu=1), on="n1", status=Status.BOUND),
        pod("low-1", shape(cpu=1), on="n1"),
    ]
    low = gang("a/low", pods=pods, on=["n1"], queue="q1")
    high = gang("a/high", 1, cpu=1, queue="q2")
    plan = make_plan(snapshot([node("n1", cpu=2)], [low, high], [queue("q1"), queue("q2")]))

    assert plan.evictions == ()


def test_a_gang_that_could_start_again_within_the_due_of_its_queue_is_not_evicted() -> None:
    wide = gang("a/wide", 3, min_member=2, on=["n1"] * 3, cpu=1, queue="q1")
    large = gang("a/large", 1, cpu=2, queue="q2")
    room = [node("n1", cpu=3), node("n2", cpu=1)]
    plan = make_plan(snapshot(room, [wide, large], [queue("q1"), queue("q2")]))

    assert plan.evictions == ()


def test_a_promise_does_not_stand_for_the_only_member_of_a_role() -> None:
    """It may lapse, and then nobody would be there."""
    train = with_roles(
        "a/train", ("ps", PROMISED), ("worker", RUNS), ("worker", RUNS), ("ps", RUNS), ps=1
    )

    assert leavers(train, 1) == {"train-2"}


def test_gangs_that_may_not_leave_do_not_hide_the_one_that_may() -> None:
    """Only so many of one queue and priority are looked at; they must be such as could leave."""
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

    spared = {member.uid: "it may not" for each in old[1:] for member in each.pods}
    willing = [replace(each, pods=(replace(each.pods[0], preemptable=True),)) for each in old]
    full = snapshot([node(name) for name in names], [*willing, vip], protected=spared)
    assert [each.name for each in make_plan(full).evictions] == ["old0-0"]


@pytest.mark.parametrize("allowed", [0, 1])
def test_gangs_that_a_budget_keeps_do_not_hide_the_one_that_may_leave(allowed: int) -> None:
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
def test_gangs_elsewhere_do_not_hide_the_one_whose_node_is_wanted(action: str) -> None:
    """However many would rather leave: nobody gains by what they free."""
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


# ── who was given something in the same cycle ───────────────────────────────────────────────


def with_one_more(*others: Pod, min_member: int = 1, running: int = 7, **rest: Any) -> Gang:
    """A gang of the least important that fills n1 and most of n2, with *others* of its own."""
    names = ["n1"] * 4 + ["n2"] * (running - 4)
    low = gang("a/low", running, on=names, min_member=min_member, cpu=1, created=1.0, **rest)
    return replace(low, pods=tuple(sorted([*low.pods, *others], key=lambda each: each.uid)))


LEAVES = pod("low-8", shape(cpu=1), on="n2", status=Status.RELEASING, leaves_by=3_700.0)
WAITS = pod("low-9", shape(cpu=1))


@pytest.mark.parametrize("min_member", [1, 7])
@pytest.mark.parametrize("ours", ["q1", "q2"])
def test_a_member_that_waits_for_the_room_of_another_keeps_nobody_from_leaving(
    ours: str, min_member: int
) -> None:
    low = with_one_more(LEAVES, WAITS, min_member=min_member, queue="q1")
    high = gang("b/high", 4, cpu=1, priority=10, queue=ours, created=5.0)
    plan = make_plan(snapshot(nodes(2, cpu=4), [low, high], [queue("q1"), queue("q2")]))

    assert len(plan.evictions) in {1: (3, 4), 7: (7,)}[min_member]
    assert list(plan.placements) == ["b/high"], "nothing is given where others leave"


def test_it_comes_to_rest_with_the_more_important_ones_running() -> None:
    low = with_one_more(LEAVES, WAITS)
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
def test_a_member_that_asks_for_nothing_keeps_nobody_from_leaving(min_member: int) -> None:
    empty = pod("low-9", shape(host_ports=(HostPort(80),)))
    low = with_one_more(empty, running=8, min_member=min_member, queue="q1")
    high = gang("b/high", 4, cpu=1, queue="q2", created=5.0)
    plan = make_plan(snapshot(nodes(2, cpu=4), [low, high], [queue("q1"), queue("q2")]))

    assert len(plan.evictions) == {1: 4, 8: 8}[min_member]
    assert list(plan.placements) == ["b/high"]


def test_what_a_gang_is_given_to_reach_its_minimum_is_left_to_it() -> None:
    low = with_one_more(LEAVES, WAITS, min_member=8)
    high = gang("b/high", 4, cpu=1, priority=10, created=5.0)
    plan = make_plan(snapshot(nodes(2, cpu=4), [low, high]))

    assert plan.evictions == ()
    assert list(plan.placements) == ["a/low"]


def test_what_a_gang_is_given_makes_nobody_leave_who_would_come_back_without_it() -> None:
    """With the member that starts now its queue is above its due, but not with those who run."""
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


# ── searches that found nobody ──────────────────────────────────────────────────────────────


def test_one_that_only_wants_a_certain_node_is_no_measure_for_those_who_take_any() -> None:
    """A small pod whose zone is full of important ones says nothing about other zones."""
    zoned = node("n1", cpu=4, labels={"zone": "z"})
    kept = gang("a/kept", 1, on=["n1"], cpu=4, priority=20)
    low = gang("a/low", 1, on=["n2"], cpu=4)
    picky = gang("b/picky", 1, cpu=1, priority=10, selector=(("zone", "z"),))
    vip = gang("a/vip", 1, cpu=4, priority=10, created=9.0)
    full = snapshot([zoned, node("n2", cpu=4)], [kept, low, picky, vip])

    assert [each.name for each in make_plan(full).evictions] == ["low-0"]


def test_many_large_members_are_no_measure_for_one_large_and_some_small() -> None:
    kept = gang("a/kept", 1, on=["n1"], cpu=6, priority=20)
    low = gang("a/low", 1, on=["n2"], cpu=6)
    wide = gang("a/wide", 2, cpu=4, priority=10)
    members = [pod("m-0", shape(cpu=4)), pod("m-1", shape(cpu=1)), pod("m-2", shape(cpu=1))]
    mixed = gang("a/mixed", pods=members, priority=10, created=9.0)
    full = snapshot([node("n1", cpu=6), node("n2", cpu=6)], [kept, low, wide, mixed])

    assert [each.name for each in make_plan(full).evictions] == ["low-0"]


def test_a_namespace_cannot_use_up_all_searches_on_what_nobody_can_give() -> None:
    vain = [
        gang(f"b/vain-{n:02}", 1, queue="q0", cpu=3 - n / 20, selector=(("zone", "z"),))
        for n in range(MOST_SEARCHES + 8)
    ]
    lent = [gang(f"c/lent-{n}", 1, on=[f"n{n}"], queue="q1", cpu=8) for n in (1, 2)]
    mine = gang("a/mine", 1, queue="q2", cpu=4, created=9.0)
    members = [node("n1", cpu=8), node("n2", cpu=8), node("n3", cpu=4, labels={"zone": "z"})]
    full = snapshot(
        members,
        [*vain, *lent, mine],
        [queue("q0"), queue("q1"), queue("q2")],
        taken={"n3": amounts(cpu=3.9)},
    )

    assert {each.beneficiary for each in make_plan(full).evictions} == {"a/mine"}

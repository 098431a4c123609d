"""Searching victims: what is remembered about nodes and gangs equals a new computation.

The cost is counted in looks at possible victims, never in seconds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from extender.model.gang import Gang
from extender.model.node import Amounts
from extender.model.snapshot import Snapshot
from extender.planner.planner import make_plan
from extender.planner.victims import choose, search
from extender.planner.victims.choose import Cover, SearchBudget, UnitsByNode, Work, go_together
from extender.planner.victims.units import Unit
from tests.builders import gang, node, nodes, pod, shape, snapshot
from tests.strategies import examples

#: The units chosen as victims.
Chosen = tuple[Unit, ...]


def full_cluster(chance: random.Random) -> Snapshot:
    """Nodes full of members of two sizes and roles, and a gang of high priority that needs them."""
    members = [node(f"n{number}", cpu=8, memory=16) for number in range(chance.randint(2, 4))]
    gangs: list[Gang] = []
    for number in range(chance.randint(2, 5)):
        kinds = [
            shape(cpu=chance.choice([0.25, 0.5]), memory=chance.choice([0, 0.5])) for _ in range(2)
        ]
        pods = [
            pod(
                f"low{number}-{each}",
                chance.choice(kinds),
                on=chance.choice(members).name,
                role=chance.choice(["chief", "worker"]),
            )
            for each in range(chance.randint(2, 8))
        ]
        minima = chance.choice([{}, {"chief": 1}])
        least = chance.randint(1, len(pods))
        running = gang(
            f"a/low{number}", pods=pods, on=["n0"], min_member=least, group={"min_by_role": minima}
        )
        gangs.append(running)
    wants = {"cpu": chance.choice([6, 7, 8]), "memory": chance.choice([0, 14])}
    gangs.append(gang("a/high", chance.randint(1, 3), priority=10, created=9.0, **wants))
    return snapshot(members, gangs)


def chosen_one_by_one(
    units: Sequence[Unit], line: Callable[[Unit], Amounts], lack: Amounts
) -> Chosen:
    """Choose as a cover does, by weighing every unit in every round."""
    chosen: list[Unit] = []
    while lack.any():
        short = lack > 0
        helps = [
            float((np.minimum(line(unit), lack)[short] / lack[short]).sum()) / len(unit.members)
            if unit not in chosen and go_together((*chosen, unit))
            else 0.0
            for unit in units
        ]
        if not max(helps):
            return ()
        best = units[helps.index(max(helps))]
        chosen.append(best)
        lack = np.maximum(lack - line(best), 0)
    return tuple(chosen)


def test_a_cover_equals_that_of_weighing_every_unit_in_every_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Counter[int]()

    class Compared(Cover):
        def __init__(self, units: Sequence[Unit], line: Callable[[Unit], Amounts], *rest: Any):
            super().__init__(units, line, *rest)
            self.about = (units, line)

        def choose(self, lack: Amounts) -> Chosen:
            chosen = super().choose(lack)
            assert chosen == chosen_one_by_one(*self.about, lack)
            found[len(chosen)] += 1
            return chosen

    monkeypatch.setattr(search, "Cover", Compared)
    chance = random.Random(3)
    plans = examples(80)
    for _ in range(plans):
        make_plan(full_cluster(chance))

    assert found[0] > plans // 8
    assert sum(count for number, count in found.items() if number > 4) > plans // 5


def test_the_remembered_eviction_units_equal_newly_computed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = Counter[bool]()

    class Compared(UnitsByNode):
        def refresh(self) -> None:
            super().refresh()
            looks[any(gang.evicted for gang in self._gangs)] += 1
            units = list(self._units.all())
            assert self.wholes == [unit for unit in units if unit.is_whole]
            anew: dict[int, list[Unit]] = {}
            for unit in units:
                for row in self._units.frees(unit)[0].tolist():
                    anew.setdefault(row, []).append(unit)
            assert {row: self.on(row) for row in self.rows} == anew

    monkeypatch.setattr(search, "UnitsByNode", Compared)
    chance = random.Random(5)
    plans = examples(80)
    for _ in range(plans):
        make_plan(full_cluster(chance))

    assert min(looks[False], looks[True]) > plans // 6


def small_gangs(count: int, places: int, each: int) -> list[Gang]:
    """Gangs that fill *places* nodes with small members, of which all but one may be evicted."""
    on = [f"n{number + 1}" for number in range(places) for _ in range(each)]
    cpu = 50 / (count * each)
    return [gang(f"b/s{number}", len(on), min_member=1, on=on, cpu=cpu) for number in range(count)]


def work_and_victims(
    monkeypatch: pytest.MonkeyPatch, size: int, places: int = 40
) -> tuple[int, int]:
    """Count the looks of the searches of a plan, and its victims for *size* large members."""
    done: list[int] = []
    spend = SearchBudget.spend

    def note(self: SearchBudget, work: Work, namespace: str, *, failed: bool) -> None:
        done.append(work.done)
        spend(self, work, namespace, failed=failed)

    with monkeypatch.context() as patch:
        patch.setattr(SearchBudget, "spend", note)
        big = gang("a/big", size, cpu=50, priority=1000)
        gangs = [*small_gangs(10, places, 5), big]
        plan = make_plan(snapshot(nodes(places, cpu=50, memory=1000), gangs))
    return sum(done), len(plan.evictions)


def test_twice_the_members_cost_at_most_little_more_than_twice_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each member once cost a look at every pod of every gang, times the pods on its node."""
    eight, left = work_and_victims(monkeypatch, 8)
    sixteen, more_left = work_and_victims(monkeypatch, 16)

    assert (left, more_left) == (8 * 50, 16 * 50)
    assert sixteen < 2.5 * eight


def test_a_node_with_many_small_members_costs_little_work_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cost was once about the square of the pods on a node, for every node that was weighed."""
    looks, left = work_and_victims(monkeypatch, 4, places=10)

    assert left == 4 * 50
    assert looks < 100 * left


def test_a_search_over_its_budget_finds_no_victims_and_leaves_budget_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "MOST_WORK", 40_000)
    places = 20
    small = small_gangs(10, places, 5)
    zone = (("zone", "z"),)
    single = gang("d/low", 1, min_member=1, on=["z1"], cpu=1)
    endless = [
        gang(f"{namespace}/big{number}", 16, cpu=50, priority=1000, created=float(number))
        for namespace in ("a", "c")
        for number in range(3)
    ]
    modest = gang("e/modest", 1, cpu=1, priority=10, selector=zone, created=9.0)
    members = [*nodes(places, cpu=50, memory=1000), node("z1", cpu=1, labels=dict(zone))]
    plan = make_plan(snapshot(members, [*small, single, *endless, modest]))

    assert {each.beneficiary for each in plan.evictions} == {"e/modest"}
    told = "; the search for victims ended early: too many pods could be evicted"
    assert plan.verdicts["a/big0"].message.endswith(told)


def test_failing_searches_of_one_namespace_are_bounded() -> None:
    budget = SearchBudget()
    for _ in range(3):
        work = budget.next("a")
        work.count(choose.MOST_WORK // 8)
        budget.spend(work, "a", failed=True)

    assert budget.next("a").is_too_much
    assert not budget.next("b").is_too_much


def test_a_successful_search_leaves_its_namespace_as_much_budget_as_others() -> None:
    budget = SearchBudget()
    work = budget.next("a")
    work.count(choose.MOST_WORK // 4)
    budget.spend(work, "a", failed=False)
    mine, others = budget.next("a"), budget.next("b")
    for each in (mine, others):
        each.count(choose.MOST_WORK // 8)

    assert not mine.is_too_much
    assert not others.is_too_much

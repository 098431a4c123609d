"""Properties that hold for the plan of any cluster."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from hypothesis import given, settings, strategies as st

from extender.model.snapshot import Snapshot
from extender.planner.plan import DirectAdmission, GangStatus, Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Starvation
from extender.planner.quota import TOP, QueueLimits
from tests.builders import snapshot
from tests.strategies import examples, snapshots
from tests.unit.planner.plans import at_rest

many = settings(max_examples=examples(100))


@given(snapshots())
@many
def test_gangs_start_whole_where_nodes_have_the_capacity(before: Snapshot) -> None:
    plan = make_plan(before)
    table, used = before.nodes, before.nodes.used.copy()
    pods = {pod.uid: pod for gang in before.gangs.values() for pod in gang.pods}

    assert list(plan.verdicts) == list(before.gangs)
    for key, verdict in plan.verdicts.items():
        assert verdict.message
        placed = plan.placements[key].placements if key in plan.placements else {}
        if placed or verdict.status is GangStatus.ADMITTED:
            assert before.gangs[key].ready + len(placed) >= verdict.min_member
        for uid, node in placed.items():
            for name, amount in pods[uid].requests.items():
                used[table.facts.index[node], table.dimensions.index(name)] += amount
    assert (used <= np.maximum(table.allocatable, table.used)).all()


@given(snapshots())
@many
def test_only_preemptable_pods_are_evicted_and_gangs_keep_their_minimum(before: Snapshot) -> None:
    plan = make_plan(before)
    gangs = {pod.uid: gang for gang in before.gangs.values() for pod in gang.pods}
    pods = {pod.uid: pod for gang in before.gangs.values() for pod in gang.pods}
    leaving = [order.uid for order in plan.evictions]
    placed = {uid for each in plan.placements.values() for uid in each.placements}
    pipelined = {uid for each in plan.placements.values() for uid in each.pipelined}

    assert placed.isdisjoint({*leaving, *pipelined})
    assert len(leaving) == len(set(leaving))
    assert all(pods[uid].preemptable for uid in leaving)
    for key, count in Counter(gangs[uid].key for uid in leaving).items():
        gang = before.gangs[key]
        left = gang.scheduled - count
        assert left == 0 or left >= gang.group.min_member
    for order in plan.evictions:
        victim, winner = gangs[order.uid], before.gangs[order.beneficiary]
        is_higher = victim is winner or victim.priority < winner.priority
        assert order.action != "preempt" or is_higher


@given(snapshots(), st.randoms(use_true_random=False))
@many
def test_the_order_of_the_input_does_not_matter(before: Snapshot, chance: random.Random) -> None:
    def shuffled(things: object) -> list[object]:
        listed = list(things)  # type: ignore[call-overload]
        chance.shuffle(listed)
        return listed

    again = snapshot(
        shuffled(before.nodes.nodes),  # type: ignore[arg-type]
        shuffled(before.gangs.values()),  # type: ignore[arg-type]
        shuffled(before.queues.values()),  # type: ignore[arg-type]
        now=before.now,
    )

    assert repr(make_plan(before)) == repr(make_plan(again))


@given(snapshots())
@many
def test_plans_carried_out_again_and_again_stop_changing_the_cluster(before: Snapshot) -> None:
    at_rest(before)


def test_the_plan_for_an_empty_cluster_is_empty() -> None:
    assert make_plan(snapshot([])) == Plan(
        generation=1,
        queues=make_plan(snapshot([])).queues,
        direct_admission={"default": DirectAdmission()},
        limits=(QueueLimits("default", TOP),),
        total=make_plan(snapshot([])).total,
        brief_s=Starvation().backfill_s,
    )

"""Properties that hold for the plan of any cluster."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from hypothesis import given, settings, strategies as st

from extender.model.gang import Gang
from extender.model.pod import SCHEDULED_SET
from extender.model.snapshot import Snapshot
from extender.planner.plan import DirectAdmission, GangStatus, Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Starvation
from extender.planner.quota import TOP, QueueLimits
from tests.builders import snapshot
from tests.strategies import examples, snapshots
from tests.unit.planner.plans import at_rest

many = settings(max_examples=examples(100))


def scheduled_members(gang: Gang) -> int:
    return sum(pod.status in SCHEDULED_SET for pod in gang.pods)


@given(snapshots())
@many
def test_an_admitted_gang_has_nodes_for_its_minimum(before: Snapshot) -> None:
    plan = make_plan(before)

    for key, verdict in plan.verdicts.items():
        if verdict.status is GangStatus.ADMITTED:
            given_now = len(plan.placements[key].placements) if key in plan.placements else 0
            assert before.gangs[key].ready + given_now >= verdict.min_member


@given(snapshots())
@many
def test_no_member_starts_unless_the_whole_minimum_does(before: Snapshot) -> None:
    plan = make_plan(before)

    for key, placement in plan.placements.items():
        if placement.placements:
            gang = before.gangs[key]
            assert gang.ready + len(placement.placements) >= gang.group.min_member


@given(snapshots())
@many
def test_no_node_gets_more_than_its_allocatable(before: Snapshot) -> None:
    plan = make_plan(before)
    table = before.nodes
    used = table.used.copy()
    pods = {pod.uid: pod for gang in before.gangs.values() for pod in gang.pods}
    for placement in plan.placements.values():
        for uid, node in placement.placements.items():
            for name, amount in pods[uid].requests.items():
                used[table.facts.index[node], table.dimensions.index(name)] += amount

    assert (used <= np.maximum(table.allocatable, table.used)).all()


@given(snapshots())
@many
def test_placements_and_evictions_never_name_the_same_pod(before: Snapshot) -> None:
    plan = make_plan(before)
    placed = {uid for placement in plan.placements.values() for uid in placement.placements}
    pipelined_pods = {uid for placement in plan.placements.values() for uid in placement.pipelined}
    leaving = [order.uid for order in plan.evictions]

    assert not placed & set(leaving)
    assert not placed & pipelined_pods
    assert len(leaving) == len(set(leaving))


@given(snapshots())
@many
def test_a_gang_keeps_its_minimum_or_is_evicted_whole(before: Snapshot) -> None:
    plan = make_plan(before)
    lost = Counter(gang_of(before, order.uid) for order in plan.evictions)

    for key, count in lost.items():
        gang = before.gangs[key]
        assert (
            scheduled_members(gang) - count >= gang.group.min_member
            or scheduled_members(gang) == count
        )


@given(snapshots())
@many
def test_only_preemptable_pods_are_evicted(before: Snapshot) -> None:
    plan = make_plan(before)
    pods = {pod.uid: pod for gang in before.gangs.values() for pod in gang.pods}

    assert all(pods[order.uid].preemptable for order in plan.evictions)


@given(snapshots())
@many
def test_victims_of_preemption_have_a_lower_priority(before: Snapshot) -> None:
    plan = make_plan(before)

    for order in plan.evictions:
        if order.action == "preempt":
            victim = before.gangs[gang_of(before, order.uid)]
            winner = before.gangs[order.beneficiary]
            same = victim is winner
            assert same or victim.priority < winner.priority


@given(snapshots())
@many
def test_every_gang_gets_a_verdict_with_a_sentence(before: Snapshot) -> None:
    plan = make_plan(before)

    assert list(plan.verdicts) == list(before.gangs)
    assert all(verdict.message for verdict in plan.verdicts.values())


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


def gang_of(snapshot: Snapshot, uid: str) -> str:
    return next(
        key for key, gang in snapshot.gangs.items() if any(pod.uid == uid for pod in gang.pods)
    )


def test_the_plan_for_an_empty_cluster_is_empty() -> None:
    assert make_plan(snapshot([])) == Plan(
        generation=1,
        queues=make_plan(snapshot([])).queues,
        direct_admission={"default": DirectAdmission()},
        limits=(QueueLimits("default", TOP),),
        total=make_plan(snapshot([])).total,
        brief_s=Starvation().backfill_s,
    )

"""A gang of a scheduler that does not call gets no capacity and reserves none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.model.reason import Reason
from extender.model.snapshot import Liveness, SchedulerStatus, Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.plan import GangStatus
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import SOON, amounts, gang, node, nodes, queue, snapshot

VOLCANO = policy_parser.parse(
    "compatibility: volcano\n"
    'actions: "enqueue, allocate, backfill, reclaim, preempt"\n'
    "tiers: [{plugins: [{name: gang}, {name: proportion}, {name: predicates}]}]"
)
RULES = pytest.mark.parametrize("policy", [policy_parser.DEFAULT, VOLCANO], ids=["ours", "volcano"])

TRAIN, OTHER = "a/train", "b/other"
NOT_HEARD = [Liveness.UNHEARD, Liveness.SILENT, Liveness.ELSEWHERE]


def of(scheduler: str, **facts: Any) -> dict[str, Any]:
    return {"scheduler": scheduler, **facts}


#: Another queue borrows all that the queue of the gang deserves.
FULL = snapshot(
    [node("n1", cpu=4)],
    [
        gang("b/borrowed", 4, min_member=1, on=["n1"] * 4, cpu=1, queue="rich", each=of("living")),
        gang(TRAIN, 2, cpu=1, queue="poor", created=1.0, each=of("dead")),
    ],
    [queue("rich"), queue("poor")],
)


def with_liveness(before: Snapshot, liveness: Liveness, **facts: Any) -> Snapshot:
    """Give the scheduler `dead` this *liveness*; `living` is heard."""
    dead = SchedulerStatus(name="dead", liveness=liveness, quiet_since=SOON - 40, **facts)
    return replace(
        before,
        schedulers={
            "dead": dead,
            "living": SchedulerStatus(name="living", liveness=Liveness.HEARD),
        },
    )


@RULES
@pytest.mark.parametrize("liveness", NOT_HEARD)
def test_a_gang_of_a_silent_scheduler_takes_no_capacity_from_gangs_behind_it(
    liveness: Liveness, policy: Policy
) -> None:
    before = snapshot(
        [node("n1", cpu=4)],
        [
            gang(TRAIN, 4, cpu=1, created=1.0, priority=9, each=of("dead")),
            gang(OTHER, 4, cpu=1, created=2.0, each=of("living")),
        ],
    )

    plan = make_plan(with_liveness(before, liveness), policy)

    assert plan.placements.keys() == {OTHER}
    assert plan.verdicts[TRAIN].reason is Reason.SCHEDULER_SILENT
    assert plan.verdicts[TRAIN].status is GangStatus.WAITING


@RULES
@pytest.mark.parametrize("liveness", NOT_HEARD)
def test_no_pod_is_evicted_for_a_gang_of_a_silent_scheduler(
    liveness: Liveness, policy: Policy
) -> None:
    assert make_plan(with_liveness(FULL, Liveness.HEARD), policy).evictions

    plan = make_plan(with_liveness(FULL, liveness), policy)

    assert plan.evictions == ()


@RULES
def test_an_expected_scheduler_gets_free_capacity_but_no_evictions_until_it_is_alive(
    policy: Policy,
) -> None:
    empty = snapshot([node("n1", cpu=4)], [gang(TRAIN, 2, cpu=1, each=of("dead"))])

    assert not make_plan(with_liveness(FULL, Liveness.EXPECTED, is_alive=False), policy).evictions
    assert make_plan(with_liveness(FULL, Liveness.EXPECTED, is_alive=True), policy).evictions
    assert make_plan(with_liveness(empty, Liveness.EXPECTED, is_alive=False), policy).placements


def test_no_capacity_is_reserved_for_a_gang_of_a_silent_scheduler() -> None:
    crowded = snapshot(
        nodes(2, cpu=4),
        [
            gang("b/long", 1, on=["n1"], cpu=2, each=of("living")),
            gang(TRAIN, 2, cpu=4, created=1.0, each=of("dead")),
        ],
        now=4_000.0,
    )
    assert make_plan(with_liveness(crowded, Liveness.HEARD)).held_on_nodes

    assert not make_plan(with_liveness(crowded, Liveness.SILENT)).held_on_nodes
    assert not make_plan(with_liveness(crowded, Liveness.EXPECTED, is_alive=False)).held_on_nodes


@RULES
def test_a_gang_of_a_silent_scheduler_does_not_count_for_deserved_shares(policy: Policy) -> None:
    before = snapshot(
        [node("n1", cpu=8)],
        [
            gang(TRAIN, 8, cpu=1, queue="poor", created=1.0, each=of("dead")),
            gang(OTHER, 8, cpu=1, queue="rich", created=2.0, each=of("living")),
        ],
        [queue("rich"), queue("poor", weight=9)],
    )

    plan = make_plan(with_liveness(before, Liveness.SILENT), policy)

    assert len(plan.placements[OTHER].placements) == 8
    assert not plan.queues["poor"].requested


def test_a_gang_of_a_silent_scheduler_does_not_stop_direct_admission() -> None:
    before = snapshot([node("n1", cpu=4)], [gang(TRAIN, 8, cpu=1, each=of("dead"))])

    opened = make_plan(with_liveness(before, Liveness.SILENT)).direct_admission["default"]

    assert (opened.left, opened.is_quiet) == (None, True)


def test_min_resources_of_a_gang_of_a_silent_scheduler_keep_no_other_gang_out() -> None:
    policy = policy_parser.parse(
        'actions: "enqueue, allocate"\n'
        "tiers: [{plugins: [{name: gang}, {name: overcommit}, {name: predicates}]}]"
    )
    least = {"min_resources": amounts(cpu=40)}
    before = snapshot(
        [node("n1", cpu=4)],
        [
            gang(TRAIN, 4, cpu=1, each=of("dead"), group=least),
            gang(OTHER, 2, cpu=1, each=of("living"), group={"min_resources": amounts(cpu=2)}),
        ],
    )

    plan = make_plan(with_liveness(before, Liveness.SILENT), policy)

    assert plan.placements.keys() == {OTHER}


def test_a_gang_that_runs_goes_on_running_while_its_scheduler_is_silent() -> None:
    runs = gang(TRAIN, 3, min_member=2, on=["n1", "n1"], cpu=1, each=of("dead"))

    verdict = make_plan(with_liveness(snapshot([node("n1")], [runs]), Liveness.SILENT)).verdicts[
        TRAIN
    ]

    assert verdict.reason is Reason.RUNNING


def test_a_member_of_a_silent_scheduler_keeps_its_whole_gang_waiting() -> None:
    mixed = gang(TRAIN, 2, cpu=1, each=of("living"))
    pods = (mixed.pods[0], replace(mixed.pods[1], scheduler="dead"))
    before = snapshot([node("n1")], [replace(mixed, pods=pods)])

    plan = make_plan(with_liveness(before, Liveness.SILENT))

    assert not plan.placements
    assert "of scheduler name dead since this extender began to listen 40 s ago" in (
        plan.verdicts[TRAIN].message
    )


def test_the_verdict_changes_with_the_liveness_though_the_gang_does_not() -> None:
    before = snapshot([node("n1", cpu=1)], [gang(TRAIN, 4, cpu=1, each=of("dead"))])
    reasons = [
        make_plan(with_liveness(before, liveness)).verdicts[TRAIN].reason
        for liveness in (Liveness.HEARD, Liveness.SILENT, Liveness.HEARD, Liveness.SILENT)
    ]

    assert reasons[1] is reasons[3] is Reason.SCHEDULER_SILENT
    assert reasons[0] is reasons[2] is Reason.EXCEEDS_CLUSTER


def test_the_explanation_points_at_kube_scheduler_and_invents_no_remedy() -> None:
    before = with_liveness(
        snapshot([node("n1")], [gang(TRAIN, 2, cpu=1, each=of("dead"))]), Liveness.SILENT
    )

    told = explain(before, make_plan(before), policy_parser.DEFAULT, before.gangs[TRAIN].key)  # type: ignore[index]

    assert told is not None
    (remedy,) = told.remedies
    assert "check that this kube-scheduler runs" in remedy

"""Nodes that kube-scheduler rejected are not used, and the verdict says so."""

from __future__ import annotations

from dataclasses import replace

from extender.model.gang import Gang, GangKey
from extender.model.reason import Reason
from extender.model.snapshot import Snapshot
from extender.planner.planner import make_plan
from tests.builders import gang, nodes, snapshot

KEY = GangKey("a/train")


def rejecting(train: Gang, *names: str, cpu: int = 4) -> Snapshot:
    rejected = {pod.shape: frozenset(names) for pod in train.pods}
    return replace(snapshot(nodes(2, cpu=cpu), [train]), rejected_nodes=rejected)


def test_a_gang_goes_where_kube_scheduler_did_not_reject_it() -> None:
    plan = make_plan(rejecting(gang("a/train", 2, cpu=1), "n1"))

    assert set(plan.placements[KEY].placements.values()) == {"n2"}


def test_without_another_node_a_gang_waits_and_names_the_rejected_one() -> None:
    plan = make_plan(rejecting(gang("a/train", 2, cpu=3), "n1"))

    verdict = plan.verdicts[KEY]
    assert verdict.reason is Reason.INSUFFICIENT_CAPACITY
    assert verdict.message == ("needs 2 x 3 cpu; 1 slot free: 1 node refused by kube-scheduler")


def test_a_gang_rejected_by_all_nodes_does_not_exceed_the_cluster() -> None:
    plan = make_plan(rejecting(gang("a/train", 2, cpu=3), "n1", "n2"))

    assert plan.verdicts[KEY].reason is Reason.INSUFFICIENT_CAPACITY


def test_a_rejected_node_that_is_gone_does_not_count() -> None:
    plan = make_plan(rejecting(gang("a/train", 2, cpu=1), "n9"))

    assert KEY in plan.placements

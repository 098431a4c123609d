"""Nodes that are not managed, or that kube-scheduler rejected, are not used."""

from __future__ import annotations

from dataclasses import replace

from extender.model.gang import Gang, GangKey
from extender.model.reason import Reason
from extender.model.resources import CPU
from extender.model.snapshot import Snapshot
from extender.planner.explain.explain import explain
from extender.planner.plan import GangStatus
from extender.planner.planner import make_plan
from extender.planner.policy_parser import DEFAULT
from tests.builders import amounts, gang, node, nodes, queue, snapshot

MANAGED = node("ours", cpu=4)
UNMANAGED = node("other", cpu=16, managed=False)


def test_a_gang_gets_only_managed_nodes() -> None:
    plan = make_plan(snapshot([MANAGED, UNMANAGED], [gang("a/train", 4, cpu=1)]))

    assert set(plan.placements["a/train"].placements.values()) == {"ours"}


def test_queues_share_only_managed_nodes() -> None:
    gangs = [gang("a/left", 4, cpu=1, queue="left"), gang("a/right", 4, cpu=1, queue="right")]
    plan = make_plan(snapshot([MANAGED, UNMANAGED], gangs, [queue("left"), queue("right")]))

    assert plan.total[CPU] == 4000
    assert plan.unused.amount(CPU) == 0
    assert {figures.deserved[CPU] for figures in plan.queues.values() if figures.deserved} == {2000}


def test_a_gang_that_fits_no_node_at_all_exceeds_the_cluster() -> None:
    plan = make_plan(snapshot([MANAGED, UNMANAGED], [gang("a/train", 8, cpu=5)]))

    assert plan.verdicts["a/train"].reason is Reason.EXCEEDS_CLUSTER


def test_explain_suggests_a_label_on_unmanaged_nodes() -> None:
    state = snapshot([MANAGED, UNMANAGED], [gang("a/train", 8, cpu=1)])
    told = explain(state, make_plan(state), DEFAULT, GangKey("a/train"))

    assert told is not None
    assert told.remedies[0] == "a label of --node-selector on node other"


def test_without_a_managed_node_that_is_the_reason() -> None:
    plan = make_plan(snapshot([UNMANAGED], [gang("a/train", 1, cpu=1)]))

    assert plan.verdicts["a/train"].message.endswith("0 such slots: 1 node outside --node-selector")


def test_an_unmanaged_node_that_is_not_ready_is_no_remedy() -> None:
    closed = node("other", cpu=2, managed=False, ready=False)
    state = snapshot([MANAGED, closed], [gang("a/train", 8, cpu=1)])
    told = explain(state, make_plan(state), DEFAULT, GangKey("a/train"))

    assert told is not None
    assert told.remedies
    assert not any("other" in words for words in told.remedies)


def test_pods_on_unmanaged_nodes_count_in_their_queue() -> None:
    gangs = [
        gang("a/before", 2, cpu=1, queue="small", on=["other", "other"]),
        gang("a/more", 1, cpu=1, queue="small"),
    ]
    small = queue("small", capability=amounts(cpu=2))
    plan = make_plan(snapshot([MANAGED, UNMANAGED], gangs, [small]))

    assert plan.queues["small"].allocated[CPU] == 2000
    assert plan.verdicts["a/more"].reason is Reason.QUEUE_AT_CAPABILITY


def test_no_pod_is_evicted_from_an_unmanaged_node() -> None:
    gangs = [
        gang("a/rich", 8, cpu=1, min_member=1, queue="rich", on=["other"] * 8),
        gang("a/full", 4, cpu=1, min_member=1, queue="rich", on=["ours"] * 4),
        gang("a/poor", 2, cpu=1, queue="poor"),
    ]
    plan = make_plan(snapshot([MANAGED, UNMANAGED], gangs, [queue("rich"), queue("poor")]))

    assert plan.verdicts["a/poor"].status is GangStatus.WAITING
    assert {order.node for order in plan.evictions} == {"ours"}


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

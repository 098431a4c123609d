"""Only some nodes are ours: the plan and its shares are made of those alone."""

from __future__ import annotations

from extender.model.gang import GangKey
from extender.model.reason import Reason
from extender.model.resources import CPU
from extender.planner.explain.explain import explain
from extender.planner.plan import GangStatus
from extender.planner.planner import make_plan
from extender.planner.policy_parser import DEFAULT
from tests.builders import amounts, gang, node, queue, snapshot

OURS = node("ours", cpu=4)
OTHER = node("other", cpu=16, managed=False)


def test_a_gang_is_given_none_but_nodes_of_ours() -> None:
    plan = make_plan(snapshot([OURS, OTHER], [gang("a/train", 4, cpu=1)]))

    assert set(plan.placements["a/train"].placements.values()) == {"ours"}


def test_queues_share_the_nodes_of_ours_alone() -> None:
    gangs = [gang("a/left", 4, cpu=1, queue="left"), gang("a/right", 4, cpu=1, queue="right")]
    plan = make_plan(snapshot([OURS, OTHER], gangs, [queue("left"), queue("right")]))

    assert plan.total[CPU] == 4000
    assert plan.unused.amount(CPU) == 0
    assert {figures.deserved[CPU] for figures in plan.queues.values() if figures.deserved} == {2000}


def test_a_gang_that_only_nodes_of_others_could_hold_is_told_how_many_there_are() -> None:
    plan = make_plan(snapshot([OURS, OTHER], [gang("a/train", 8, cpu=1)]))

    verdict = plan.verdicts["a/train"]
    assert verdict.reason is Reason.NODE_NOT_MANAGED
    assert verdict.message == (
        "needs 8 x 1 cpu; the empty cluster has 4 such slots: 1 node outside --node-selector"
    )


def test_a_gang_that_no_node_at_all_could_hold_exceeds_the_cluster() -> None:
    plan = make_plan(snapshot([OURS, OTHER], [gang("a/train", 8, cpu=5)]))

    assert plan.verdicts["a/train"].reason is Reason.EXCEEDS_CLUSTER


def test_it_would_start_with_a_label_on_the_nodes_of_others() -> None:
    state = snapshot([OURS, OTHER], [gang("a/train", 8, cpu=1)])
    told = explain(state, make_plan(state), DEFAULT, GangKey("a/train"))

    assert told is not None
    assert told.remedies[0] == "a label of --node-selector on node other"


def test_where_no_node_is_ours_that_is_the_reason() -> None:
    plan = make_plan(snapshot([OTHER], [gang("a/train", 1, cpu=1)]))

    assert plan.verdicts["a/train"].message.endswith("0 such slots: 1 node outside --node-selector")


def test_a_node_of_others_that_is_shut_is_no_remedy() -> None:
    shut = node("other", cpu=2, managed=False, ready=False)
    state = snapshot([OURS, shut], [gang("a/train", 8, cpu=1)])
    told = explain(state, make_plan(state), DEFAULT, GangKey("a/train"))

    assert told is not None
    assert told.remedies
    assert not any("other" in words for words in told.remedies)


def test_whoever_runs_on_a_node_of_others_counts_in_its_queue() -> None:
    gangs = [
        gang("a/before", 2, cpu=1, queue="small", on=["other", "other"]),
        gang("a/more", 1, cpu=1, queue="small"),
    ]
    small = queue("small", capability=amounts(cpu=2))
    plan = make_plan(snapshot([OURS, OTHER], gangs, [small]))

    assert plan.queues["small"].allocated[CPU] == 2000
    assert plan.verdicts["a/more"].reason is Reason.QUEUE_AT_CAPABILITY


def test_nobody_has_to_leave_a_node_of_others() -> None:
    gangs = [
        gang("a/rich", 8, cpu=1, min_member=1, queue="rich", on=["other"] * 8),
        gang("a/full", 4, cpu=1, min_member=1, queue="rich", on=["ours"] * 4),
        gang("a/poor", 2, cpu=1, queue="poor"),
    ]
    plan = make_plan(snapshot([OURS, OTHER], gangs, [queue("rich"), queue("poor")]))

    assert plan.verdicts["a/poor"].standing is GangStatus.WAITING
    assert {order.node for order in plan.evictions} == {"ours"}

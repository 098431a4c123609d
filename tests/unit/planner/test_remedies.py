"""Every suggestion that would let a gang start was tried in the planner."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from extender.model.gang import GangKey
from extender.model.pod import NodeTerm, Requirement, Shape
from extender.model.queue import Queue, QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.planner import make_plan
from tests.builders import NOW, pod
from tests.scene import gang
from tests.strategies import examples
from tests.unit.planner.explain_output import cpu, queues, running, seen, waiting, would_start_with
from tests.unit.planner.test_unused_capacity_properties import POLICIES, clusters

VOLCANO = policy_parser.parse("compatibility: volcano")
FULL = running("held", ["n0"] * 7)


def test_the_suggested_capacity_is_exactly_what_is_missing() -> None:
    assert would_start_with(seen(waiting("train", 1, 1, 1), FULL)) == [
        "capacity for 2 more members of 1 cpu each"
    ]


def test_one_missing_member_names_the_node_that_lacks_least() -> None:
    crowded = seen(waiting("train", 1, 1), FULL, running("more", ["n1"] * 8), cpus=[8, 8])

    assert would_start_with(crowded) == [
        "capacity for 1 more member of 1 cpu each",
        "1 cpu more free on node n1",
    ]


def test_a_higher_ceiling_is_suggested_and_not_the_weight() -> None:
    before = seen(waiting("train", *[1] * 8), cpus=[16], among=queues(capability=cpu(4)))

    assert would_start_with(before) == ["4 cpu more capability of queue left"]


def test_less_in_use_helps_only_where_enough_is_in_use() -> None:
    held = running("held", ["n0"] * 2)
    before = seen(waiting("train", 1, 1, 1), held, cpus=[16], among=queues(capability=cpu(4)))

    assert would_start_with(before) == [
        "1 cpu more capability of queue left",
        "1 cpu less in use by queue left",
    ]


def test_a_change_that_is_not_enough_by_itself_is_suggested_with_the_rest() -> None:
    before = seen(waiting("train", *[1] * 20), cpus=[16], among=queues(capability=cpu(4)))

    assert would_start_with(before) == [
        "capacity for 4 more members of 1 cpu each: the cluster, empty, takes 16 of 20,"
        " and 16 cpu more capability of queue left"
    ]


def test_making_closed_nodes_available_is_suggested() -> None:
    twelve = waiting("train", *[1] * 12)

    assert would_start_with(seen(twelve, cpus=[8, 8], unready=["n1"]))[0] == "node n1 ready again"
    assert would_start_with(seen(twelve, cpus=[8, 8], cordoned=["n1"]))[0] == "node n1 uncordoned"
    assert would_start_with(seen(twelve, cpus=[8, 8], unready=["n0"], cordoned=["n1"]))[0] == (
        "nodes n0 and n1 ready and uncordoned"
    )


def test_the_smallest_weight_that_is_enough_is_suggested() -> None:
    other = waiting("other", *[1] * 8, queue="right")
    before = seen(waiting("train", *[1] * 5), other, among=queues(weight=1))

    said = would_start_with(before, policy=VOLCANO)

    assert "weight 2 of queue left instead of 1" in said
    assert not any(words.startswith("weight 4") for words in said)


def test_less_use_is_suggested_for_a_queue_over_its_deserved_share() -> None:
    held, other = running("held", ["n0"] * 4), waiting("other", *[1] * 8, queue="right")

    said = would_start_with(seen(waiting("train", 1, 1), held, other), policy=VOLCANO)

    assert said[0] == "2 cpu less in use by queue left"


def test_lending_an_unused_guarantee_is_suggested() -> None:
    among = [Queue(name="left"), Queue(name="right", guarantee=cpu(4))]

    assert would_start_with(seen(waiting("train", *[1] * 6), among=among)) == [
        "queue right lending its guarantee (`guarantee.lend: true`)",
        "capacity for 6 more members of 1 cpu each",
    ]


def test_lending_several_guarantees_is_suggested_where_one_is_not_enough() -> None:
    among = [Queue(name="left"), *(Queue(name=name, guarantee=cpu(3)) for name in ("r1", "r2"))]

    assert would_start_with(seen(waiting("train", *[1] * 8), among=among)) == [
        "queues r1 and r2 lending their guarantee (`guarantee.lend: true`)",
        "capacity for 8 more members of 1 cpu each",
    ]


def test_gangs_that_would_go_first_are_named_only_where_nothing_else_helps() -> None:
    first = [waiting(f"first-{n}", 1, 1, created=NOW - 60) for n in range(9)]

    assert would_start_with(seen(waiting("train", *[1] * 4), *first, FULL)) == [
        "capacity for 3 more members of 1 cpu each, and no other gang waiting"
    ]


def test_the_gang_that_went_first_is_named() -> None:
    old = waiting("old", *[1] * 6, created=NOW - 60)

    assert would_start_with(seen(waiting("train", *[1] * 6), old)) == [
        "a/old gone, which is ahead",
        "capacity for 4 more members of 1 cpu each",
    ]


def test_a_gang_that_waits_for_victims_says_how_many() -> None:
    held = running("held", ["n0"] * 6, queue="right")

    assert would_start_with(seen(waiting("train", *[1] * 4), held)) == [
        "6 pods gone, evicted for it"
    ]


def test_opening_a_queue_is_suggested_with_what_is_missing_then() -> None:
    closed = queues(state=QueueState.CLOSED)

    assert would_start_with(seen(waiting("train", 1), among=closed)) == ["queue left opened again"]
    assert would_start_with(seen(waiting("train", *[1] * 9), among=closed)) == [
        "capacity for 1 more member of 1 cpu each: the cluster, empty, takes 8 of 9,"
        " and queue left opened again"
    ]


def test_creating_a_missing_queue_is_suggested() -> None:
    assert would_start_with(seen(waiting("train", 1, queue="none"))) == [
        "a Queue none, or another queue named in its PodGroup"
    ]


def test_allowing_the_queue_for_the_namespace_is_suggested() -> None:
    barred = replace(
        waiting("train", 1), problem=Problem(Reason.QUEUE_NOT_ALLOWED, "it may not use it")
    )

    assert would_start_with(seen(barred)) == ["queue left allowed for namespace a"]


def test_missing_members_are_assumed_to_be_like_the_existing_ones() -> None:
    assert would_start_with(seen(waiting("train", 1, 1, min_member=5))) == [
        "3 more pods that name a/train; it has 2"
    ]
    assert would_start_with(seen(waiting("train", 1, 1, min_member=9))) == [
        "7 more pods that name a/train; it has 2,"
        " and capacity for 1 more member of 1 cpu each: the cluster, empty, takes 8 of 9"
    ]


def test_members_with_unknown_requests_cannot_be_tried() -> None:
    assert would_start_with(seen(gang("train", [], min_member=2))) == [
        "2 more pods that name a/train; not tried: their requests are not known yet"
    ]


def test_removing_scheduling_gates_is_suggested() -> None:
    gated = [pod(f"train-{n}", gated=True) for n in range(2)]

    assert would_start_with(seen(gang("train", gated))) == [
        "the scheduling gates of 2 of its pods removed"
    ]


def test_a_gang_that_no_administrator_could_help_is_told_so() -> None:
    nowhere = Shape(
        requests=Resources({"cpu": 1000, "pods": 1}),
        affinity=(NodeTerm(labels=(Requirement("zone", "In", ("somewhere",)),)),),
    )
    before = seen(gang("train", [pod("train-0", shape=nowhere)]))

    assert would_start_with(before) == [
        "nothing was found that an administrator could change; not sufficient:"
        " capacity for 1 more member of 1 cpu each: the cluster, empty, takes 0 of 1"
    ]


def test_an_invalid_pod_group_is_for_its_owner_to_fix() -> None:
    broken = replace(
        waiting("train", 1), problem=Problem(Reason.POD_GROUP_MISSING, "there is none")
    )

    assert would_start_with(seen(broken)) == [
        "nothing an administrator could change: its owner has to create or fix its PodGroup"
    ]


@pytest.mark.parametrize("policy", POLICIES)
@given(before=clusters())
@settings(max_examples=examples(25))
def test_every_waiting_gang_has_a_remedy_and_trying_it_changes_nothing(
    policy: str, before: Snapshot
) -> None:
    decided = make_plan(before, POLICIES[policy])

    for key in before.gangs:
        told = explain(before, decided, POLICIES[policy], GangKey(key))
        assert told is not None
        assert bool(told.remedies) == (told.verdict.status.value in ("waiting", "invalid"))
    again = make_plan(before, POLICIES[policy])
    assert (again.verdicts, again.placements) == (decided.verdicts, decided.placements)

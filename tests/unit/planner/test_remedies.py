"""Every suggestion that would let a gang start was tried in the planner."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from extender.model.gang import Gang, GangKey
from extender.model.pod import NodeTerm, Requirement, Shape
from extender.model.queue import Queue, QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner.explain.explain import explain
from extender.planner.planner import make_plan
from tests.builders import NOW, pod
from tests.scene import gang
from tests.strategies import examples
from tests.unit.planner.explain_output import cpu, queues, running, seen, waiting, would_start_with
from tests.unit.planner.plans import VOLCANO
from tests.unit.planner.test_unused_capacity_properties import POLICIES, clusters

FULL = running("held", ["n0"] * 7)
SIX, EIGHT = (waiting("train", *[1] * number) for number in (6, 8))
NOWHERE = Shape(
    requests=Resources({"cpu": 1000, "pods": 1}),
    affinity=(NodeTerm(labels=(Requirement("zone", "In", ("somewhere",)),)),),
)
CLOSED = queues(state=QueueState.CLOSED)
LOW_CEILING = queues(capability=cpu(4))


def with_problem(reason: Reason) -> Gang:
    return replace(waiting("train", 1), problem=Problem(reason, "it may not"))


def guaranteeing(cores: int, *names: str) -> list[Queue]:
    return [Queue(name="left"), *(Queue(name=name, guarantee=cpu(cores)) for name in names)]


#: What is the matter, the cluster, and what would let the gang start there.
CASES: dict[str, tuple[Snapshot, list[str]]] = {
    "the capacity that is missing": (
        seen(waiting("train", 1, 1, 1), FULL),
        ["capacity for 2 more members of 1 cpu each"],
    ),
    "one missing member: the node that lacks least": (
        seen(waiting("train", 1, 1), FULL, running("more", ["n1"] * 8), cpus=[8, 8]),
        ["capacity for 1 more member of 1 cpu each", "1 cpu more free on node n1"],
    ),
    "a higher ceiling, not the weight": (
        seen(EIGHT, cpus=[16], among=LOW_CEILING),
        ["4 cpu more capability of queue left"],
    ),
    "less in use where enough is in use": (
        seen(waiting("train", 1, 1, 1), running("held", ["n0"] * 2), cpus=[16], among=LOW_CEILING),
        ["1 cpu more capability of queue left", "1 cpu less in use by queue left"],
    ),
    "a change that is not enough by itself": (
        seen(waiting("train", *[1] * 20), cpus=[16], among=LOW_CEILING),
        [
            "capacity for 4 more members of 1 cpu each: the cluster, empty, takes 16 of 20,"
            " and 16 cpu more capability of queue left"
        ],
    ),
    "an unused guarantee that can be lent": (
        seen(SIX, among=guaranteeing(4, "right")),
        [
            "queue right lending its guarantee (`guarantee.lend: true`)",
            "capacity for 6 more members of 1 cpu each",
        ],
    ),
    "several guarantees, of which one is not enough": (
        seen(EIGHT, among=guaranteeing(3, "r1", "r2")),
        [
            "queues r1 and r2 lending their guarantee (`guarantee.lend: true`)",
            "capacity for 8 more members of 1 cpu each",
        ],
    ),
    "gangs that would go first, where nothing else helps": (
        seen(
            waiting("train", *[1] * 4),
            *(waiting(f"first-{n}", 1, 1, created=NOW - 60) for n in range(9)),
            FULL,
        ),
        ["capacity for 3 more members of 1 cpu each, and no other gang waiting"],
    ),
    "a gang that went first": (
        seen(SIX, waiting("old", *[1] * 6, created=NOW - 60)),
        ["a/old gone, which is ahead", "capacity for 4 more members of 1 cpu each"],
    ),
    "victims": (
        seen(waiting("train", *[1] * 4), running("held", ["n0"] * 6, queue="right")),
        ["6 pods gone, evicted for it"],
    ),
    "a closed queue": (
        seen(waiting("train", 1), among=CLOSED),
        ["queue left opened again"],
    ),
    "a closed queue and too little capacity": (
        seen(waiting("train", *[1] * 9), among=CLOSED),
        [
            "capacity for 1 more member of 1 cpu each: the cluster, empty, takes 8 of 9,"
            " and queue left opened again"
        ],
    ),
    "a missing queue": (
        seen(waiting("train", 1, queue="none")),
        ["a Queue none, or another queue named in its PodGroup"],
    ),
    "a queue that its namespace may not use": (
        seen(with_problem(Reason.QUEUE_NOT_ALLOWED)),
        ["queue left allowed for namespace a"],
    ),
    "missing members, taken to be like the others": (
        seen(waiting("train", 1, 1, min_member=5)),
        ["3 more pods that name a/train; it has 2"],
    ),
    "missing members and too little capacity": (
        seen(waiting("train", 1, 1, min_member=9)),
        [
            "7 more pods that name a/train; it has 2,"
            " and capacity for 1 more member of 1 cpu each: the cluster, empty, takes 8 of 9"
        ],
    ),
    "members of unknown size": (
        seen(gang("train", [], min_member=2)),
        ["2 more pods that name a/train; not tried: their requests are not known yet"],
    ),
    "scheduling gates": (
        seen(gang("train", [pod(f"train-{n}", gated=True) for n in range(2)])),
        ["the scheduling gates of 2 of its pods removed"],
    ),
    "nothing that an administrator could do": (
        seen(gang("train", [pod("train-0", shape=NOWHERE)])),
        [
            "nothing was found that an administrator could change; not sufficient:"
            " capacity for 1 more member of 1 cpu each: the cluster, empty, takes 0 of 1"
        ],
    ),
    "a PodGroup for its owner to fix": (
        seen(with_problem(Reason.POD_GROUP_MISSING)),
        ["nothing an administrator could change: its owner has to create or fix its PodGroup"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_would_let_the_gang_start_is_suggested(case: str) -> None:
    before, suggested = CASES[case]

    assert would_start_with(before) == suggested


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

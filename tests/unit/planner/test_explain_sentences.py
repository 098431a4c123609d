"""The messages that `explain` shows for a gang are true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.model.gang import Gang, Phase
from extender.model.node import HostPorts
from extender.model.pod import HostPort, PodUid, Shape, Status
from extender.model.queue import Queue
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.obstacles import ProtectedPods
from extender.planner.policy import Policy
from extender.planner.session import Session
from tests.builders import pod
from tests.scene import budget, gang, node_table, snapshot
from tests.unit.planner.explain_output import cpu, family, queues, running, said, seen, waiting
from tests.unit.planner.plans import CAPACITY, VOLCANO


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy_parser.DEFAULT, id="default"),
        pytest.param(CAPACITY, id="capacity"),
        pytest.param(VOLCANO, id="volcano"),
    ],
)
@pytest.mark.parametrize("others", [(), (waiting("other", *[1] * 8, queue="right"),)])
def test_a_gang_above_its_queues_ceiling_says_so_and_names_the_ceiling(
    policy: Policy, others: tuple[()]
) -> None:
    train = waiting("train", *[1] * 8)

    assert said(
        seen(train, *others, cpus=[16], among=queues(capability=cpu(4))), policy=policy
    ) == ("QueueAtCapability: queue left uses 0 of at most 4 cpu; 8 more would exceed it")


def test_the_ceiling_of_a_parent_queue_is_named_with_the_parent() -> None:
    before = seen(waiting("train", *[1] * 8), cpus=[16], among=family(capability=cpu(4)))

    assert said(before) == (
        "QueueAtCapability: queue above uses 0 of at most 4 cpu; 8 more would exceed it"
    )


def test_members_that_were_only_tried_are_not_counted_as_used() -> None:
    before = seen(waiting("train", 1, 1, 1, 2), cpus=[16], among=queues(capability=cpu(4)))

    assert said(before) == (
        "QueueAtCapability: queue left uses 0 of at most 4 cpu; 5 more would exceed it"
    )


def test_an_empty_cluster_whose_nodes_are_not_ready_says_so() -> None:
    before = seen(waiting("train", *[1] * 4), cpus=[8, 8], unready=["n0", "n1"])

    assert said(before) == (
        "InsufficientCapacity: needs 4 x 1 cpu; the empty cluster has 0 such slots:"
        " 2 nodes not ready"
    )


@pytest.mark.parametrize(
    ("closed", "words"), [({"unready": ["n1"]}, "not ready"), ({"cordoned": ["n1"]}, "cordoned")]
)
def test_a_gang_that_needs_a_closed_node_is_not_called_too_large(
    closed: dict[str, list[str]], words: str
) -> None:
    assert said(seen(waiting("train", *[1] * 12), cpus=[8, 8], **closed)) == (
        "InsufficientCapacity: needs 12 x 1 cpu; the empty cluster has 8 such slots:"
        f" 1 node {words}"
    )
    assert said(seen(waiting("train", *[1] * 20), cpus=[8, 8], **closed)) == (
        f"ExceedsCluster: needs 20 x 1 cpu; the empty cluster has 8 such slots: 1 node {words}"
    )


def test_a_gang_over_its_deserved_share_is_not_told_that_its_members_do_not_fit() -> None:
    # Both kinds of members together request more than is deserved; each kind alone does not.
    train = waiting("train", 1, 3)
    held = running("held", ["n0"] * 2)
    other = waiting("other", *[1] * 4, queue="right")

    assert said(seen(train, held, other, cpus=[8]), policy=VOLCANO) == (
        "QueueOverDeserved: queue left deserves 4 cpu and uses 2; the gang needs 1 x 1 and 1 x 3"
    )


def test_no_victims_are_mentioned_where_no_pod_is_evicted() -> None:
    # Volcano reserves parts of the unused capacity for a gang that cannot start.
    train = waiting("train", *[1] * 8)
    held = running("held", ["n0"] * 2)

    before = seen(train, held, cpus=[16], among=[Queue(name="left", capability=cpu(8))])
    assert said(before, policy=VOLCANO) == (
        "QueueAtCapability: queue left uses 2 of at most 8 cpu; 8 more would exceed it"
    )


def test_ports_and_rejections_of_today_are_no_part_of_the_empty_cluster() -> None:
    ported = Shape(requests=Resources({"cpu": 1000, "pods": 1}), host_ports=(HostPort(80),))
    members = [pod(f"train-{n}", shape=ported) for n in range(3)]
    before = seen(gang("train", members), cpus=[8, 8])
    taken = replace(before.nodes, ports={"n0": HostPorts([HostPort(80)])})
    refused = {ported: frozenset({"n1"})}

    assert said(replace(before, nodes=taken, rejected_nodes=refused)) == (
        "ExceedsCluster: needs 3 x 1 cpu; the empty cluster has 2 such slots"
    )


VIP = gang("vip", 2, status=Status.PENDING, priority=10, phase=Phase.INQUEUE)


def guarded(count: int = 3, **rest: Any) -> Gang:
    members = [pod(f"old-{index}", on="n0", labels={"app": "db"}) for index in range(count)]
    return gang("old", members, phase=Phase.RUNNING, **rest)


def note(seen: Snapshot, mine: Gang = VIP) -> str:
    session = Session(seen, policy_parser.DEFAULT)
    state = session.accounting.state(mine.key)
    assert state is not None
    return ProtectedPods(session).note(state)


def full(*gangs: Gang, **rest: Any) -> Snapshot:
    table = node_table([3])
    table.used[0, 0] = 3000
    return snapshot(*gangs, nodes=table, **rest)


def test_a_budget_that_allows_less_than_is_there_is_named() -> None:
    seen = full(guarded(), VIP, budgets=[budget("keep", 1, app="db")])

    assert note(seen) == "; protected: 3 pods (PodDisruptionBudget a/keep allows 1 disruptions)"


def test_a_budget_that_allows_enough_is_not_named() -> None:
    assert note(full(guarded(), VIP, budgets=[budget("keep", 3, app="db")])) == ""


def test_protected_pods_are_named_with_their_reason() -> None:
    seen = replace(full(guarded(), VIP), protected={PodUid("a-old-0"): "it has only just started"})

    assert note(seen) == "; protected: 1 pod (it has only just started)"


def test_pods_that_would_not_be_evicted_anyway_are_not_counted() -> None:
    keep = [budget("keep", 0, app="db")]

    assert note(full(guarded(priority=10), VIP, budgets=keep)) == ""
    queues = [Queue(name="left"), Queue(name="right", reclaimable=False)]
    assert note(full(guarded(queue="right"), VIP, budgets=keep, queues=queues)) == ""


def test_protected_pods_of_another_queue_count_when_it_is_reclaimable() -> None:
    seen = full(guarded(queue="right"), VIP, budgets=[budget("keep", 0, app="db")])

    assert "3 pods (PodDisruptionBudget a/keep" in note(seen)


def test_remembered_budgets_of_a_gang_are_forgotten_when_they_change() -> None:
    old = guarded()
    strict = note(full(old, VIP, budgets=[budget("keep", 0, app="db")]))
    lenient = note(full(old, VIP, budgets=[budget("keep", 3, app="db")]))

    assert "allows 0 disruptions" in strict
    assert lenient == ""


def test_without_budgets_and_protected_pods_nothing_is_said() -> None:
    assert note(full(guarded(), VIP)) == ""


def test_pods_that_should_have_terminated_long_ago_are_named() -> None:
    stuck = frozenset({PodUid("a-old-0"), PodUid("uid-of-another-scheduler")})
    hanging = gang("old", [pod("old-0", on="n0", status=Status.RELEASING)], phase=Phase.RUNNING)

    assert (
        note(full(hanging, VIP, stuck=stuck)) == "; 2 pods should have terminated long ago: a/old-0"
    )

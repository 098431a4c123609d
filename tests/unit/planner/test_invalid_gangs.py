"""Pods of invalid gangs count in their queue, and they may be evicted like others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from extender.cache.changes import SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.model.gang import COSCHEDULING, VOLCANO, Gang, GangKey, Membership, PodGroup
from extender.model.pod import Status
from extender.model.queue import Namespace, PriorityClass
from extender.model.reason import Problem, Reason
from extender.planner.plan import GangStatus
from extender.planner.planner import make_plan
from extender.sim.clock import VirtualClock
from tests.builders import SOON, amounts, gang, nodes, pod, queue, shape, snapshot

MISSING = Problem(Reason.POD_GROUP_MISSING, "PodGroup a/lost does not exist")


def orphaned(key: str, size: int, name: str, where: str, **rest: object) -> Gang:
    """A gang whose PodGroup is gone, all of it running on one node."""
    left = gang(key, size, on=[where] * size, queue=name, min_member=1, cpu=1, **rest)  # type: ignore[arg-type]
    return replace(left, problem=MISSING)


def test_pods_of_an_invalid_gang_count_in_its_queue() -> None:
    plan = make_plan(snapshot(nodes(1), [orphaned("a/lost", 4, "left", "n1")], [queue("left")]))

    assert plan.queues["left"].allocated == amounts(cpu=4, pods=4)
    assert plan.verdicts["a/lost"].status is GangStatus.INVALID


def test_deleting_a_pod_group_starts_nothing_beyond_the_ceiling_of_its_queue() -> None:
    plan = make_plan(
        snapshot(
            nodes(2),
            [orphaned("a/lost", 4, "left", "n1"), gang("a/next", 4, queue="left", cpu=1)],
            [queue("left", capability=amounts(cpu=4))],
        )
    )

    assert not plan.placements
    assert plan.verdicts["a/next"].reason is Reason.QUEUE_AT_CAPABILITY


def test_an_invalid_gang_is_evicted_for_what_another_queue_deserves() -> None:
    plan = make_plan(
        snapshot(
            nodes(2),
            [
                orphaned("a/lost", 4, "left", "n1"),
                orphaned("a/stray", 4, "left", "n2"),
                gang("b/due", 2, queue="right", cpu=1),
            ],
            [queue("left"), queue("right")],
        )
    )

    assert len(plan.evictions) == 2
    assert {each.beneficiary for each in plan.evictions} == {"b/due"}


def test_waiting_members_of_an_invalid_gang_do_not_count_as_requested() -> None:
    lost = replace(gang("a/lost", 4, on=["n1"], queue="left", cpu=1), problem=MISSING)
    plan = make_plan(snapshot(nodes(2), [lost], [queue("left")]))

    assert plan.queues["left"].requested == amounts(cpu=1, pods=1)
    assert not plan.placements


def test_an_invalid_gang_with_too_few_members_is_not_below_its_minimum() -> None:
    below_minimum = gang("a/short", 4, on=["n1"], queue="left", cpu=1)

    assert below_minimum.is_below_minimum
    assert not replace(below_minimum, problem=MISSING).is_below_minimum


def test_the_remark_on_a_gang_ends_the_message_of_its_verdict() -> None:
    waiting = replace(gang("a/large", 9, cpu=1), remark="priority class high does not count")
    running = replace(gang("a/small", 1, on=["n1"], cpu=1), remark="and so on")
    plan = make_plan(snapshot(nodes(1), [waiting, running]))

    assert plan.verdicts["a/large"].message.endswith("; priority class high does not count")
    assert plan.verdicts["a/small"].message == "1 of at least 1 members run; and so on"


SYSTEM = {"priority": 2_000_000_000, "priority_class": "system-cluster-critical"}
NOTHING_LARGE = shape()


def members(
    namespace: str, name: str, least: int, count: int, dialect: str, **rest: Any
) -> Iterator[PodGroup | SeenPod]:
    """A PodGroup and *count* pods of one cpu."""
    yield PodGroup(
        namespace=namespace, name=name, min_member=least, dialect=dialect, priority_class="high"
    )
    for n in range(count):
        one = pod(f"{name}-{n}", shape(cpu=1), namespace=namespace, **rest)
        yield member(name, one)


def member(name: str, one: Any) -> SeenPod:
    return SeenPod(one, Membership(key=GangKey(f"{one.namespace}/{name}"), named=True))


def plan_beside_a_full_node(*others: Any) -> Any:
    """The plan where gang b/works of priority 500 fills the only node."""
    mirror = Cluster(VirtualClock())
    mirror.require_namespaces()
    classes = (
        PriorityClass(name="system-cluster-critical", value=2_000_000_000),
        PriorityClass(name="high", value=1000),
    )
    works = members("b", "works", 4, 4, VOLCANO, on="n1", priority=500)
    namespaces = (Namespace(name=name) for name in "ab")
    for each in (*nodes(1), *namespaces, *classes, *works, *others):
        mirror.apply(Upsert(each))
    return make_plan(mirror.snapshot(SOON))


@pytest.mark.parametrize("dialect", [VOLCANO, COSCHEDULING])
@pytest.mark.parametrize(
    "one",
    [
        pytest.param({"gated": True, **SYSTEM}, id="gated"),
        pytest.param({"status": Status.SUCCEEDED, "on": "n1", **SYSTEM}, id="succeeded"),
        pytest.param({"gated": True, "priority": 5000}, id="gated, without a class"),
        pytest.param({"priority": 5000}, id="starts with the others"),
    ],
)
def test_one_pod_of_a_high_class_evicts_no_pods_for_a_gang_of_others(
    one: dict[str, Any], dialect: str
) -> None:
    plan = plan_beside_a_full_node(
        *members("a", "liar", 4, 4, dialect),
        member("liar", pod("vip", NOTHING_LARGE, **one)),
    )

    assert not plan.evictions
    assert plan.verdicts["a/liar"].status is GangStatus.WAITING


@pytest.mark.parametrize("dialect", [COSCHEDULING, ""])
def test_a_gang_whose_members_all_have_a_high_priority_evicts_others(dialect: str) -> None:
    plan = plan_beside_a_full_node(*members("a", "train", 4, 4, dialect, priority=5000))

    assert {each.beneficiary for each in plan.evictions} == {"a/train"}
    assert len(plan.evictions) == 4

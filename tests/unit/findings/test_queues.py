"""Findings about queues, alone and together."""

from __future__ import annotations

from typing import Any

import pytest

from extender.findings.finding import Finding
from extender.findings.queues import of_queues
from extender.model.queue import Queue
from extender.model.queue_tree import MAX_DEPTH
from extender.model.resources import NOTHING, Resources

CLUSTER = Resources.parse({"cpu": "8", "memory": "16Gi"})


def amounts(**quantities: str) -> Resources:
    return Resources.parse(quantities)


def found(*queues: Queue, cluster: Resources = CLUSTER) -> list[Finding]:
    return of_queues({queue.name: queue for queue in queues}, cluster)


def sentences(*queues: Queue, cluster: Resources = CLUSTER) -> list[tuple[str, str, str]]:
    return [(each.name, each.reason, each.message) for each in found(*queues, cluster=cluster)]


def test_valid_queues_have_no_finding() -> None:
    org = Queue(name="org", guarantee=amounts(cpu="4"), capability=amounts(cpu="8"))
    team = Queue(
        name="team", parent="org", guarantee=amounts(cpu="4"), deserved=amounts(cpu="4", memory="9")
    )

    assert found(org, team, Queue(name="default"), Queue(name="open", parent="root")) == []


THREE, TWO = amounts(cpu="3"), amounts(cpu="2")
CHILDREN = (
    Queue(name="a", parent="org", guarantee=THREE),
    Queue(name="b", parent="org", guarantee=TWO),
)
MISTAKES = {
    "a guarantee above the capability": (
        (Queue(name="a", guarantee=amounts(cpu="4"), capability=amounts(cpu="1500m")),),
        ("a", "GuaranteeAboveCapability"),
        "queue a is guaranteed 4 cpu and may have at most 1500m; lower spec.guarantee.resource or"
        " raise spec.capability",
    ),
    "a deserved share above the capability": (
        (Queue(name="a", deserved=amounts(memory="2Gi"), capability=amounts(memory="1Gi")),),
        ("a", "DeservedAboveCapability"),
        "queue a deserves 2Gi memory and may have at most 1Gi; lower spec.deserved or raise"
        " spec.capability",
    ),
    "a missing parent with a similar name": (
        (Queue(name="research"), Queue(name="team", parent="reserch")),
        ("team", "ParentMissing"),
        "queue team is below queue reserch, which does not exist; create it or change spec.parent;"
        " did you mean research?",
    ),
    "children guaranteed more than their parent": (
        (Queue(name="org", guarantee=amounts(cpu="4"), capability=amounts(cpu="8")), *CHILDREN),
        ("org", "GuaranteesAboveParent"),
        "the queues below org are guaranteed 5 cpu together, and it is itself guaranteed only 4;"
        " lower their guarantees or raise its own",
    ),
    "children guaranteed more than the capability of their parent": (
        (
            Queue(name="org", guarantee=amounts(memory="1Gi"), capability=amounts(cpu="4")),
            *CHILDREN,
        ),
        ("org", "GuaranteesAboveParent"),
        "the queues below org are guaranteed 5 cpu together, and it may have at most 4; lower"
        " their guarantees or raise its own",
    ),
    "a field without effect": (
        (Queue(name="a", ignored_fields=("spec.type",)),),
        ("a", "IgnoredField"),
        "spec.type of queue a has no effect here; remove it",
    ),
    "fields without effect": (
        (Queue(name="b", ignored_fields=("spec.type", "spec.affinity")),),
        ("b", "IgnoredField"),
        "spec.type and spec.affinity of queue b have no effect here; remove them",
    ),
    "no weight": (
        (Queue(name="a", weight=0),),
        ("a", "WeightZero"),
        "queue a has weight 0 and so no share of its own; set spec.weight to 1 or more",
    ),
    "a field that cannot be read": (
        (Queue(name="b", weight=0, problem="it is odd"),),
        ("b", "Unreadable"),
        "queue b cannot be used: it is odd",
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_each_kind_of_mistake_is_one_finding_that_names_the_fix(kind: str) -> None:
    queues, place, message = MISTAKES[kind]

    assert found(*queues) == [Finding("Queue", *place, message)]


@pytest.mark.parametrize("capability", [NOTHING, amounts(memory="1Gi"), amounts(cpu="0")])
def test_a_resource_without_a_capability_is_no_finding(capability: Resources) -> None:
    assert found(Queue(name="a", guarantee=amounts(cpu="4"), capability=capability)) == []


def test_a_capability_of_no_devices_limits_them() -> None:
    none = Resources.parse({"nvidia.com/gpu": "0"})
    one = Resources.parse({"nvidia.com/gpu": "1"})

    assert [each.reason for each in found(Queue(name="a", guarantee=one, capability=none))] == [
        "GuaranteeAboveCapability"
    ]


def test_a_missing_parent_with_no_similar_name_is_found_without_a_hint() -> None:
    (only,) = sentences(Queue(name="team", parent="zzz"))

    assert only[2].endswith("create it or change spec.parent")


def test_every_queue_in_a_cycle_of_parents_is_found_and_queues_below_it_are_not() -> None:
    queues = (
        Queue(name="a", parent="b"),
        Queue(name="b", parent="a"),
        Queue(name="below", parent="a"),
        Queue(name="own", parent="own"),
    )

    assert sentences(*queues) == [
        (
            "a",
            "ParentCycle",
            "queue a is its own ancestor (a below b below a); change spec.parent of one of them",
        ),
        (
            "b",
            "ParentCycle",
            "queue b is its own ancestor (b below a below b); change spec.parent of one of them",
        ),
        (
            "own",
            "ParentCycle",
            "queue own is its own ancestor (own below own); change spec.parent of one of them",
        ),
    ]


def nested(count: int, **each: Any) -> list[Queue]:
    """Return queues each of which is the child of the one before it."""
    return [
        Queue(name=f"q{n:03}", parent=f"q{n - 1:03}" if n else "", **each) for n in range(count)
    ]


def test_hundreds_of_nested_queues_are_found_where_they_are_too_deep() -> None:
    results = found(*nested(800))

    assert [each.name for each in results] == [f"q{n:03}" for n in range(MAX_DEPTH, 800)]
    assert {each.reason for each in results} == {"TooDeep"}
    assert results[0].message == (
        "queue q032 is 32 levels below the top, and 31 is the maximum; change spec.parent of it"
        " or of one above"
    )


def test_guarantees_deep_down_are_still_added_up() -> None:
    results = found(*nested(800, guarantee=amounts(cpu="1")), Queue(name="a", guarantee=CLUSTER))

    above = [each for each in results if each.reason == "GuaranteesAboveCluster"]
    assert [each.name for each in above] == ["a", "q000"]
    assert "are guaranteed 9 cpu" in above[0].message


def test_a_large_cycle_is_named_by_its_first_queues() -> None:
    around = [*nested(800)[1:], Queue(name="q000", parent="q799")]

    results = found(*around)

    assert {each.reason for each in results} == {"ParentCycle"}
    assert len(results) == 800
    assert max(len(each.message) for each in results) < 300
    assert results[0].message.startswith(
        "queue q000 is its own ancestor (q000 below q799 below q798 "
    )


def test_thousands_of_queues_without_their_parent_are_found_without_a_search_for_each() -> None:
    results = found(*(Queue(name=f"q{n}", parent=f"p{n}") for n in range(5000)))

    assert len(results) == 5000
    assert not any("did you mean" in each.message for each in results)


def test_guarantees_far_below_a_capability_are_found_only_at_the_queue_that_has_it() -> None:
    queues = (
        Queue(name="all", capability=amounts(cpu="4")),
        Queue(name="org", parent="all", capability=amounts(cpu="4")),
        Queue(name="dept", parent="org"),
        Queue(name="a", parent="dept", guarantee=amounts(cpu="3")),
        Queue(name="b", parent="dept", guarantee=amounts(cpu="2")),
    )

    assert [(each.name, each.reason) for each in found(*queues)] == [
        ("org", "GuaranteesAboveParent")
    ]


def test_guarantees_above_the_cluster_are_found_at_every_top_queue_that_has_a_part() -> None:
    queues = (
        Queue(name="a", guarantee=amounts(cpu="5")),
        Queue(name="org"),
        Queue(name="team", parent="org", guarantee=amounts(cpu="4")),
        Queue(name="free", guarantee=amounts(memory="1Gi")),
    )

    assert sentences(*queues) == [
        (
            name,
            "GuaranteesAboveCluster",
            "all queues together are guaranteed 9 cpu and the cluster has 8; lower the guarantee"
            f" of {name} or of another",
        )
        for name in ("a", "org")
    ]


def test_a_root_queue_object_is_the_parent_of_top_queues() -> None:
    queues = (Queue(name="root"), Queue(name="a", guarantee=amounts(cpu="9")))

    assert [(each.name, each.reason) for each in found(*queues)] == [
        ("a", "GuaranteesAboveCluster")
    ]


def test_nothing_is_compared_with_a_cluster_without_nodes() -> None:
    assert found(Queue(name="a", guarantee=amounts(cpu="9")), cluster=NOTHING) == []

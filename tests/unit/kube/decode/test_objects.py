from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.kube.decode import objects, resources
from extender.model.annotations import ALLOWED_CLASSES, ALLOWED_QUEUES, GUARANTEE, HOME_QUEUE, LIMIT
from extender.model.node import Node, Taint
from extender.model.pod import Requirement
from extender.model.queue import Namespace, PriorityClass
from extender.model.resources import Resources
from extender.model.snapshot import DisruptionBudget, ResourceQuota
from tests import objects as make


def node(**rest: Any) -> Node:
    return objects.to_node(msgspec.convert(make.node("n", ready=True) | rest, objects.RawNode))


def test_a_node_is_read_with_its_allocatable_and_taints() -> None:
    read = node(
        metadata={"name": "n", "labels": {"zone": "a"}},
        spec={
            "unschedulable": True,
            "taints": [
                {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                {"key": "x", "effect": "NoExecute"},
            ],
        },
    )

    assert dict(read.allocatable) == {"cpu": 4000, "memory": 16 << 30, "pods": 110}
    assert read.labels == {"zone": "a"}
    assert read.taints == (Taint("gpu", "yes", "NoSchedule"), Taint("x", "", "NoExecute"))
    assert (read.unschedulable, read.ready) == (True, True)


@pytest.mark.parametrize("conditions", [None, [], [{"type": "Ready", "status": "Unknown"}]])
def test_a_node_is_ready_only_if_it_says_so(conditions: Any) -> None:
    assert not node(status={"conditions": conditions}).ready


@pytest.mark.parametrize(
    ("labels", "is_ours"),
    [({"pool": "b"}, True), ({"pool": "c"}, False), ({"zone": "a"}, False), (None, False)],
)
def test_a_node_with_any_of_the_labels_is_managed(labels: Any, is_ours: bool) -> None:
    thing = make.node("n") | {"metadata": {"name": "n", "labels": labels}}
    raw = msgspec.convert(thing, objects.RawNode)

    assert objects.to_node(raw, {("pool", "a"), ("pool", "b")}).managed is is_ours
    assert objects.to_node(raw).managed, "without configured labels, all nodes are"


def test_an_unreadable_amount_of_a_node_counts_as_absent() -> None:
    read = node(status={"allocatable": {"cpu": "4", "memory": "much", "odd": "-3"}})

    assert dict(read.allocatable) == {"cpu": 4000, "odd": 0}


def test_the_allowed_queues_of_a_namespace_are_read() -> None:
    annotations = {
        "scheduling.volcano.sh/queue-name": " gold ",
        "gang-extender.io/queues": "gold, silver,,",
        "gang-extender.io/priority-classes": " high,low ",
        "other": "x",
    }
    raw = msgspec.convert(
        {"metadata": {"name": "a", "annotations": annotations}}, objects.RawNamespace
    )

    assert objects.to_namespace(raw) == Namespace(
        name="a",
        queue="gold",
        allowed=frozenset({"gold", "silver"}),
        classes=frozenset({"high", "low"}),
    )


def test_an_empty_list_of_queues_allows_none_and_no_list_allows_all() -> None:
    for notes, allowed in (({}, None), ({"gang-extender.io/queues": ""}, frozenset())):
        thing = {"metadata": {"name": "a", "annotations": notes}}
        raw = msgspec.convert(thing, objects.RawNamespace)

        assert objects.to_namespace(raw).allowed == allowed


@pytest.mark.parametrize("name", [HOME_QUEUE, ALLOWED_QUEUES, ALLOWED_CLASSES, LIMIT, GUARANTEE])
def test_a_null_policy_is_not_an_absent_policy(name: str) -> None:
    thing = {"metadata": {"name": "a", "annotations": {name: None}}}
    codec = next(
        each.decoder for each in resources.resources(frozenset()) if each.name == "namespaces"
    )
    read = codec.item(msgspec.json.encode(thing))

    assert isinstance(read, Namespace)
    assert "cannot be read" in read.problem


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"globalDefault": True}, PriorityClass(name="high", value=9, is_default=True)),
        ({"preemptionPolicy": "Never"}, PriorityClass(name="high", value=9, may_preempt=False)),
    ],
)
def test_a_priority_class_is_read(written: dict[str, Any], expected: PriorityClass) -> None:
    thing = {"metadata": {"name": "high"}, "value": 9, **written}

    assert objects.to_priority_class(msgspec.convert(thing, objects.RawPriorityClass)) == expected


def budget(**facts: Any) -> DisruptionBudget:
    thing = {"metadata": {"name": "b", "namespace": "a"}, **facts}
    return objects.to_budget(msgspec.convert(thing, objects.RawBudget))


def test_a_budget_selects_by_labels_and_expressions() -> None:
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "c", "operator": "NotIn", "values": ["3", "4"]},
            {"key": "d", "operator": "Exists"},
        ],
    }

    assert budget(spec={"selector": selector}).selector == (
        Requirement("a", "In", ("1",)),
        Requirement("b", "In", ("2",)),
        Requirement("c", "NotIn", ("3", "4")),
        Requirement("d", "Exists"),
    )


def test_an_empty_selector_selects_everything_and_none_selects_nothing() -> None:
    assert budget(spec={"selector": {}}).selector == ()
    assert budget(spec={}).selector == (Requirement("", "In"),)


def test_a_disruption_budget_is_read_with_its_disrupted_pods() -> None:
    status = {"disruptionsAllowed": 2, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}}
    read = budget(status=status)

    assert (read.allowed, read.disrupted) == (2, frozenset({"p"}))


def test_a_quota_is_read_from_its_status_with_its_weight() -> None:
    raw = {
        "metadata": {"name": "compute", "namespace": "a"},
        "spec": {"hard": {"requests.cpu": "8", "volcano.sh/namespace.weight": "3"}},
        "status": {
            "hard": {"requests.cpu": "4", "pods": "7", "volcano.sh/namespace.weight": "3"},
            "used": {"requests.cpu": "1500m", "pods": "2", "volcano.sh/namespace.weight": "0"},
        },
    }
    read = objects.to_quota(msgspec.convert(raw, objects.RawQuota))

    assert read == ResourceQuota(
        namespace="a",
        name="compute",
        hard=Resources({"requests.cpu": 4000, "pods": 7}),
        used=Resources({"requests.cpu": 1500, "pods": 2}),
        weight=3,
    )


@pytest.mark.parametrize(
    "scope",
    [
        {"scopes": ["BestEffort"]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}},
    ],
)
def test_a_quota_with_a_scope_is_scoped(scope: dict[str, Any]) -> None:
    raw = {"metadata": {"name": "some", "namespace": "a"}, "spec": scope}
    read = objects.to_quota(msgspec.convert(raw, objects.RawQuota))

    assert read.is_scoped
    assert read.weight == 1


@pytest.mark.parametrize(
    ("written", "least", "part"),
    [
        (3, 3, ""),
        (0, None, ""),
        (-1, None, ""),
        (2**40, None, ""),
        ("50%", None, "50%"),
        (None, None, ""),
    ],
)
def test_the_minimum_available_of_a_disruption_budget_is_read(
    written: Any, least: int | None, part: str
) -> None:
    read = budget(spec={"minAvailable": written})

    assert (read.least, read.part) == (least, part)

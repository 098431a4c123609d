from __future__ import annotations

from typing import Any

import pytest

from extender.model.gang import COSCHEDULING, VOLCANO, Phase, PodGroup
from extender.model.queue import Queue, QueueState
from extender.model.resources import Resources
from tests import objects
from tests.unit.kube.decode.stored import read_group, read_queue


def group(min_member: object = 2, **spec: Any) -> PodGroup:
    return read_group(objects.pod_group("train", min_member=min_member, **spec))


def queue(status: dict[str, Any] | None = None, **spec: Any) -> Queue:
    return read_queue(objects.queue("gold", **spec) | {"status": status or {}})


def test_a_volcano_pod_group_is_read_completely() -> None:
    thing = objects.pod_group(
        "train",
        min_member=4,
        minTaskMember={"worker": 3, "launcher": 1, "ps": 0},
        minResources={"cpu": "4", "nvidia.com/gpu": "8"},
        queue="gold",
        priorityClassName="high",
    )
    thing["metadata"] |= {
        "uid": "uid-train",
        "creationTimestamp": objects.CREATED,
        "annotations": {
            "volcano.sh/sla-waiting-time": "1h",
            "kubectl": "x",
            "volcano.sh/preemptable": "true",
            "volcano.sh/revocable-zone": "x" * 999,
        },
    }
    thing["status"] = {"phase": "Inqueue"}
    read = read_group(thing)

    assert (read.key, read.uid, read.min_member) == ("a/train", "uid-train", 4)
    assert read.min_by_role == {"worker": 3, "launcher": 1}
    assert read.min_resources == Resources({"cpu": 4000, "nvidia.com/gpu": 8})
    assert (read.queue, read.priority_class, read.phase) == ("gold", "high", Phase.INQUEUE)
    assert read.annotations == {"volcano.sh/sla-waiting-time": "1h"}
    assert (read.created, read.dialect, read.problem) == (1767225600.0, VOLCANO, "")


def test_minimum_resources_with_quota_names_are_read_as_node_resources() -> None:
    # Volcano's controllers count a pod as a ResourceQuota would and write every name of it.
    written = {
        "count/pods": "2",
        "pods": "2",
        "cpu": "2",
        "requests.cpu": "2",
        "limits.cpu": "4",
        "memory": "2Gi",
        "requests.memory": "2Gi",
        "limits.memory": "2Gi",
        "nvidia.com/gpu": "8",
        "requests.nvidia.com/gpu": "8",
    }
    read = group(minResources=written)

    assert read.min_resources == Resources(
        {"pods": 2, "cpu": 2000, "memory": 2 << 30, "nvidia.com/gpu": 8}
    )
    assert read.min_limits == Resources(
        {"count/pods": 2, "limits.cpu": 4000, "limits.memory": 2 << 30}
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            {"requests.cpu": "500m", "requests.example.com/device": "1", "limits.memory": "1Gi"},
            Resources({"cpu": 500, "example.com/device": 1}),
        ),
        ({"count/pods": "3", "limits.cpu": "1"}, None),
    ],
)
def test_only_minimum_resources_of_nodes_are_requests(
    written: dict[str, str], expected: Resources | None
) -> None:
    assert group(minResources=written).min_resources == expected


def test_a_pod_group_needs_only_a_name() -> None:
    read = read_group({"metadata": {"name": "x"}}, COSCHEDULING)

    assert read == PodGroup(namespace="default", name="x", dialect=COSCHEDULING, is_phaseless=True)


@pytest.mark.parametrize(
    ("word", "phase"),
    [
        ("Running", Phase.RUNNING),
        ("Finished", Phase.COMPLETED),
        ("PreScheduling", Phase.PENDING),
        ("", Phase.PENDING),
        ("Nonsense", Phase.PENDING),
    ],
)
def test_phases_of_volcano_and_coscheduling_are_read(word: str, phase: Phase) -> None:
    thing = objects.pod_group("train") | {"status": {"phase": word}}

    assert read_group(thing, COSCHEDULING).phase is phase


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"min_member": -1}, "PodGroup a/train: minMember is -1; write a number from 0"),
        ({"min_member": 2**40}, "minMember is 1099511627776"),
        ({"minTaskMember": {"worker": -3}}, "a number in minTaskMember is negative"),
        (
            {"minResources": {"cpu": "lots"}},
            "minResources cannot be read: 'lots' is not a quantity",
        ),
        ({"minResources": {"cpu": "-1"}}, "an amount in minResources is negative"),
        (
            {"networkTopology": {}},
            "networkTopology of mode hard is not supported here; remove it, or set mode soft",
        ),
        (
            {"networkTopology": {"highestTierAllowed": 1}},
            "networkTopology of mode hard is not supported here; remove it, or set mode soft",
        ),
        (
            {"subGroupPolicy": [{"name": "pair", "subGroupSize": 2}]},
            "subGroupPolicy is not supported here; remove it",
        ),
    ],
)
def test_an_invalid_pod_group_says_why(spec: dict[str, Any], complaint: str) -> None:
    assert complaint in group(**spec).problem


@pytest.mark.parametrize(
    ("wishes", "remark"),
    [
        ({"networkTopology": {"mode": "soft"}}, "networkTopology of mode soft has no effect here"),
        ({"networkTopology": None, "subGroupPolicy": None}, ""),
        ({"subGroupPolicy": []}, ""),
    ],
)
def test_a_preference_without_effect_is_valid_and_gets_a_remark(
    wishes: dict[str, Any], remark: str
) -> None:
    assert (group(**wishes).problem, group(**wishes).remark) == ("", remark)


def test_defaults_that_the_crd_fills_in_are_not_reported_as_ignored() -> None:
    assert queue(dequeueStrategy="traverse", extendClusters=[], type="").ignored_fields == ()


def test_a_volcano_queue_is_read_completely() -> None:
    thing = objects.queue(
        "gold",
        weight=3,
        capability={"cpu": "10"},
        deserved={"cpu": "5"},
        guarantee={"resource": {"cpu": "2"}},
        reclaimable=False,
        priority=7,
        parent="root",
    )
    thing["metadata"] |= {
        "uid": "u",
        "annotations": {"volcano.sh/hierarchy": "root/gold", "other": "x"},
    }
    read = read_queue(thing)

    assert (read.name, read.uid, read.weight, read.priority) == ("gold", "u", 3, 7)
    amounts = [each.amount("cpu") for each in (read.capability, read.deserved, read.guarantee)]
    assert amounts == [10_000, 5_000, 2_000]
    assert (read.reclaimable, read.parent) == (False, "root")
    assert read.annotations == {"volcano.sh/hierarchy": "root/gold"}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, QueueState.OPEN),
        ({"state": ""}, QueueState.OPEN),
        ({"state": None}, QueueState.OPEN),
        ({"state": "Open"}, QueueState.OPEN),
        ({"state": "Closed"}, QueueState.CLOSED),
        ({"state": "Closing"}, QueueState.CLOSING),
        ({"state": "Ajar"}, QueueState.UNKNOWN),
    ],
)
def test_a_queue_without_a_state_is_open(status: dict[str, Any], state: QueueState) -> None:
    assert queue(status).state is state


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"weight": -2}, "its weight is -2; write 1 or more"),
        ({"capability": {"cpu": "all"}}, "capability cannot be read"),
        ({"deserved": {"cpu": "-1"}}, "an amount in deserved is negative"),
        ({"guarantee": {"resource": {"cpu": "x"}}}, "guarantee cannot be read"),
    ],
)
def test_an_invalid_queue_says_why(spec: dict[str, Any], complaint: str) -> None:
    assert complaint in queue(**spec).problem
    assert queue(**spec).weight >= 0


@pytest.mark.parametrize(
    ("field", "annotation", "lends"),
    [
        (None, None, False),
        (True, None, True),
        (None, "true", True),
        (None, "yes", False),
        (False, "true", False),
    ],
)
def test_a_queue_lends_its_guarantee_by_field_or_annotation(
    field: bool | None, annotation: str | None, lends: bool
) -> None:
    thing = objects.queue("gold", guarantee={"resource": {"cpu": "2"}, "lend": field})
    if annotation is not None:
        thing["metadata"]["annotations"] = {"gang-extender.io/lend-guarantee": annotation}

    assert read_queue(thing).lends_guarantee is lends


def test_a_queue_may_have_weight_zero() -> None:
    assert queue(weight=0).weight == 0
    assert queue(weight=0).problem == ""
    assert queue().weight == 1


def test_a_field_of_a_newer_version_is_ignored() -> None:
    assert group(fromTomorrow={"a": 1}) == group()
    assert queue(fromTomorrow=1) == queue()

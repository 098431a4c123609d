from __future__ import annotations

from typing import Any

import pytest

from extender.durations import MAX_DURATION_S as YEAR_S
from extender.errors import InvalidHookCall
from extender.kube.decode import pods
from extender.model.pod import (
    NO_LABELS,
    HostPort,
    NodeTerm,
    Pod,
    Requirement,
    Status,
    Toleration,
)
from extender.model.resources import LARGEST
from tests import objects
from tests.unit.kube.decode.stored import read_pod


def read(thing: dict[str, Any]) -> Pod:
    return read_pod(thing)[0]


def with_spec(**spec: Any) -> dict[str, Any]:
    thing = objects.stored_pod("p")
    thing["spec"].update(spec)
    return thing


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "c", "resources": resources}


def test_a_pod_is_read_with_all_the_plan_needs() -> None:
    thing = objects.stored_pod("p", labels={"app": "x", "volcano.sh/task-spec": "worker"})
    thing["spec"].update(
        priority=7,
        priorityClassName="high",
        preemptionPolicy="Never",
        schedulingGates=[{"name": "wait"}],
    )
    thing["status"]["nominatedNodeName"] = "n"
    pod = read(thing)

    assert (pod.uid, pod.namespace, pod.name, pod.key) == ("uid-p", "a", "p", "a/p")
    assert (pod.priority, pod.priority_class, pod.may_preempt) == (7, "high", False)
    assert (pod.role, pod.gated, pod.nominated) == ("worker", True, "n")
    assert (pod.ours, pod.scheduler) == (True, "gang-scheduler")
    assert pod.created == 1767225600.0
    assert pod.labels == {"app": "x", "volcano.sh/task-spec": "worker"}


def test_a_pod_with_only_a_name_is_read() -> None:
    pod, membership = read_pod({"metadata": {"name": "p"}})

    assert (pod.uid, pod.key, pod.status, pod.ours) == (
        "default/p",
        "default/p",
        Status.PENDING,
        False,
    )
    assert membership.key == "default/pod:p"


def test_fields_may_be_null_wherever_go_writes_null() -> None:
    thing = {
        "metadata": {"name": "p", "creationTimestamp": None, "labels": None, "annotations": None},
        "spec": {"containers": None, "nodeSelector": None, "affinity": None, "tolerations": None},
        "status": {"phase": None, "conditions": None},
    }

    assert dict(read(thing).requests) == {"pods": 1}


@pytest.mark.parametrize(
    ("spec", "deadline_s", "grace_s"),
    [
        ({}, 0.0, 0.0),
        ({"terminationGracePeriodSeconds": 60}, 0.0, 0.0),
        ({"activeDeadlineSeconds": 300}, 300.0, 30.0),
        ({"activeDeadlineSeconds": 300, "terminationGracePeriodSeconds": 60}, 300.0, 60.0),
        ({"activeDeadlineSeconds": 300, "terminationGracePeriodSeconds": -1}, 300.0, 0.0),
        ({"activeDeadlineSeconds": 300, "terminationGracePeriodSeconds": 1 << 62}, 300.0, YEAR_S),
        ({"activeDeadlineSeconds": 1 << 62, "terminationGracePeriodSeconds": 60}, 0.0, 0.0),
    ],
)
def test_a_deadline_is_read_with_the_grace_period_after_it(
    spec: dict[str, Any], deadline_s: float, grace_s: float
) -> None:
    pod = read(with_spec(**spec))

    assert (pod.deadline_s, pod.grace_s) == (deadline_s, grace_s)
    assert pod.most_s == (deadline_s + grace_s if deadline_s else float("inf"))


@pytest.mark.parametrize(
    ("phase", "node", "deleting", "status"),
    [
        ("Pending", "", False, Status.PENDING),
        ("Pending", "n", False, Status.BOUND),
        ("Pending", "", True, Status.RELEASING),
        ("Running", "n", False, Status.RUNNING),
        ("Running", "n", True, Status.RELEASING),
        ("Unknown", "n", False, Status.UNKNOWN),
        ("Succeeded", "n", False, Status.SUCCEEDED),
        ("Succeeded", "n", True, Status.SUCCEEDED),
        ("Failed", "n", False, Status.FAILED),
    ],
)
def test_the_state_of_a_pod_is_read(phase: str, node: str, deleting: bool, status: Status) -> None:
    thing = objects.stored_pod("p", node=node)
    thing["status"]["phase"] = phase
    if deleting:
        thing["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert read(thing).status is status


def test_pods_of_other_schedulers_are_foreign_and_keep_only_their_size() -> None:
    thing = with_spec(schedulerName="default-scheduler", nodeSelector={"zone": "a"})
    thing["metadata"]["labels"] = {"app": "x"}
    pod = read(thing)

    assert (pod.ours, pod.scheduler) == (False, "")
    assert pod.labels is NO_LABELS
    assert pod.shape.selector == ()
    assert pod.requests.amount("cpu") == 1000


def test_without_a_scheduler_name_the_default_one_is_meant() -> None:
    thing = objects.stored_pod("p")
    del thing["spec"]["schedulerName"]

    assert read_pod(thing, schedulers=frozenset({"default-scheduler"}))[0].ours


def test_identical_pods_share_one_shape_and_their_labels() -> None:
    one, other = (read(objects.stored_pod(name, labels={"app": "x"})) for name in ("one", "other"))

    assert one.shape is other.shape
    assert one.labels is other.labels


def test_the_order_of_amounts_does_not_change_the_shape() -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}
    reverse = dict(reversed(amounts.items()))
    one, other = (
        read(with_spec(containers=[container(requests=each)])) for each in (amounts, reverse)
    )

    assert one.shape is other.shape


def test_another_node_constraint_makes_another_shape() -> None:
    shapes = {
        read(with_spec(**spec)).shape
        for spec in (
            {},
            {"nodeSelector": {"zone": "a"}},
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"containers": [container(requests={"cpu": "2"})]},
            {"overhead": {"cpu": "100m"}},
        )
    }

    assert len(shapes) == 5


def test_a_pod_needs_the_requests_of_its_containers() -> None:
    thing = with_spec(
        containers=[
            container(requests={"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"}),
            container(requests={"cpu": "1"}),
        ],
        initContainers=[container(requests={"cpu": "4"})],
        overhead={"memory": "1Mi"},
    )

    assert dict(read(thing).requests) == {
        "cpu": 4000,
        "memory": 2**30 + 2**20,
        "nvidia.com/gpu": 2,
        "pods": 1,
    }


def test_a_limit_without_a_request_is_a_request() -> None:
    thing = with_spec(
        containers=[container(limits={"cpu": "2", "memory": "1Gi"}, requests={"cpu": "1"})]
    )

    assert dict(read(thing).requests) == {"cpu": 1000, "memory": 2**30, "pods": 1}


def test_an_absent_request_is_not_a_request_of_zero() -> None:
    thing = with_spec(containers=[container(requests={"cpu": "0", "memory": "0"})])

    assert dict(read(thing).requests) == {"pods": 1}


def test_a_container_that_has_its_requests_makes_no_other_shape() -> None:
    before, after = objects.stored_pod("p"), objects.stored_pod("p", node="n")
    after["status"]["containerStatuses"] = [
        {
            "name": "main",
            "resources": {"requests": {"cpu": "1"}},
            "allocatedResources": {"cpu": "1"},
        }
    ]

    assert read(before).shape is read(after).shape


def test_an_unreadable_amount_is_a_problem_of_the_gang() -> None:
    thing = with_spec(containers=[container(requests={"cpu": "a lot"})])
    pod, membership = read_pod(thing)

    assert dict(pod.requests) == {"pods": 1}
    assert membership.problem.startswith("pod p cannot be read: 'a lot' is not a quantity")


@pytest.mark.parametrize("amount", ["-1", "-500m"])
def test_a_negative_amount_is_a_problem_too(amount: str) -> None:
    _, membership = read_pod(with_spec(containers=[container(requests={"cpu": amount})]))

    assert "cannot be read" in membership.problem


def test_a_huge_amount_is_cut_to_the_range_of_the_arrays() -> None:
    huge = container(requests={"memory": "9223372036854775807"})

    assert read(with_spec(containers=[huge] * 9)).requests.amount("memory") == LARGEST


def test_node_constraints_are_read_completely() -> None:
    term = {
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
    }
    shape = read(
        with_spec(
            nodeSelector={"b": "2", "a": "1"},
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 3,
                            "preference": {
                                "matchExpressions": [{"key": "x", "operator": "Exists"}]
                            },
                        }
                    ],
                }
            },
            tolerations=[
                {"operator": "Exists"},
                {"key": "k", "value": "v", "effect": "NoSchedule"},
            ],
        )
    ).shape

    zone = Requirement("zone", "In", ("a", "b"))
    name = Requirement("metadata.name", "In", ("n",))
    assert shape.selector == (("a", "1"), ("b", "2"))
    assert shape.affinity == (NodeTerm((zone,), (name,)),)
    assert shape.preferred == ((3, NodeTerm((Requirement("x", "Exists"),))),)
    assert shape.tolerations == (
        Toleration("", "Exists"),
        Toleration("k", "Equal", "v", "NoSchedule"),
    )


def test_host_ports_are_read_and_container_ports_are_not() -> None:
    ports = [
        {"containerPort": 80},
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
    ]
    sidecar = {"name": "s", "restartPolicy": "Always", "ports": [{"hostPort": 1}]}
    plain = {"name": "i", "ports": [{"hostPort": 2}]}
    thing = with_spec(containers=[{"name": "c", "ports": ports}], initContainers=[sidecar, plain])

    assert read(thing).shape.host_ports == (
        HostPort(8080),
        HostPort(53, "UDP", "10.0.0.1"),
        HostPort(1),
    )


@pytest.mark.parametrize(
    ("woken", "woken_by"),
    [("2026-01-31T12:00:00.000+00:00 by host_1a2b", "host_1a2b"), ("2026-01-31", ""), (" by ", "")],
)
def test_the_extender_that_woke_a_pod_is_read_from_its_annotation(
    woken: str, woken_by: str
) -> None:
    thing = objects.stored_pod("p")
    thing["metadata"]["annotations"] = {"gang-extender.io/woken": woken}

    assert read(thing).woken_by == woken_by


def test_the_unschedulable_message_of_kube_scheduler_is_kept() -> None:
    thing = objects.stored_pod("p")
    thing["status"]["conditions"] = [
        {"type": "Ready", "status": "False"},
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available",
        },
    ]

    assert read(thing).refusal == "0/3 nodes are available"

    thing["status"]["conditions"][1]["reason"] = "SchedulerError"

    assert read(thing).refusal == ""


@pytest.mark.parametrize(("node", "queue"), [("n1", "gold"), ("", "")])
def test_only_a_scheduled_pod_has_a_queue_that_admitted_it(node: str, queue: str) -> None:
    annotations = {"gang-extender.io/started-in": "gold"}

    assert read(objects.stored_pod("p", annotations=annotations, node=node)).started_in == queue


def test_the_priority_of_a_task_counts_only_within_its_gang() -> None:
    thing = objects.stored_pod("p", annotations={"volcano.sh/task-priority": "9"})
    thing["spec"]["priority"] = 1

    assert (read(thing).rank, read(thing).priority) == (9, 1)

    thing["metadata"]["annotations"] = {"volcano.sh/task-priority": "urgent"}

    assert (read(thing).rank, read(thing).priority) == (1, 1)


@pytest.mark.parametrize(
    ("written", "preemptable"), [(None, True), ("true", True), ("false", False), ("maybe", False)]
)
def test_the_preemptable_annotation_is_read(written: str | None, preemptable: bool) -> None:
    annotations = {"volcano.sh/preemptable": written} if written else {}

    assert read(objects.stored_pod("p", annotations=annotations)).preemptable is preemptable


def test_a_huge_annotation_does_not_hide_the_others() -> None:
    thing = objects.stored_pod(
        "p", annotations={"junk": "x" * 2**20, "gang-extender.io/gang": "train"}
    )

    assert read_pod(thing)[1].key == "a/train"


def test_a_parsed_file_is_read_like_json() -> None:
    raw = pods.pod(objects.stored_pod("p"))

    assert pods.to_pod(raw, schedulers=frozenset())[0].key == "a/p"


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"metadata": {"name": 3}}'])
def test_a_body_that_is_no_pod_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidHookCall, match="this is not a Pod"):
        pods.pod(data)


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    data = b'{"metadata": {}, "odd": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    for read in (pods.pod, pods.uid):
        with pytest.raises(InvalidHookCall, match="this is not a Pod"):
            read(data)

"""Kubernetes objects with every field that the extender reads, one or more of each kind.

Some fields hide others: of two gang names only one counts, and a terminating pod does not wait. So
each field is in an object where it counts.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]

_MADE, _LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00.000001Z"
_AMOUNTS = {"cpu": "2", "memory": "1Gi", "example.com/card": "1"}
_GIVEN = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
_ENDED = {"terminated": {"finishedAt": _LATER}}
_PORTS = [{"hostPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}]


def _meta(name: str, **more: Any) -> Object:
    return {
        "name": name,
        "namespace": "a",
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "creationTimestamp": _MADE,
        "labels": {"app": "x"},
        "annotations": {"unread.example/this": "x"},
        **more,
    }


def _simple_pod(name: str, marks: dict[str, str], *, spec: Object, status: Object) -> Object:
    """Return a pod with few other fields."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": _meta(name, annotations=marks),
        "spec": {"schedulerName": "gang-scheduler", "containers": containers, **spec},
        "status": status,
    }


def _condition(kind: str, status: str, reason: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": "so it is"}


_RUNS: Object = {
    "metadata": _meta("p1", annotations={
        "scheduling.k8s.io/group-name": "train", "gang-extender.io/min-member": "2",
        "scheduling.volcano.sh/queue-name": "q1", "volcano.sh/task-spec": "worker",
        "volcano.sh/task-priority": "5", "gang-extender.io/woken": "x by y",
        "gang-extender.io/started-in": "q1", "volcano.sh/preemptable": "true",
        "gang-extender.io/duration": "1h30m"},
        ownerReferences=[{"kind": "Job", "name": "j", "uid": "u", "controller": True}]),
    "spec": {
        "schedulerName": "gang-scheduler", "nodeName": "n1", "priority": 5,
        "priorityClassName": "high", "preemptionPolicy": "Never", "overhead": {"cpu": "1m"},
        "activeDeadlineSeconds": 3600, "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "c", "restartPolicy": "Never", "ports": _PORTS,
                        "resources": {"requests": _AMOUNTS, "limits": {**_AMOUNTS}}}],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [*_PORTS],
                            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
        "nodeSelector": {"zone": "z"}, "resources": {"requests": {"cpu": "1"}, "limits": {}},
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["5"]}],
                 "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {
                    "matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z"]}],
                    "matchFields": [{"key": "metadata.name", "operator": "NotIn",
                                     "values": ["n2"]}]}}]}},
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}],
        "schedulingGates": [], "schedulingGroup": None, "workloadRef": None},
    "status": {
        "phase": "Running", "startTime": _MADE, "nominatedNodeName": "n1", "resize": "Infeasible",
        "conditions": [_condition("PodScheduled", "True", "")],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"},
                               "resources": _GIVEN, "state": {"terminated": None}}],
        "initContainerStatuses": [{"name": "i", "allocatedResources": {"cpu": "3"},
                                   "resources": {**_GIVEN}, "state": {**_ENDED}}],
        "allocatedResources": {"cpu": "1"}, "resources": {**_GIVEN}},
}  # fmt: skip
_WAITS: Object = {
    **_RUNS,
    "metadata": _meta("p2", annotations={
        "gang-extender.io/gang": "ours", "gang-extender.io/min-member": "2",
        "gang-extender.io/woken": f"{_MADE} by y", "gang-extender.io/duration": "never"}),
    "spec": {**_RUNS["spec"], "nodeName": None, "resources": {"limits": {"cpu": "2"}}},
    "status": {"phase": "Pending", "nominatedNodeName": "n1",
               "conditions": [_condition("PodScheduled", "False", "Unschedulable")]},
}  # fmt: skip
_LEAVES = _simple_pod(
    "p3",
    {"scheduling.x-k8s.io/pod-group": "train", "scheduling.k8s.io/group-min-member": "3"},
    spec={"nodeName": "n1"},
    status={
        "phase": "Running",
        "startTime": _MADE,
        "conditions": [
            _condition("DisruptionTarget", "True", "PreemptionByScheduler"),
            _condition("PodResizePending", "True", "Infeasible"),
        ],
    },
)
_LEAVES["metadata"]["deletionTimestamp"] = _LATER
_ENDS = _simple_pod(
    "p4",
    {"gang-extender.io/duration": "45m"},
    spec={"nodeName": "n1", "workloadRef": {"name": "w", "podGroup": "g"}},
    status={
        "phase": "Succeeded",
        "startTime": _MADE,
        "containerStatuses": [{"name": "c", "state": {**_ENDED}}],
    },
)
_IS_NATIVE = _simple_pod(
    "p5", {}, spec={"schedulingGroup": {"podGroupName": "g"}}, status={"phase": "Pending"}
)
_IS_GATED = _simple_pod(
    "p6",
    {
        "scheduling.volcano.sh/group-name": "train",
        "scheduling.volcano.sh/group-min-member": "3",
    },
    spec={"schedulingGates": [{"name": "example.com/not-yet"}]},
    status={"phase": "Pending"},
)
_BY_SIGS = _simple_pod(
    "p7",
    {
        "pod-group.scheduling.sigs.k8s.io/name": "train",
        "pod-group.scheduling.sigs.k8s.io/min-available": "3",
    },
    spec={},
    status={},
)
_BY_LABELS = _simple_pod("p8", {}, spec={}, status={})
_BY_LABELS["metadata"]["labels"] = {
    "app": "x",
    "gang-extender.io/gang": "labelled",
    "gang-extender.io/min-member": "1",
    "scheduling.volcano.sh/queue-name": "q1",
    "volcano.sh/task-spec": "worker",
    "volcano.sh/preemptable": "false",
}

_NODE: Object = {
    "metadata": _meta("n1", namespace=""),
    "spec": {"unschedulable": False,
             "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
    "status": {"allocatable": {**_AMOUNTS, "pods": "110", "ephemeral-storage": "10Gi"},
               "conditions": [_condition("Ready", "True", "KubeletReady")]},
}  # fmt: skip
_NAMESPACE: Object = {
    "metadata": _meta("a", namespace="", annotations={
        "scheduling.volcano.sh/queue-name": "q1", "gang-extender.io/queues": "q1, q2",
        "gang-extender.io/priority-classes": "high",
        "gang-extender.io/at-most": "{q1: {cpu: 8}}",
        "gang-extender.io/at-least": "{q1: {cpu: 1}}"}),
}  # fmt: skip
_PRIORITY_CLASS: Object = {
    "metadata": _meta("high", namespace=""), "value": 1000,
    "globalDefault": False, "preemptionPolicy": "PreemptLowerPriority",
}  # fmt: skip
_BUDGET: Object = {
    "metadata": _meta("b"),
    "spec": {"minAvailable": "50%", "selector": {
        "matchLabels": {"app": "x"},
        "matchExpressions": [{"key": "t", "operator": "Exists", "values": None},
                             {"key": "app", "operator": "In", "values": ["x"]}]}},
    "status": {"disruptionsAllowed": 1, "disruptedPods": {"p9": _MADE}},
}  # fmt: skip
_QUOTA: Object = {
    "metadata": _meta("r"),
    "spec": {"hard": {"volcano.sh/namespace.weight": "3"}, "scopes": ["BestEffort"],
             "scopeSelector": {"matchExpressions": []}},
    "status": {"hard": {"requests.cpu": "9", "pods": "5"}, "used": {"requests.cpu": "1"}},
}  # fmt: skip
_GROUP: Object = {
    "metadata": _meta("train", annotations={
        "sla-waiting-time": "1h", "volcano.sh/revocable-zone": "z",
        "gang-extender.io/duration": "2h"}),
    "spec": {"minMember": 2, "minTaskMember": {"worker": 1}, "queue": "q1",
             "minResources": {**_AMOUNTS, "requests.cpu": "1", "limits.cpu": "2"},
             "priorityClassName": "high", "networkTopology": {"mode": "soft"},
             "subGroupPolicy": []},
    "status": {"phase": "Inqueue"},
}  # fmt: skip
_REFUSED_GROUP: Object = {
    "metadata": _meta("refused", annotations={
        "volcano.sh/sla-waiting-time": "1h", "gang-extender.io/duration": "never",
        "volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "1",
        "volcano.sh/cooldown-time": "1m"}),
    "spec": {"minMember": 1, "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
             "subGroupPolicy": [{"name": "s", "subGroupSize": 2}]},
    "status": {"phase": "Scheduled"},
}  # fmt: skip
_QUEUE: Object = {
    "metadata": _meta("q1", namespace="", annotations={
        "gang-extender.io/lend-guarantee": "true", "volcano.sh/hierarchy": "root/a",
        "volcano.sh/hierarchy-weights": "1/2", "volcano.sh/nodegroup-resource-limits": "{}"}),
    "spec": {"weight": 2, "capability": _AMOUNTS, "deserved": {"cpu": "1"}, "parent": "root",
             "guarantee": {"resource": {"cpu": "1"}, "lend": True}, "reclaimable": True,
             "priority": 1, "dequeueStrategy": "fifo", "type": "x",
             "affinity": {"nodeGroupAffinity": {}},
             "extendClusters": [{"name": "far", "weight": 1, "capacity": {"cpu": "1"}}]},
    "status": {"state": "Open"},
}  # fmt: skip

#: By the plural name of the resource.
OBJECTS: dict[str, tuple[Object, ...]] = {
    "nodes": (_NODE,),
    "pods": (_RUNS, _WAITS, _LEAVES, _ENDS, _IS_NATIVE, _IS_GATED, _BY_SIGS, _BY_LABELS),
    "namespaces": (_NAMESPACE,),
    "priorityclasses": (_PRIORITY_CLASS,),
    "poddisruptionbudgets": (_BUDGET,),
    "resourcequotas": (_QUOTA,),
    "podgroups": (_GROUP, _REFUSED_GROUP),
    "queues": (_QUEUE,),
}

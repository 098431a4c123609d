"""The snapshot as Kubernetes objects, so that any moment of a live cluster can be planned again.

`gang-extender plan -f` reads these objects. Reserved capacity is written as used. The plan does not
know pods of other schedulers one by one, so each node has one pod that requests their sum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict
from typing import Any

import numpy as np

from extender.cache.pods import STUCK_S
from extender.clock import timestamp_ms
from extender.model.annotations import (
    ALLOWED_CLASSES,
    ALLOWED_QUEUES,
    DURATION,
    GROUP_NAME,
    GUARANTEE,
    HOME_QUEUE,
    LIMIT,
    MIN_MEMBER,
    NAMESPACE_WEIGHT,
    PREEMPTABLE,
    QUEUE_NAME,
    ROLE,
    STARTED_IN,
    TASK_PRIORITY,
)
from extender.model.gang import IMPLICIT, VERSIONS, Gang
from extender.model.node import Node
from extender.model.pod import ALLOCATED_SET, OCCUPYING_SET, NodeTerm, Pod, Shape, Status
from extender.model.queue import Queue
from extender.model.resources import PODS, Resources
from extender.model.snapshot import DisruptionBudget, ResourceQuota, Snapshot

Object = dict[str, Any]
_VOLCANO = "scheduling.volcano.sh/v1beta1"
#: The name written for every scheduler that is not ours.
_OTHERS = "default-scheduler"
_PHASES = {
    Status.RUNNING: "Running",
    Status.RELEASING: "Running",
    Status.SUCCEEDED: "Succeeded",
    Status.FAILED: "Failed",
    Status.UNKNOWN: "Unknown",
}


def dump(snapshot: Snapshot) -> Object:
    """Return the whole snapshot as one List."""
    return {**listing(snapshot), "items": list(_objects(snapshot))}


def listing(snapshot: Snapshot) -> Object:
    """Return the same List with an iterator of items, which are created while they are written."""
    return {"apiVersion": "v1", "kind": "List", "items": _objects(snapshot)}


def _objects(snapshot: Snapshot) -> Iterator[Object]:
    yield from _nodes(snapshot)
    for queue in snapshot.queues.values():
        yield _queue(queue)
    yield from _namespaces(snapshot)
    for gang in snapshot.gangs.values():
        if gang.group.dialect:
            yield _group(gang, snapshot.usual_priority)
        for pod in gang.pods:
            yield _pod(pod, gang, _leaves_by(pod, snapshot))
    for budget in snapshot.budgets:
        yield _budget(budget)
    for quotas in snapshot.quotas.values():
        yield from map(_quota, quotas)


def _namespaces(snapshot: Snapshot) -> Iterator[Object]:
    """Yield a PriorityClass for each priority in use, and each namespace with its policy."""
    used: dict[str, set[int]] = {name: set() for name in snapshot.namespaces}
    for gang in snapshot.gangs.values():
        used.setdefault(gang.group.namespace, set()).add(gang.priority)
    for share in snapshot.shares.values():
        used.setdefault(share.namespace, set())
    usual = snapshot.usual_priority
    for value in sorted({usual}.union(*used.values())):
        if value or usual:  # without a global default, a pod without a class has priority 0
            yield _priority_class(value, is_default=value == usual)
    for name in sorted(used):
        yield _namespace(name, snapshot, used[name])


def _nodes(snapshot: Snapshot) -> Iterator[Object]:
    """Yield each node, followed by one pod with the sum of other schedulers' pods on it."""
    table = snapshot.nodes
    ours: dict[str, Resources] = {}
    for gang in snapshot.gangs.values():
        for pod in gang.pods:
            if pod.node and pod.status in OCCUPYING_SET:
                ours[pod.node] = ours.get(pod.node, Resources()) + pod.requests
    for row, node in enumerate(table.nodes):
        used = Resources(zip(table.dimensions, np.asarray(table.used[row]).tolist(), strict=True))
        others = (used - ours.get(node.name, Resources())).positive()
        yield _node(node, others.amount(PODS))
        if others:
            yield _others(node.name, others.without(PODS))


def _node(node: Node, others: int) -> Object:
    amounts = dict(node.allocatable)
    if PODS in amounts:
        amounts[PODS] -= max(0, others - 1)  # the pods of other schedulers are written as one
    ready = {"type": "Ready", "status": "True" if node.ready else "False"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {"taints": [*map(asdict, node.taints)], "unschedulable": node.unschedulable},
        "status": {"allocatable": Resources(amounts).write(), "conditions": [ready]},
    }


def _others(node: str, amounts: Resources) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"others-on-{node}", "namespace": "kube-system"},
        "spec": {
            "schedulerName": _OTHERS,
            "nodeName": node,
            "containers": [_container(amounts)],
        },
        "status": {"phase": "Running"},
    }


def _queue(queue: Queue) -> Object:
    spec: Object = {
        "weight": queue.weight,
        "capability": queue.capability.write(),
        "deserved": queue.deserved.write(),
        "guarantee": {"resource": queue.guarantee.write(), "lend": queue.lends_guarantee},
        "priority": queue.priority,
        "reclaimable": queue.reclaimable,
    }
    if queue.parent:
        spec["parent"] = queue.parent
    return {
        "apiVersion": _VOLCANO,
        "kind": "Queue",
        "metadata": _metadata(queue.name, "", queue.uid, queue.created, queue.annotations),
        "spec": spec,
        "status": {"state": queue.state.value},
    }


def _priority_class(value: int, *, is_default: bool) -> Object:
    made: Object = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"priority-{value}"},
        "value": value,
    }
    return {**made, "globalDefault": True} if is_default else made


def _group(gang: Gang, usual_priority: int) -> Object:
    group = gang.group
    spec: Object = {"minMember": group.min_member, "queue": gang.queue}
    if group.min_by_role:
        spec["minTaskMember"] = dict(group.min_by_role)
    if group.min_resources is not None:
        spec["minResources"] = (group.min_resources + group.min_limits).write()
    if gang.priority != usual_priority:
        spec["priorityClassName"] = f"priority-{gang.priority}"
    metadata = _metadata(group.name, group.namespace, group.uid, group.created, group.annotations)
    return {
        "apiVersion": f"{group.dialect}/{VERSIONS.get(group.dialect, 'v1beta1')}",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
        "status": {} if group.is_phaseless else {"phase": group.phase.value},
    }


def _leaves_by(pod: Pod, snapshot: Snapshot) -> float:
    """Return the deletion time of a pod, such that a stuck pod is also stuck when planned again."""
    if pod.uid in snapshot.stuck:
        return min(pod.leaves_by, snapshot.now - 2 * STUCK_S)
    return max(pod.leaves_by, snapshot.now)


def _pod(pod: Pod, gang: Gang, leaves_by: float) -> Object:
    shape = pod.shape
    metadata = _metadata(pod.name, pod.namespace, pod.uid, pod.created, _annotations(pod, gang))
    metadata["labels"] = dict(pod.labels)
    if pod.status is Status.RELEASING:
        metadata["deletionTimestamp"] = timestamp_ms(leaves_by)
    owner, colon, name = gang.group.name.partition(IMPLICIT)
    if colon and owner not in ("pod", "native"):
        metadata["ownerReferences"] = [{"kind": owner, "name": name, "controller": True}]
    spec: Object = {
        "schedulerName": pod.scheduler or ("gang-scheduler" if pod.ours else _OTHERS),
        "priority": pod.priority,
        "containers": [_container(shape.requests.without(PODS)) | _ports(pod)],
        "nodeSelector": dict(shape.selector),
        "tolerations": [*map(asdict, shape.tolerations)],
    }
    if pod.node and pod.status in OCCUPYING_SET | ALLOCATED_SET:
        spec["nodeName"] = pod.node
    if pod.priority_class:
        spec["priorityClassName"] = pod.priority_class
    if not pod.may_preempt:
        spec["preemptionPolicy"] = "Never"
    if pod.deadline_s:
        spec["activeDeadlineSeconds"] = int(pod.deadline_s)
        spec["terminationGracePeriodSeconds"] = int(pod.grace_s)
    if pod.gated:
        spec["schedulingGates"] = [{"name": "gated"}]
    if shape.affinity is not None or shape.preferred:
        spec["affinity"] = {"nodeAffinity": _affinity(shape)}
    status = {"phase": _PHASES.get(pod.status, "Pending")}
    if pod.began:
        status["startTime"] = timestamp_ms(pod.began)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _annotations(pod: Pod, gang: Gang) -> dict[str, str]:
    """Return the annotations that make a pod a member of its gang when it is read again."""
    annotations = {}
    if IMPLICIT not in gang.group.name:
        annotations[GROUP_NAME] = gang.group.name
    if not gang.group.dialect:
        annotations[QUEUE_NAME] = gang.queue
        is_sized = IMPLICIT not in gang.group.name or gang.group.min_member > 1
        if is_sized and gang.problem is None:
            annotations[MIN_MEMBER] = str(gang.group.min_member)
    if pod.role:
        annotations[ROLE] = pod.role
    if not pod.preemptable:
        annotations[PREEMPTABLE] = "false"
    if pod.task_priority is not None:
        annotations[TASK_PRIORITY] = str(pod.task_priority)
    if pod.started_in:
        annotations[STARTED_IN] = pod.started_in
    if pod.lasts_s:
        annotations[DURATION] = f"{pod.lasts_s:.3f}s"
    return annotations


def _container(amounts: Resources) -> Object:
    return {"name": "all", "resources": {"requests": amounts.write()}}


def _ports(pod: Pod) -> Object:
    ports = [
        {"hostPort": port.port, "containerPort": port.port, "protocol": port.protocol,
         "hostIP": port.ip}
        for port in pod.shape.host_ports
    ]  # fmt: skip
    return {"ports": ports} if ports else {}


def _affinity(shape: Shape) -> Object:
    during = "DuringSchedulingIgnoredDuringExecution"
    affinity: Object = {
        f"preferred{during}": [
            {"weight": weight, "preference": _term(term)} for weight, term in shape.preferred
        ]
    }
    if shape.affinity is not None:
        affinity[f"required{during}"] = {"nodeSelectorTerms": [*map(_term, shape.affinity)]}
    return affinity


def _term(term: NodeTerm) -> Object:
    return {
        "matchExpressions": [*map(asdict, term.labels)],
        "matchFields": [*map(asdict, term.fields)],
    }


def _namespace(name: str, snapshot: Snapshot, priorities: Set[int]) -> Object:
    """Return a namespace with its queues, for later gangs; present gangs name their own queue.

    If it restricts priority classes, the list also has those of its gangs, under the names that we
    gave them. So each gang keeps its priority, regardless of the classes of its pods.
    """
    shares = [share for share in snapshot.shares.values() if share.namespace == name]
    by_annotation = {
        LIMIT: {share.queue: share.limit.write() for share in shares if share.limit},
        GUARANTEE: {share.queue: share.guarantee.write() for share in shares if share.guarantee},
    }
    metadata: Object = {"name": name}
    annotations = {key: json.dumps(each) for key, each in by_annotation.items() if each}
    if (policy := snapshot.namespaces.get(name)) is not None:
        if policy.queue:
            annotations[HOME_QUEUE] = policy.queue
        if policy.allowed is not None:
            annotations[ALLOWED_QUEUES] = ",".join(sorted(policy.allowed))
        if policy.classes is not None:
            of_gangs = {f"priority-{value}" for value in priorities}
            annotations[ALLOWED_CLASSES] = ",".join(sorted(policy.classes | of_gangs))
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _budget(budget: DisruptionBudget) -> Object:
    disrupted = dict.fromkeys(sorted(budget.disrupted), "1970-01-01T00:00:00Z")
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": budget.name, "namespace": budget.namespace},
        "spec": {
            "selector": {"matchExpressions": [*map(asdict, budget.selector)]},
            "minAvailable": budget.least or budget.part or None,
        },
        "status": {"disruptionsAllowed": budget.allowed, "disruptedPods": disrupted},
    }


def _quota(quota: ResourceQuota) -> Object:
    # The snapshot does not have the scope itself; any scope has the same effect.
    spec: Object = {"hard": {NAMESPACE_WEIGHT: str(quota.weight)}}
    if quota.is_scoped:
        spec["scopes"] = ["NotTerminating"]
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": quota.name, "namespace": quota.namespace},
        "spec": spec,
        "status": {"hard": quota.hard.write(), "used": quota.used.write()},
    }


def _metadata(
    name: str, namespace: str, uid: str, created: float, annotations: Mapping[str, str]
) -> Object:
    metadata: Object = {"name": name, "creationTimestamp": timestamp_ms(created)}
    if namespace:
        metadata["namespace"] = namespace
    if uid:
        metadata["uid"] = uid
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata

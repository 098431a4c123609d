"""Kubernetes objects as plain dicts; a test writes only the fields that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

POD_GROUPS = "podgroups.scheduling.volcano.sh/v1beta1"
QUEUES = "queues.scheduling.volcano.sh/v1beta1"

GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
CREATED = "2026-01-01T00:00:00Z"
RUN_SECONDS = "gang-extender.test/run-seconds"
STARTED_IN = "gang-extender.io/started-in"
STOP_SECONDS = "gang-extender.test/stop-seconds"


def namespace(name: str, annotations: Mapping[str, str] | None = None) -> Object:
    metadata = {"name": name, "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    taints: list[Object] | None = None,
    ready: bool | None = None,
    **spec: Any,
) -> Object:
    """Make a node of this size; kwok makes it Ready unless *ready* is given."""
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), **(resources or {})}
    made: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": room, "capacity": room},
    }
    if taints:
        made["spec"]["taints"] = taints
    if ready is not None:
        made["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return made


def pod(
    name: str,
    namespace: str = "a",
    *,
    gang: str | None = None,
    queue: str | None = None,
    cpu: str = "1",
    memory: str = "64Mi",
    resources: Mapping[str, str] | None = None,
    scheduler: str = "gang-scheduler",
    priority: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    run_seconds: float | None = None,
    stop_seconds: float | None = None,
    **spec: Any,
) -> Object:
    """Make a pod of one container; *priority* is a PriorityClass, *spec* adds or replaces fields.

    *queue* is for a pod without a gang: the queue of a gang is in its PodGroup.
    """
    notes = dict(annotations or {})
    if gang is not None:
        notes[GROUP_NAME] = gang
    if queue is not None:
        notes[QUEUE_NAME] = queue
    if run_seconds is not None:
        notes[RUN_SECONDS] = f"{run_seconds:g}"
    if stop_seconds is not None:
        notes[STOP_SECONDS] = f"{stop_seconds:g}"
    requests = {"cpu": cpu, "memory": memory}
    container = {
        "name": "main",
        "image": "registry.k8s.io/pause",
        # Extended resources cannot be overcommitted, so they are limits as well.
        "resources": {"requests": {**requests, **(resources or {})}, "limits": resources or {}},
    }
    made: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": notes,
        },
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [container],
            "nodeSelector": dict(node_selector or {}),
            **spec,
        },
    }
    if priority is not None:
        made["spec"]["priorityClassName"] = priority
    return made


def stored(thing: Object, **metadata: Any) -> Object:
    """Return *thing* as the API server stores it, with a uid and a time."""
    about = thing["metadata"]
    about |= {"uid": f"uid-{about['name']}", "creationTimestamp": CREATED, **metadata}
    return thing


def stored_pod(
    name: str, *, node: str = "", gang: str | None = None, cpu: str = "1", **metadata: Any
) -> Object:
    """Make a pod as the API server returns it, running if it is on a node."""
    made = stored(pod(name, gang=gang, cpu=cpu, nodeName=node), **metadata)
    return made | {"status": {"phase": "Running" if node else "Pending"}}


def pods(count: int, name: str, namespace: str = "a", **rest: Any) -> list[Object]:
    """Make equal pods `name-0`, `name-1`, …."""
    return [pod(f"{name}-{index}", namespace, **rest) for index in range(count)]


def pod_group(
    name: str,
    namespace: str = "a",
    min_member: object = 2,
    *,
    queue: str | None = None,
    **spec: Any,
) -> Object:
    made: Object = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": min_member, **spec},
    }
    if queue is not None:
        made["spec"]["queue"] = queue
    return made


def queue(name: str, weight: int = 1, **spec: Any) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight, **spec},
    }


def priority_class(name: str, value: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def is_ready(node: Object) -> bool:
    """Return whether a node is Ready."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def node_of(pod: Object) -> str | None:
    """Return the node that a pod is bound to."""
    name: str | None = pod.get("spec", {}).get("nodeName")
    return name


def budget(name: str, namespace: str, labels: dict[str, str], minimum: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": minimum, "selector": {"matchLabels": labels}},
    }


def of_kind(things: list[Object], *kinds: str) -> list[Object]:
    return [thing for thing in things if thing["kind"] in kinds]


def place(thing: Object) -> tuple[str | None, str]:
    return thing["metadata"].get("namespace"), thing["metadata"]["name"]

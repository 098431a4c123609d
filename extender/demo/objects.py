"""Manifests of the objects in the simulated cluster of the demo."""

from __future__ import annotations

from collections.abc import Mapping

from extender.demo.cluster import Object

NAMESPACE = "demo"


def node(name: str, cpus: int, memory: str = "16Gi") -> Object:
    """Return a ready node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "allocatable": {"cpu": str(cpus), "memory": memory, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def queue(name: str, weight: int = 1) -> Object:
    """Return an open queue."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight, "reclaimable": True},
        "status": {"state": "Open"},
    }


def pod_group(name: str, min_member: int, queue_name: str = "") -> Object:
    """Return a PodGroup."""
    spec: Object = {"minMember": min_member}
    if queue_name:
        spec["queue"] = queue_name
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
        "status": {},
    }


def pod(name: str, gang: str | None, requests: Mapping[str, str] | None = None) -> Object:
    """Return a pending pod of *gang*, or a single pod when *gang* is None."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {"scheduling.k8s.io/group-name": gang} if gang else {},
        },
        "spec": {
            "schedulerName": "gang-scheduler",
            "containers": [
                {"name": "main", "resources": {"requests": dict(requests or {"cpu": "1"})}}
            ],
        },
        "status": {"phase": "Pending"},
    }


def gang_of(manifest: Object) -> str:
    """Return the gang of a pod, "" for a single pod."""
    annotations = manifest["metadata"].get("annotations", {})
    return str(annotations.get("scheduling.k8s.io/group-name", ""))

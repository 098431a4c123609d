"""Kubernetes objects as JSON, in a few words."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def pod(name: str, *, node: str = "", gang: str = "", **meta: Any) -> Object:
    """A pod of one cpu for our scheduler, in namespace `a`."""
    annotations = {"scheduling.k8s.io/group-name": gang} if gang else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "a",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations,
            **meta,
        },
        "spec": {
            "schedulerName": "gang-scheduler",
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def node(name: str, **rest: Any) -> Object:
    return {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
        **rest,
    }


def group(name: str, min_member: object = 2, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"},
        "spec": {"minMember": min_member, **spec},
    }


def queue(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}

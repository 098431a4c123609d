"""The objects of stories, for both clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests import objects

from .cluster import SCHEDULER, Object

Facts = Mapping[str, Any]


def marked(name: str, mark: str) -> str:
    """Return the name of a cluster-scoped object."""
    return f"{name}-{mark}"


def nodes(facts: Facts, mark: str) -> list[Object]:
    """Make a node, or `count` numbered nodes."""
    numbers = range(facts["count"]) if "count" in facts else [""]
    rest = {key: facts[key] for key in ("memory", "labels", "taints") if key in facts}
    return [
        objects.node(marked(f"{facts['name']}{number}", mark), cpu=str(facts["cpu"]), **rest)
        for number in numbers
    ]


def queue(facts: Facts, mark: str) -> Object:
    """Make a queue."""
    spec = {key: facts[key] for key in ("capability", "guarantee", "reclaimable") if key in facts}
    if "parent" in facts:
        spec["parent"] = marked(facts["parent"], mark)
    return objects.queue(marked(facts["name"], mark), facts.get("weight", 1), **spec)


def priority_class(facts: Facts, mark: str) -> Object:
    """Make a PriorityClass."""
    return objects.priority_class(marked(facts["name"], mark), facts["value"])


def group(name: str, least: int, facts: Facts, namespace: str, mark: str) -> Object:
    """Make the PodGroup of a gang."""
    queue_name = marked(facts["queue"], mark) if "queue" in facts else None
    spec = {"priorityClassName": marked(facts["class"], mark)} if "class" in facts else {}
    return objects.pod_group(name, namespace, least, queue=queue_name, **spec)


def pod(
    name: str, gang: str | None, facts: Facts, namespace: str, mark: str, *, is_gated: bool = False
) -> Object:
    """Make a pod of a gang, or a single pod."""
    asked = {key: str(facts[key]) for key in ("cpu", "memory") if key in facts}
    spec: dict[str, Any] = {}
    if "tolerates" in facts:
        spec["tolerations"] = [{"key": facts["tolerates"], "operator": "Exists"}]
    if is_gated:
        spec["schedulingGates"] = [{"name": "stories.test/gate"}]
    return objects.pod(
        name,
        namespace,
        gang=gang,
        queue=marked(facts["queue"], mark) if gang is None and "queue" in facts else None,
        priority=marked(facts["class"], mark) if "class" in facts else None,
        node_selector=facts.get("selector"),
        scheduler=SCHEDULER,
        **asked,
        **spec,
    )

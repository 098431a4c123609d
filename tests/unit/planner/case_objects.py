"""Behaviour tables of kube-batch and Volcano, turned into Kubernetes objects and policy files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from extender.model.annotations import ALLOWED_CLASSES
from extender.planner.policy_parser import CALLBACKS
from tests import objects as api

Case = Mapping[str, Any]

HERE = Path(__file__).parent / "cases"
_VOLCANO = "scheduling.volcano.sh/v1beta1"
#: Volcano's own spelling, for the callbacks it spells otherwise.
_ODD = {"Overused", "Allocatable", "Victim", "HyperNodeOrder", "SubJobReady", "SubJobPipelined"}
_ODD |= {"SubJobOrder", "HyperNodeGradient", "ClusterOrder"}
_READY = [{"type": "Ready", "status": "True"}]


def cases(*names: str) -> Iterator[Case]:
    """Give the cases of the named files, or of all."""
    for path in sorted(HERE.glob("*.json")):
        if not names or path.stem in names:
            yield from json.loads(path.read_text())["cases"]


def policy_file(case: Case, compatibility: str = "") -> dict[str, Any]:
    """Write the case's configuration; a flag it does not name is off."""
    document: dict[str, Any] = {
        "actions": ", ".join(case["actions"]),
        "tiers": [{"plugins": [_plugin(each) for each in tier]} for tier in case["plugins"]],
        "configurations": [
            {"name": name, "arguments": arguments}
            for name, arguments in case.get("action_config", {}).items()
        ],
    }
    if compatibility:
        document["compatibility"] = compatibility
    return document


def _plugin(written: Mapping[str, Any]) -> dict[str, Any]:
    enabled = written.get("enable", [])
    flags = {flag(callback): flag(callback) in enabled for callback in CALLBACKS}
    flags["enableHierarchy"] = "enableHierarchy" in enabled
    return {"name": written["name"], **flags, "arguments": written.get("arguments", {})}


def flag(callback: str) -> str:
    """Spell the switch of a callback as Volcano does."""
    return f"enabled{callback}" if callback in _ODD else f"enable{callback}"


def objects(case: Case) -> dict[str, Any]:
    """Write the case's cluster as one list of Kubernetes objects."""
    items = [
        *(_node(each) for each in case["nodes"]),
        *(_queue(each) for each in case["queues"]),
        *(api.priority_class(each["name"], each["value"]) for each in case["priority_classes"]),
        *_namespaces(case),
        *(_group(each) for each in case["podgroups"]),
        *(_pod(each) for each in case["pods"]),
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _node(written: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": written["name"], "labels": written.get("labels", {})},
        "spec": {"taints": written.get("taints", [])},
        "status": {"allocatable": _amounts(written), "conditions": _READY},
    }


def _queue(written: Mapping[str, Any]) -> dict[str, Any]:
    spec = {
        "weight": written["weight"],
        "capability": _amounts(written.get("capability", {})),
        "deserved": _amounts(written.get("deserved", {})),
        "guarantee": {"resource": _amounts(written.get("guarantee", {}))},
        "parent": written.get("parent", ""),
        "priority": written.get("priority", 0),
        "reclaimable": written.get("reclaimable", True),
    }
    annotations = {
        f"volcano.sh/{key}": written[key]
        for key in ("hierarchy", "hierarchy-weights")
        if key in written
    }
    return {
        "apiVersion": _VOLCANO,
        "kind": "Queue",
        "metadata": {"name": written["name"], "annotations": annotations, **_born(written)},
        "spec": spec,
        "status": {"state": written.get("state", "Open")},
    }


def _namespaces(case: Case) -> list[dict[str, Any]]:
    """Let every namespace use every class, as Volcano does: there a PodGroup is believed."""
    classes = ",".join(each["name"] for each in case["priority_classes"])
    names = sorted({each["namespace"] for each in case["podgroups"]})
    return [api.namespace(name, {ALLOWED_CLASSES: classes}) for name in names]


def _group(written: Mapping[str, Any]) -> dict[str, Any]:
    spec = {
        "minMember": written["min_member"],
        "queue": written["queue"],
        "priorityClassName": written.get("priority_class", ""),
        "minTaskMember": written.get("min_task_member", {}),
    }
    if "min_resources" in written:
        spec["minResources"] = _amounts(written["min_resources"])
    return {
        "apiVersion": _VOLCANO,
        "kind": "PodGroup",
        "metadata": {
            "name": written["name"],
            "namespace": written["namespace"],
            **_born(written),
        },
        "spec": spec,
        "status": {"phase": written.get("phase", "")},
    }


def _pod(written: Mapping[str, Any]) -> dict[str, Any]:
    key = f"{written['namespace']}-{written['name']}"
    spec: dict[str, Any] = {
        "schedulerName": "volcano",
        "containers": [{"name": "c", "resources": {"requests": _amounts(written)}}],
        "nodeName": written.get("node", ""),
        "nodeSelector": written.get("selector", {}),
    }
    if "priority" in written:
        spec["priority"] = written["priority"]
    leaving = {"deletionTimestamp": written["leaves"]} if "leaves" in written else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": written["name"],
            "namespace": written["namespace"],
            "uid": key,
            "labels": written.get("labels", {}),
            "annotations": {"scheduling.k8s.io/group-name": written["group"]},
            **_born(written),
            **leaving,
        },
        "spec": spec,
        "status": {"phase": written["phase"]},
    }


def _born(written: Mapping[str, Any]) -> dict[str, str]:
    return {"creationTimestamp": written["created"]} if "created" in written else {}


def _amounts(written: Mapping[str, Any]) -> dict[str, str]:
    amounts = {}
    if written.get("cpu_milli"):
        amounts["cpu"] = f"{written['cpu_milli']}m"
    if written.get("memory_bytes"):
        amounts["memory"] = str(written["memory_bytes"])
    if "pods" in written:
        amounts["pods"] = str(written["pods"])
    return amounts | {name: str(n) for name, n in written.get("scalars", {}).items()}

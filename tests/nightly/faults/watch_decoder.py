"""Converts watch events into moments of the record; pure, to be tested without a cluster.

Only the relevant changes of an object become moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from extender.model.annotations import STARTED_IN
from extender.model.resources import parse_milli
from tests.nightly.faults import record as seen

from .record import Amounts, Change

Object = dict[str, Any]

GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


class WatchDecoder:
    """Remembers the last state of every object."""

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name = scheduler_name
        #: What was recorded of each pod, by uid.
        self._pods: dict[str, dict[str, Any]] = {}
        #: The last change of each other object.
        self._last: dict[tuple[str, str], Change] = {}

    def see(self, resource: str, kind: str, thing: Object, at: float) -> list[Change]:
        """Return the changes in one watch event of *resource*."""
        gone = kind == "DELETED"
        if resource == "pods":
            return list(self._pod(thing, at, gone=gone))
        change = _SET[resource](thing, at) if not gone else _GONE[resource](thing, at)
        key = (resource, name_of(thing))
        if not gone and _same(change, self._last.get(key)):
            return []
        self._last[key] = change
        return [change]

    def see_all(self, resource: str, listed: Object, at: float) -> list[Change]:
        """Return the changes in a list; objects that are missing in it are deleted."""
        version = int(listed["metadata"]["resourceVersion"])
        found = [
            change for thing in listed["items"] for change in self.see(resource, "ADDED", thing, at)
        ]
        return [*found, *self._missing(resource, listed, version, at)]

    def _missing(self, resource: str, listed: Object, version: int, at: float) -> Iterator[Change]:
        if resource == "pods":
            there = {thing["metadata"]["uid"] for thing in listed["items"]}
            for uid, known in self._pods.items():
                if uid not in there and known.get("ended") != "gone":
                    known["ended"] = "gone"
                    yield seen.PodEnded(at=at, version=version, uid=uid)
            return
        names = {name_of(thing) for thing in listed["items"]}
        for (of, name), last in list(self._last.items()):
            if of == resource and name not in names and not isinstance(last, _GONES):
                gone = _gone(last, name, at, version)
                self._last[of, name] = gone
                yield gone

    def _pod(self, pod: Object, at: float, *, gone: bool) -> Iterator[Change]:
        about, uid = pod["metadata"], pod["metadata"]["uid"]
        version = int(about["resourceVersion"])
        known = self._pods.get(uid)
        if known is None:
            known = self._pods[uid] = {}
            yield self._created(pod, at, version)
        node = pod["spec"].get("nodeName", "")
        if node and known.get("node") != node:
            known["node"] = node
            queue = about.get("annotations", {}).get(STARTED_IN, "")
            yield seen.PodBound(at=at, version=version, uid=uid, node=node, queue=queue)
        mark = _mark(pod)
        # The Eviction API overwrites the reason of its caller.
        if mark != "EvictionByEvictionAPI":
            known["preempted"] = mark == "PreemptionByScheduler"
        if about.get("deletionTimestamp") and not known.get("leaving"):
            known["leaving"] = True
            by_scheduler = known.get("preempted", False)
            yield seen.PodLeaving(at=at, version=version, uid=uid, by_scheduler=by_scheduler)
        phase = pod.get("status", {}).get("phase", "")
        how = "gone" if gone else phase if phase in ("Succeeded", "Failed") else ""
        if how and known.get("ended") not in (how, "gone"):
            known["ended"] = how
            yield seen.PodEnded(at=at, version=version, uid=uid, how=how)

    def _created(self, pod: Object, at: float, version: int) -> Change:
        about = pod["metadata"]
        notes = about.get("annotations") or {}
        group = notes.get(GROUP_NAME, "")
        return seen.PodCreated(
            at=at,
            version=version,
            uid=about["uid"],
            namespace=about["namespace"],
            name=about["name"],
            gang=f"{about['namespace']}/{group}" if group else "",
            queue=notes.get(QUEUE_NAME, ""),
            request=_request(pod),
            ours=pod["spec"].get("schedulerName") == self._scheduler_name,
        )


def name_of(thing: Object) -> str:
    about = thing["metadata"]
    return f"{about['namespace']}/{about['name']}" if about.get("namespace") else about["name"]


def amounts(quantities: Object | None) -> Amounts:
    return {name: parse_milli(quantity) for name, quantity in (quantities or {}).items()}


def _request(pod: Object) -> Amounts:
    total: dict[str, int] = {"pods": 1000}
    for container in pod["spec"]["containers"]:
        for name, amount in amounts(container.get("resources", {}).get("requests")).items():
            total[name] = total.get(name, 0) + amount
    return total


def _mark(pod: Object) -> str:
    """Return the reason of the DisruptionTarget condition, or an empty string."""
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            reason: str = condition.get("reason", "")
            return reason
    return ""


def _version(thing: Object) -> int:
    return int(thing["metadata"]["resourceVersion"])


def _group(thing: Object, at: float) -> Change:
    spec = thing["spec"]
    return seen.GroupSet(
        at=at,
        version=_version(thing),
        gang=name_of(thing),
        uid=thing["metadata"]["uid"],
        minimum=int(spec.get("minMember") or 1),
        queue=spec.get("queue") or "default",
    )


def _node(thing: Object, at: float) -> Change:
    spec = thing.get("spec", {})
    taints = spec.get("taints") or ()
    is_tainted = any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in taints)
    return seen.NodeSet(
        at=at,
        version=_version(thing),
        name=thing["metadata"]["name"],
        room=amounts(thing.get("status", {}).get("allocatable")),
        closed=bool(spec.get("unschedulable")) or is_tainted,
    )


def _queue(thing: Object, at: float) -> Change:
    state = thing.get("status", {}).get("state") or "Open"
    return seen.QueueSet(
        at=at,
        version=_version(thing),
        name=thing["metadata"]["name"],
        ceiling=amounts(thing.get("spec", {}).get("capability")),
        open=state == "Open",
    )


def _gone(last: Change, name: str, at: float, version: int) -> Change:
    if isinstance(last, seen.GroupSet):
        return seen.GroupGone(at=at, version=version, gang=name, uid=last.uid)
    kind = seen.NodeGone if isinstance(last, seen.NodeSet) else seen.QueueGone
    return kind(at=at, version=version, name=name)


_GONES = (seen.GroupGone, seen.NodeGone, seen.QueueGone)
_SET = {"podgroups": _group, "nodes": _node, "queues": _queue}
_GONE = {
    resource: lambda thing, at, make=make: _gone(
        make(thing, at), name_of(thing), at, _version(thing)
    )
    for resource, make in _SET.items()
}


def _same(one: Change, other: Change | None) -> bool:
    if type(one) is not type(other):
        return False
    without = ("at", "version")
    return all(
        getattr(one, name) == getattr(other, name)
        for name in type(one).__dataclass_fields__
        if name not in without
    )

"""An API server in memory: Kubernetes objects as plain dicts, and listeners for their changes.

It implements the ports through which the extender acts (bind, wake, read a PodGroup) with the same
rules: a binding checks the uid, a pod is bound once, a nomination wakes the pod.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from extender.clock import timestamp
from extender.model.gang import GangKey, PodGroup
from extender.ports import (
    BindOrder,
    BindOutcome,
    BindResult,
    Clock,
    EventRecord,
    EvictOrder,
    EvictOutcome,
    EvictResult,
    ObjectReference,
    OnOutcome,
    WakeOrder,
    Whose,
)

Object: TypeAlias = dict[str, Any]
#: Called with each change: ADDED, MODIFIED or DELETED, and the object.
Listener: TypeAlias = Callable[[str, Object], None]


class SimCluster:
    """Store objects; each change reaches the listeners in order."""

    def __init__(self, read_group: Callable[[Object], PodGroup], clock: Clock) -> None:
        self._read_group = read_group
        self._clock = clock
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()
        self._uids = itertools.count(1)

    def listen(self, listener: Listener) -> None:
        """Call *listener* with all existing objects and with each later change."""
        with self._lock:
            for existing in self._objects.values():
                listener("ADDED", existing)
            self._listeners.append(listener)

    def create(self, manifest: Object, *, keep_uid: bool = False) -> Object:
        """Store *manifest* under a new uid, or under its own with *keep_uid*."""
        with self._lock:
            stored = copy.deepcopy(manifest)
            metadata = stored["metadata"]
            if not keep_uid:
                metadata["uid"] = f"sim-{next(self._uids):06d}"
            metadata.setdefault("creationTimestamp", timestamp(self._clock.now()))
            self._objects[_key(stored)] = stored
            self._publish("ADDED", stored)
            return stored

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object at once."""
        with self._lock:
            gone = self._objects.pop((kind, namespace, name), None)
            if gone is not None:
                self._publish("DELETED", gone)

    def change(self, manifest: Object, change: Callable[[Object], None]) -> None:
        """Replace *manifest* by a changed copy; listeners keep the object they received."""
        with self._lock:
            current = self._objects.get(_key(manifest))
            if current is None or current["metadata"]["uid"] != manifest["metadata"]["uid"]:
                return
            changed = copy.deepcopy(current)
            change(changed)
            self._objects[_key(changed)] = changed
            self._publish("MODIFIED", changed)

    def all(self, kind: str) -> list[Object]:
        """Return all objects of *kind*."""
        with self._lock:
            return [manifest for (each, _, _), manifest in self._objects.items() if each == kind]

    def find(self, kind: str, uid: str) -> Object | None:
        """Return the object with this uid, None when it is deleted."""
        return next((each for each in self.all(kind) if each["metadata"]["uid"] == uid), None)

    def bind(self, orders: Sequence[BindOrder], settle: OnOutcome, until: float) -> None:
        """Bind the pod with this uid, only once, and only to an existing node."""
        for order in orders:
            settle(order, self._bind(order))

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        """Return the PodGroup as it is now."""
        with self._lock:
            found = self._objects.get(("PodGroup", group.namespace, group.name))
        return settled(self._read_group(found) if found else None)

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        """Nominate each pod to its node, which makes kube-scheduler retry it."""
        for order in orders:
            with self._lock:
                pod = self._objects.get(("Pod", order.namespace, order.name))
            if pod is not None:
                self.change(pod, lambda it, node=order.nomination: _nominate(it, node))  # type: ignore[misc]

    def _bind(self, order: BindOrder) -> BindOutcome:
        with self._lock:
            pod = self._objects.get(("Pod", order.namespace, order.name))
            if pod is None or pod["metadata"]["uid"] != order.uid:
                return BindOutcome(BindResult.LOST, "the pod is gone")
            if order.whose is Whose.UNKNOWN:
                # The watch never lags here, so an unknown pod belongs to no extender.
                return BindOutcome(BindResult.FAILED, "this extender may not decide now")
            if pod["spec"].get("nodeName", order.node) != order.node:
                return BindOutcome(BindResult.LOST, "the pod is on another node")

            if ("Node", "", order.node) not in self._objects:
                return BindOutcome(BindResult.FAILED, "the chosen node does not exist")

            def assign(it: Object) -> None:
                it["spec"]["nodeName"] = order.node
                it["status"]["phase"] = "Running"

            self.change(pod, assign)
            return BindOutcome(BindResult.BOUND)

    def _publish(self, verb: str, manifest: Object) -> None:
        for listener in self._listeners:
            listener(verb, manifest)


def _key(manifest: Object) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _nominate(pod: Object, node: str) -> None:
    pod["status"]["nominatedNodeName"] = node


def settled(value: Any) -> Future[Any]:
    """Return a completed future."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class SimEvictor:
    """Delete evicted pods at once."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Delete the pods."""
        for order in orders:
            self._cluster.delete("Pod", order.namespace, order.name)
        return [settled(EvictOutcome(EvictResult.LEAVING)) for _ in orders]

    def evict_all(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        """Evict a gang that was bound in part; its workload recreates the pods."""
        leaves(gang)
        self.evict(orders)


class SimStatus:
    """Read and write the status of the simulated objects."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    def read(self, subject: ObjectReference) -> Future[Mapping[str, Any] | None]:
        """Return the status as it is."""
        found = self._cluster.find(subject.kind, subject.uid)
        return settled(found.get("status", {}) if found else None)

    def write(
        self, subject: ObjectReference, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        """Merge *status* into the existing status."""
        found = self._cluster.find(subject.kind, subject.uid)
        if found is None:
            return settled(None)
        merged = {**found.get("status", {}), **status}
        self._cluster.change(found, lambda it: it.update(status=merged))
        return settled(merged)


class SimAnnouncer:
    """Keep the Events for inspection."""

    def __init__(self) -> None:
        self.events: list[EventRecord] = []

    def write(self, notice: EventRecord) -> None:
        """Store *notice*."""
        self.events.append(notice)

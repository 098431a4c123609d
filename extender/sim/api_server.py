"""The simulated API server: all objects, and one queue of watch events for each watcher.

It delivers no event of these queues by itself, so a test or a simulation decides how long a watch
lags; a listener gets each change at once. Bindings and reads of PodGroups wait until `answer`
completes them, unless `answers_at_once` is set. Any thread may call it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple

from extender.cache.changes import Change, Delete, Kind, SeenPod, Upsert
from extender.model.gang import GangKey, Phase, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid, Status
from extender.model.queue import Namespace, PriorityClass, Queue
from extender.ports import (
    BindOrder,
    BindOutcome,
    BindResult,
    Clock,
    EvictOrder,
    EvictOutcome,
    EvictResult,
    OnOutcome,
    WakeOrder,
    Whose,
)

#: Outcomes of a binding: applied and confirmed; refused; applied without an answer; lost.
OUTCOMES = ("answers", "fails", "is silent", "loses")


class WatchEvent(NamedTuple):
    """One event of a watch, written at the monotonic time *at*."""

    change: Change
    at: float
    #: Whether only the status of the object changed.
    status_only: bool = False


@dataclass(eq=False)
class Binding:
    """A binding in flight."""

    order: BindOrder
    settle: OnOutcome
    at: float
    #: The deadline for its outcome.
    until: float


@dataclass(eq=False)
class Read:
    """A read of a PodGroup in flight."""

    group: PodGroup
    future: Future[PodGroup | None]
    at: float


class ApiServer:
    """Store objects by key and implement the ports through which the extender acts."""

    def __init__(self, time: Clock) -> None:
        self._time = time
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.classes: dict[str, PriorityClass] = {}
        self.groups: dict[GangKey, PodGroup] = {}
        self.pods: dict[PodUid, SeenPod] = {}
        self.to_extender: deque[WatchEvent] = deque()
        self.to_scheduler: deque[WatchEvent] = deque()
        self.in_flight: list[Binding | Read] = []
        #: Complete each call at once and successfully.
        self.answers_at_once = True
        #: Complete no call.
        self.stalled = False
        self.wakes: list[tuple[float, WakeOrder]] = []
        #: Called with bindings when they are sent.
        self.on_bindings: Callable[[Sequence[BindOrder]], None] = lambda orders: None
        #: Called with a pod that is evicted, before it is deleted.
        self.on_eviction: Callable[[PodUid], None] = lambda uid: None
        #: Called with each change when it is written, before any watch delivers it.
        self._listeners: list[Callable[[Change], None]] = []
        self._lock = threading.RLock()

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call *listener* with all existing objects and with each later change."""
        with self._lock:
            kinds = (self.nodes, self.queues, self.namespaces, self.classes, self.groups, self.pods)
            for item in (item for kind in kinds for item in kind.values()):
                listener(Upsert(item))
            self._listeners.append(listener)

    # ── objects ───────────────────────────────────────────────────────────────────────────

    def put(self, item: Node | Queue | Namespace | PriorityClass | PodGroup | SeenPod) -> None:
        """Create or replace an object."""
        with self._lock:
            if isinstance(item, PriorityClass):
                self.classes[item.name] = item
            elif isinstance(item, Namespace):
                self.namespaces[item.name] = item
            elif isinstance(item, Node):
                self.nodes[item.name] = item
            elif isinstance(item, Queue):
                self.queues[item.name] = item
            elif isinstance(item, PodGroup):
                self.groups[item.key] = item
            else:
                self.pods[item.pod.uid] = item
            self._publish(Upsert(item))

    def delete_node(self, name: str) -> None:
        """Remove a node. Its pods stay."""
        with self._lock:
            del self.nodes[name]
            self._publish(Delete(Kind.NODE, name))

    def delete_group(self, key: GangKey) -> None:
        """Remove a PodGroup."""
        with self._lock:
            group = self.groups.pop(key)
            self._publish(Delete(Kind.GROUP, key, group.dialect))

    def delete_pod(self, uid: PodUid) -> None:
        """Remove a pod at once, if it is still there."""
        with self._lock:
            if self.pods.pop(uid, None) is not None:
                self._publish(Delete(Kind.POD, uid))

    def patch(self, uid: PodUid, *, status_only: bool = True, **facts: object) -> None:
        """Change a pod. A status patch that changes nothing causes no event."""
        with self._lock:
            seen = self.pods.get(uid)
            if seen is None:
                return
            pod: Pod = replace(seen.pod, **facts)  # type: ignore[arg-type]
            if status_only and pod == seen.pod and pod.refusal == seen.pod.refusal:
                return
            self.pods[uid] = SeenPod(pod, seen.membership)
            self._publish(Upsert(self.pods[uid]), status_only)

    def set_phase(self, key: GangKey, uid: str, phase: Phase) -> bool:
        """Write the phase of a PodGroup; return whether the one with this uid is still there."""
        with self._lock:
            group = self.groups.get(key)
            if group is None or group.uid != uid:
                return False
            if group.phase is not phase:
                self.put(replace(group, phase=phase))
            return True

    def _publish(self, change: Change, status_only: bool = False) -> None:
        event = WatchEvent(change, self._time.monotonic(), status_only)
        self.to_extender.append(event)
        self.to_scheduler.append(event)
        for listener in self._listeners:
            listener(change)

    # ── ports of the extender ─────────────────────────────────────────────────────────────

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        """Nominate pods to nodes, as ordered."""
        for order in orders:
            self.wakes.append((self._time.monotonic(), order))
            condition = {"refusal": order.refusal} if order.refusal else {}
            self.patch(order.uid, status_only=False, nominated=order.node, **condition)
            if order.briefly:
                self.patch(order.uid, status_only=False, nominated="")

    def bind(self, orders: Sequence[BindOrder], settle: OnOutcome, until: float) -> None:
        """Accept bindings, and complete them when `answers_at_once` is set."""
        self.on_bindings(orders)
        bindings = [Binding(order, settle, self._time.monotonic(), until) for order in orders]
        self.in_flight += bindings
        for each in bindings if self.answers_at_once and not self.stalled else ():
            self.answer(each)

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        """Accept a read of a PodGroup."""
        call = Read(group, Future(), self._time.monotonic())
        self.in_flight.append(call)
        if self.answers_at_once and not self.stalled:
            self.answer(call)
        return call.future

    def answer(self, call: Binding | Read, outcome: str = "answers") -> None:
        """Complete a call with an outcome of `OUTCOMES`."""
        self.in_flight.remove(call)
        if isinstance(call, Read):
            call.future.set_result(self.groups.get(call.group.key))
            return
        with self._lock:
            result = self._bind(call.order, outcome)
        call.settle(call.order, result)

    def time_out(self, outcome: str = "loses") -> None:
        """Complete overdue bindings, as the binder does after the deadline of a bind call."""
        now = self._time.monotonic()
        for each in [each for each in self.in_flight if isinstance(each, Binding)]:
            if each.until <= now:
                self.answer(each, outcome)

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Delete pods at once; their controllers recreate them."""
        outcomes: list[Future[EvictOutcome]] = []
        for order in orders:
            result = EvictResult.LEAVING if order.uid in self.pods else EvictResult.GONE
            if result is EvictResult.LEAVING:
                self.on_eviction(order.uid)
                self.delete_pod(order.uid)
            future: Future[EvictOutcome] = Future()
            future.set_result(EvictOutcome(result))
            outcomes.append(future)
        return outcomes

    def evict_all(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        """Evict the members of a gang that was bound in part."""
        leaves(gang)
        self.evict(orders)

    def _bind(self, order: BindOrder, outcome: str) -> BindOutcome:
        seen = self.pods.get(order.uid)
        if outcome == "fails":
            return BindOutcome(BindResult.FAILED, "the API server refused the binding")
        if outcome == "loses":
            return BindOutcome(BindResult.UNKNOWN, "no answer")
        if seen is None:
            return BindOutcome(BindResult.LOST, "the pod is gone")
        if order.whose is Whose.UNKNOWN:
            # The binder reads such a pod, and binds it if it is exempt; here none is.
            return BindOutcome(BindResult.FAILED, "this extender may not decide now")
        if seen.pod.node not in ("", order.node):
            return BindOutcome(BindResult.LOST, "the pod is on another node")
        if order.node not in self.nodes:
            return BindOutcome(BindResult.FAILED, "the chosen node does not exist")
        if not seen.pod.node:
            self.patch(
                order.uid,
                status_only=False,
                node=order.node,
                status=Status.RUNNING,
                refusal="",
                nominated="",
                began=self._time.now(),
            )
        if outcome == "is silent":
            return BindOutcome(BindResult.UNKNOWN, "no answer")
        return BindOutcome(BindResult.BOUND)

    @property
    def has_unbound_pods(self) -> bool:
        """Return whether any pod has no node."""
        return any(not seen.pod.node for seen in self.pods.values())

    # ── queries ───────────────────────────────────────────────────────────────────────────

    @property
    def bindings(self) -> list[BindOrder]:
        """Return the bindings in flight."""
        return [each.order for each in self.in_flight if isinstance(each, Binding)]

    def pods_of(self, key: GangKey) -> list[SeenPod]:
        """Return the pods of a gang."""
        return [seen for seen in self.pods.values() if seen.membership.key == key]

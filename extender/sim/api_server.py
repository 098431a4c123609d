"""The simulated API server: all objects, and one queue of watch events for each watcher.

It delivers no event by itself, so a test or a simulation decides how long a watch lags. Bindings
and reads of PodGroups wait until `answer` completes them, unless `answers_at_once` is set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple

from extender.cache.changes import Change, Delete, Kind, SeenPod, Upsert
from extender.model.gang import GangKey, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid, Status
from extender.model.queue import Namespace, NamespaceShare, PriorityClass, Queue
from extender.ports import BindOrder, BindOutcome, BindResult, OnOutcome, WakeOrder
from extender.sim.clock import VirtualClock

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

    def __init__(self, time: VirtualClock) -> None:
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
        #: Called with each change when it is written, before any watch delivers it.
        self.controllers: list[Callable[[Change], None]] = []

    # ── objects ───────────────────────────────────────────────────────────────────────────

    def put(self, item: Node | Queue | Namespace | PriorityClass | PodGroup | SeenPod) -> None:
        """Create or replace an object."""
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

    def shares_of(self, queue: str) -> list[NamespaceShare]:
        """Return the limits and guarantees of namespaces in *queue*."""
        every = (share for each in self.namespaces.values() for share in each.shares)
        return [share for share in every if share.queue == queue]

    def delete_node(self, name: str) -> None:
        """Remove a node. Its pods stay."""
        del self.nodes[name]
        self._publish(Delete(Kind.NODE, name))

    def delete_group(self, key: GangKey) -> None:
        """Remove a PodGroup."""
        group = self.groups.pop(key)
        self._publish(Delete(Kind.GROUP, key, group.dialect))

    def delete_pod(self, uid: PodUid) -> None:
        """Remove a pod at once."""
        del self.pods[uid]
        self._publish(Delete(Kind.POD, uid))

    def patch(self, uid: PodUid, *, status_only: bool = True, **facts: object) -> None:
        """Change a pod. A status patch that changes nothing causes no event."""
        seen = self.pods.get(uid)
        if seen is None:
            return
        pod: Pod = replace(seen.pod, **facts)  # type: ignore[arg-type]
        if status_only and pod == seen.pod and pod.refusal == seen.pod.refusal:
            return
        self.pods[uid] = SeenPod(pod, seen.membership)
        self._publish(Upsert(self.pods[uid]), status_only)

    def _publish(self, change: Change, status_only: bool = False) -> None:
        event = WatchEvent(change, self._time.monotonic(), status_only)
        self.to_extender.append(event)
        self.to_scheduler.append(event)
        for controller in self.controllers:
            controller(change)

    # ── ports of the extender ─────────────────────────────────────────────────────────────

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        """Nominate pods to nodes, as ordered."""
        for order in orders:
            self.record_wake(order)
            condition = {"refusal": order.refusal} if order.refusal else {}
            self.patch(order.uid, status_only=False, nominated=order.node, **condition)
            if order.briefly:
                self.patch(order.uid, status_only=False, nominated="")

    def record_wake(self, order: WakeOrder) -> None:
        """Record an order for later inspection."""
        self.wakes.append((self._time.monotonic(), order))

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
        call.settle(call.order, self._outcome(call.order, outcome))

    def time_out(self, outcome: str = "loses") -> None:
        """Complete overdue bindings, as the binder does after the deadline of a bind call."""
        now = self._time.monotonic()
        for each in [each for each in self.in_flight if isinstance(each, Binding)]:
            if each.until <= now:
                self.answer(each, outcome)

    def _outcome(self, order: BindOrder, outcome: str) -> BindOutcome:
        seen = self.pods.get(order.uid)
        if outcome == "fails":
            return BindOutcome(BindResult.FAILED, "the API server refused the binding")
        if outcome == "loses":
            return BindOutcome(BindResult.UNKNOWN, "no answer")
        if seen is None:
            return BindOutcome(BindResult.LOST, "the pod is gone")
        if seen.pod.node not in ("", order.node):
            return BindOutcome(BindResult.LOST, "the pod is on another node")
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

"""The API server: what is true, and one queue of news for each that watches it.

Nothing is delivered by itself: a watch may lag as long as the story wants. Bindings and reads of
PodGroups wait until somebody says what becomes of them, unless *prompt*.
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

#: What became of a binding: applied and confirmed; refused; applied without an answer; lost.
OUTCOMES = ("answers", "fails", "is silent", "loses")


class WatchEvent(NamedTuple):
    """One line of a watch, written *at* a time."""

    change: Change
    at: float
    #: Only the status of the object changed.
    status_only: bool = False


@dataclass(eq=False)
class Binding:
    """A binding under way."""

    order: BindOrder
    settle: OnOutcome
    at: float
    #: When its outcome must be told.
    until: float


@dataclass(eq=False)
class Read:
    """A read of a PodGroup under way."""

    group: PodGroup
    future: Future[PodGroup | None]
    at: float


class ApiServer:
    """Objects by key; implements the ports through which the extender acts."""

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
        #: Answer everything at once and well.
        self.answers_at_once = True
        #: Do and tell nothing at all, however long that lasts.
        self.stalled = False
        self.wakes: list[tuple[float, WakeOrder]] = []
        #: Told of bindings as they are sent.
        self.on_bindings: Callable[[Sequence[BindOrder]], None] = lambda orders: None
        #: Told of every change as it is written, before any watch: those who own the objects.
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
        """What namespaces may have of a queue, and have at least."""
        every = (share for each in self.namespaces.values() for share in each.shares)
        return [share for share in every if share.queue == queue]

    def delete_node(self, name: str) -> None:
        """Remove a node; its pods are somebody else's business."""
        del self.nodes[name]
        self._publish(Delete(Kind.NODE, name))

    def delete_group(self, key: GangKey) -> None:
        """Remove a PodGroup."""
        gone = self.groups.pop(key)
        self._publish(Delete(Kind.GROUP, key, gone.dialect))

    def delete_pod(self, uid: PodUid) -> None:
        """Remove a pod at once."""
        del self.pods[uid]
        self._publish(Delete(Kind.POD, uid))

    def patch(self, uid: PodUid, *, status_only: bool = True, **facts: object) -> None:
        """Change a pod; a patch of the status that changes nothing is no news."""
        seen = self.pods.get(uid)
        if seen is None:
            return
        pod: Pod = replace(seen.pod, **facts)  # type: ignore[arg-type]
        if status_only and pod == seen.pod and pod.refusal == seen.pod.refusal:
            return
        self.pods[uid] = SeenPod(pod, seen.membership)
        self._publish(Upsert(self.pods[uid]), status_only)

    def _publish(self, change: Change, status_only: bool = False) -> None:
        news = WatchEvent(change, self._time.monotonic(), status_only)
        self.to_extender.append(news)
        self.to_scheduler.append(news)
        for owner in self.controllers:
            owner(change)

    # ── ports of the extender ─────────────────────────────────────────────────────────────

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        """Nominate pods, as they were ordered to be."""
        for order in orders:
            self.record_wake(order)
            said = {"refusal": order.refusal} if order.refusal else {}
            self.patch(order.uid, status_only=False, nominated=order.node, **said)
            if order.briefly:
                self.patch(order.uid, status_only=False, nominated="")

    def record_wake(self, order: WakeOrder) -> None:
        """Keep an order for whoever tells the story."""
        self.wakes.append((self._time.monotonic(), order))

    def bind(self, orders: Sequence[BindOrder], settle: OnOutcome, until: float) -> None:
        """Take bindings in; at once unless somebody else says what becomes of them."""
        self.on_bindings(orders)
        bindings = [Binding(order, settle, self._time.monotonic(), until) for order in orders]
        self.in_flight += bindings
        for each in bindings if self.answers_at_once and not self.stalled else ():
            self.answer(each)

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        """Take a read in."""
        asked = Read(group, Future(), self._time.monotonic())
        self.in_flight.append(asked)
        if self.answers_at_once and not self.stalled:
            self.answer(asked)
        return asked.future

    def answer(self, call: Binding | Read, mood: str = "answers") -> None:
        """Say what becomes of a call."""
        self.in_flight.remove(call)
        if isinstance(call, Read):
            call.future.set_result(self.groups.get(call.group.key))
            return
        call.settle(call.order, self._outcome(call.order, mood))

    def time_out(self, mood: str = "loses") -> None:
        """Tell what is not known, as the binder does once nobody could hear more."""
        now = self._time.monotonic()
        for each in [each for each in self.in_flight if isinstance(each, Binding)]:
            if each.until <= now:
                self.answer(each, mood)

    def _outcome(self, order: BindOrder, mood: str) -> BindOutcome:
        seen = self.pods.get(order.uid)
        if mood == "fails":
            return BindOutcome(BindResult.FAILED, "the API server refused the binding")
        if mood == "loses":
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
        if mood == "is silent":
            return BindOutcome(BindResult.UNKNOWN, "no answer")
        return BindOutcome(BindResult.BOUND)

    @property
    def has_unbound_pods(self) -> bool:
        """Ask whether any pod has no node."""
        return any(not seen.pod.node for seen in self.pods.values())

    # ── asked by the story ────────────────────────────────────────────────────────────────

    @property
    def bindings(self) -> list[BindOrder]:
        """Give the bindings under way."""
        return [each.order for each in self.in_flight if isinstance(each, Binding)]

    def pods_of(self, key: GangKey) -> list[SeenPod]:
        """Give the pods of a gang."""
        return [seen for seen in self.pods.values() if seen.membership.key == key]

"""The reservation table: what is reserved or bound but not yet seen, by uid of the pod.

    RESERVED ──▶ FILTERED ──▶ WAITING ──▶ BINDING ──▶ BOUND ──▶ (seen by the watch)
    plan or      filter       bind        the         the API
    filter       admitted     waits       binding     server
    reserved     the pod                  is sent     confirmed

From WAITING on kube-scheduler has assumed the pod, so it counts as used capacity of the node. A pod
that is RESERVED or FILTERED is unknown to kube-scheduler, and only the extender keeps its capacity
free. A pod may return from FILTERED or WAITING, because kube-scheduler may give up and start anew.
From BINDING it returns to RESERVED only when the binding failed and the gang keeps its placement
(`revert`). If the outcome of a binding is not known, it is UNKNOWN: kube-scheduler was told that it
failed, so only the extender keeps the capacity, until the watch shows the pod. A single pod that
filter admitted has a reservation on `ANY_NODE`: it counts in its queue, and on a node as soon as
kube-scheduler has chosen one.

The table only stores. The one ledger (`reservations/ledger`) decides in the event loop whether
capacity may be reserved, and it alone creates reservations. What the watch shows decides: a pod
that is seen on a node, or gone, has no entry any more. So any thread may call every method; each
holds the lock for microseconds. Single facts are read without the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

from extender.model.gang import GangKey
from extender.model.pod import Pod, PodUid, Shape, Status
from extender.model.resources import NOTHING, Resources

_Key = TypeVar("_Key")
#: In place of a node: kube-scheduler has not chosen one yet.
ANY_NODE = ""
#: A bind that neither the API server confirmed nor the watch showed by then did not happen, as
#: long as the watch is fresh. While its outcome may still arrive it is BINDING, for as long as
#: kube-scheduler waits.
SETTLED_S = 60.0


class Stage(IntEnum):
    """How far a reservation has come."""

    RESERVED = 1
    FILTERED = 2
    WAITING = 3
    BINDING = 4
    UNKNOWN = 5
    BOUND = 6


class Reservation(NamedTuple):
    """The reservation of a node for one pod, at this stage *since_monotonic*."""

    pod: Pod
    gang: GangKey
    node: str
    stage: Stage
    since_monotonic: float
    #: The queue in which the pod was admitted.
    queue: str = ""

    @property
    def uid(self) -> PodUid:
        """Return the uid of the pod."""
        return self.pod.uid

    @property
    def shape(self) -> Shape:
        """Return the shape of the pod."""
        return self.pod.shape

    @property
    def is_unassumed(self) -> bool:
        """Return whether only the extender reserves: kube-scheduler does not count the pod."""
        return self.stage <= Stage.FILTERED or self.stage is Stage.UNKNOWN

    @property
    def is_sent(self) -> bool:
        """Return whether its binding was sent, or has succeeded."""
        return self.stage is Stage.BINDING or self.stage is Stage.BOUND

    @property
    def status(self) -> Status:
        """Return the status of the pod for the planner; the pod may already be terminating."""
        return Status.ALLOCATED if self.stage <= Stage.FILTERED else Status.BINDING

    def counts_like(self, other: Reservation) -> bool:
        """Return whether planner and kube-scheduler count it like *other*."""
        return (
            self.node == other.node
            and self.pod.shape is other.pod.shape
            and self.gang == other.gang
            and self.status is other.status
            and self.is_unassumed is other.is_unassumed
            and other.stage is not Stage.BOUND
        )


class TableChanges(NamedTuple):
    """The reservations at one moment, and what changed since the last `drain`."""

    #: Gangs whose reservations changed.
    touched: set[GangKey]
    #: (node, shape, +1 or -1) for every new reservation and for every ended one.
    steps: list[tuple[str, Shape, int]]
    reservations: dict[GangKey, dict[PodUid, Reservation]]
    #: How many seconds each gang still has to back off.
    backoff: dict[GangKey, float]


_NO_RESERVATIONS: dict[PodUid, Reservation] = {}


class ReservationTable:
    """All reservations, and the backoff of gangs."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        seen: Callable[[PodUid], Pod | None],
        freed: Callable[[], None],
        changed: Callable[[str], None],
        shown_until: Callable[[], float],
    ) -> None:
        self._monotonic = monotonic
        #: Returns up to which moment the watch has shown what became of pods.
        self._shown_until = shown_until
        #: Returns the pod as the watch last showed it.
        self._seen = seen
        #: Called when capacity was released or the backoff of a gang changed.
        self._on_freed = freed
        #: Called, after the change, with the name of a node whose reservations changed.
        self._on_changed = changed
        #: While it is held, no reservation changes. For reading facts that belong together, with
        #: the methods that take no lock, for microseconds.
        self.lock = threading.Lock()
        self._by_uid: dict[PodUid, Reservation] = {}
        self._by_gang: dict[GangKey, dict[PodUid, Reservation]] = {}
        self._by_node: dict[str, dict[PodUid, Reservation]] = {}
        self._reserved = NodeCounts()
        self._committed = NodeCounts()
        #: The number of pods bound and not yet seen, by gang, and by gang and role.
        self._bound: dict[GangKey, int] = {}
        self._bound_roles: dict[tuple[GangKey, str], int] = {}
        #: What was reserved since the last `drain`, by queue and namespace.
        self._spent: dict[tuple[str, str], Resources] = {}
        self._backoff: dict[GangKey, float] = {}
        self._touched: set[GangKey] = set()
        self._steps: list[tuple[str, Shape, int]] = []

    def of(self, uid: PodUid) -> Reservation | None:
        """Return the reservation of a pod."""
        return self._by_uid.get(uid)

    def of_gang(self, key: GangKey) -> tuple[Reservation, ...]:
        """Return the reservations of a gang."""
        return tuple(self._by_gang.get(key, {}).values())

    def gangs(self) -> tuple[GangKey, ...]:
        """Return the gangs that have reservations."""
        return tuple(self._by_gang)

    def on_node(self, node: str) -> tuple[Reservation, ...]:
        """Return the current reservations on *node*; the watch may end some at any moment."""
        return tuple(self._by_node.get(node, _NO_RESERVATIONS).values())

    def count_on(self, node: str) -> int:
        """Return the number of reservations on *node*."""
        return len(self._by_node.get(node, _NO_RESERVATIONS))

    def __len__(self) -> int:
        return len(self._by_uid)

    def reserved_on(self, node: str) -> Resources:
        """Return what is reserved on *node* for pods that kube-scheduler has not placed yet."""
        return self._reserved.on(node)

    def reserved_nodes(self) -> KeysView[str]:
        """Return the nodes with reserved capacity."""
        return self._reserved.nodes()

    def assumed_on(self, node: str) -> Resources:
        """Return what kube-scheduler counts on *node* though the watch does not show it yet."""
        return self._committed.on(node)

    def assumed_nodes(self) -> KeysView[str]:
        """Return the nodes with such pods."""
        return self._committed.nodes()

    def bound_in(self, key: GangKey) -> int:
        """Return the number of members of a gang that are bound and not yet seen on a node."""
        return self._bound.get(key, 0)

    def bound_in_role(self, key: GangKey, role: str) -> int:
        """Return the number of members of one role that `bound_in` counts."""
        return self._bound_roles.get((key, role), 0)

    @property
    def bound_roles(self) -> Collection[tuple[GangKey, str]]:
        """Return the gangs and roles of bound pods."""
        return self._bound_roles.keys()

    def reserve(
        self,
        pod: Pod,
        gang: GangKey,
        node: str,
        now: float,
        *,
        stage: Stage = Stage.RESERVED,
        queue: str = "",
    ) -> bool:
        """Reserve *node* for *pod*; False when it needs no node, or its stage is further on.

        A new reservation counts as spent by *queue* until the next `drain`.
        """
        with self.lock:
            known = self._by_uid.get(pod.uid)
            if not self._needs_reservation(pod.uid) or (known and known.stage > stage):
                return False
            self._put(Reservation(pod, gang, node, stage, now, queue), known)
            if known is None:
                place = (queue, pod.namespace)
                self._spent[place] = self._spent.get(place, NOTHING) + pod.requests
            return True

    def spent(self) -> Mapping[tuple[str, str], Resources]:
        """Return what was reserved since the last `drain`, by queue and namespace."""
        with self.lock:
            return dict(self._spent)

    def swap(self, one: PodUid, other: PodUid) -> bool:
        """Exchange the nodes of two reservations; False when either has moved on."""
        with self.lock:
            first, second = self._by_uid.get(one), self._by_uid.get(other)
            if (
                not (first and second)
                or second.stage > Stage.RESERVED
                or first.stage > Stage.FILTERED
            ):
                return False
            self._put(first._replace(node=second.node), first)
            self._put(second._replace(node=first.node), second)
            return True

    def move(self, uid: PodUid, node: str) -> bool:
        """Move a reservation to another node; False without one, or when its binding was sent."""
        with self.lock:
            known = self._by_uid.get(uid)
            if known is None or known.stage >= Stage.BINDING:
                return False
            self._put(known._replace(node=node), known)
            return True

    def advance(
        self, uid: PodUid, stage: Stage, node: str | None = None, pod: Pod | None = None
    ) -> bool:
        """Record the stage of a pod, and *node* if kube-scheduler chose another one.

        *pod* is the pod as kube-scheduler last showed it, with its condition until then.
        """
        with self.lock:
            known = self._by_uid.get(uid)
            if known is None or (known.is_sent and stage < known.stage):
                return False
            node, pod = node or known.node, pod or known.pod
            since = known.since_monotonic if known.stage is stage else self._monotonic()
            new = Reservation(pod, known.gang, node, stage, since, known.queue)
            if new != known:
                self._put(new, known)
            return True

    def revert(self, uid: PodUid, node: str) -> None:
        """Make a pod RESERVED again because its binding failed."""
        with self.lock:
            if (known := self._by_uid.get(uid)) is not None:
                self._revert(known, node)

    def _revert(self, known: Reservation, node: str) -> None:
        new = known._replace(node=node, stage=Stage.RESERVED)
        self._put(new._replace(since_monotonic=self._monotonic()), known)

    def take_over(self, placeholder: PodUid, pod: Pod) -> bool:
        """Replace a *placeholder* by *pod*; False when it is gone or *pod* needs no node.

        A placeholder has the shape of the pods it stands for, so no amount changes.
        """
        with self.lock:
            known = self._by_uid.get(placeholder)
            if known is None or pod.uid in self._by_uid or not self._needs_reservation(pod.uid):
                return False
            members = self._by_gang[known.gang]
            new = known._replace(pod=pod, since_monotonic=self._monotonic())
            self._by_uid[pod.uid] = members[pod.uid] = self._by_node[new.node][pod.uid] = new
            for places in (self._by_uid, members, self._by_node[new.node]):
                del places[placeholder]
            self._touched.add(known.gang)
            return True

    def release(self, uid: PodUid) -> bool:
        """Release the reservation of a pod; False without one."""
        with self.lock:
            known = self._drop(uid)
        if known is not None:
            self._on_freed()
        return known is not None

    def expire(self, key: GangKey) -> None:
        """Release the reservations of a gang that kube-scheduler does not count yet."""
        with self.lock:
            releasable = [each for each in self.of_gang(key) if each.stage <= Stage.FILTERED]
            for each in releasable:
                self._drop(each.uid)
        if releasable:
            self._on_freed()

    def release_all(self) -> None:
        """Release all reservations that kube-scheduler does not count yet."""
        for key in tuple(self._by_gang):
            self.expire(key)

    def pod_scheduled(self, uid: PodUid) -> None:
        """Called when the watch shows a pod on a node, finished or gone."""
        if uid in self._by_uid:
            with self.lock:
                self._drop(uid)

    def pod_deleting(self, uid: PodUid) -> None:
        """Called when a pod is being deleted or left its gang; permit ends waiting binds."""
        if uid in self._by_uid:
            with self.lock:  # or its binding could be sent between the check and the end
                known = self._by_uid.get(uid)
                if known is not None and known.stage <= Stage.FILTERED:
                    self._drop(uid)

    def pod_unschedulable(self, uid: PodUid, refusal: str) -> None:
        """Called when kube-scheduler found no node for a pod that filter had admitted.

        Does nothing if the pod has come further since, or if it had *refusal* before that.
        """
        with self.lock:
            known = self._by_uid.get(uid)
            if known is None or known.stage is not Stage.FILTERED or known.pod.refusal == refusal:
                return
            is_over = known.node == ANY_NODE
            if is_over:
                self._drop(uid)
            else:
                self._revert(known, known.node)
        if is_over:
            self._on_freed()

    def drop_unsettled(self, each: Reservation, now: float) -> bool:
        """Release a bind that did not happen: sent long ago, and the pod is on no node."""
        # A watch that is silent cannot show that the pod is not there.
        age = min(now, self._shown_until()) - each.since_monotonic
        if each.stage < Stage.UNKNOWN or age <= SETTLED_S:
            return False
        # Confirmed, but the pod is unknown: it came and went before the watch showed it.
        if each.stage is Stage.BOUND and self._seen(each.uid) is not None:
            return False
        return self.release(each.uid)

    def back_off(self, key: GangKey, span_s: float) -> None:
        """Do not start a gang again for *span_s*."""
        with self.lock:
            self._backoff[key] = self._monotonic() + span_s
            self._touched.add(key)
        self._on_freed()

    def backs_off_for(self, key: GangKey) -> float:
        """Return how many seconds a gang still has to back off; 0 without backoff."""
        until = self._backoff.get(key)
        return max(0.0, until - self._monotonic()) if until is not None else 0.0

    def is_backoff_over(self) -> bool:
        """Return whether the backoff of a gang has ended since the last `drain`."""
        now = self._monotonic()
        return any(until <= now for until in tuple(self._backoff.values()))

    def drain(self, also: Iterable[GangKey] = ()) -> TableChanges:
        """Return the changes since the last `drain`, and the reservations of the gangs in them.

        Those of the gangs in *also* are included.
        """
        with self.lock:
            now = self._monotonic()
            for key in [key for key, until in self._backoff.items() if until <= now]:
                del self._backoff[key]
                self._touched.add(key)
            # The end of a backoff is reported in wall time, which may step: so always anew.
            touched, self._touched = self._touched | self._backoff.keys(), set()
            steps, self._steps = self._steps, []
            self._spent = {}
            wanted = self._by_gang.keys() & touched.union(also)
            reservations = {key: dict(self._by_gang[key]) for key in wanted}
            backoff = {key: until - now for key, until in self._backoff.items()}
            return TableChanges(touched, steps, reservations, backoff)

    def changes(self) -> TableChanges:
        """Return the changes alone: what was spent since the last `drain` still counts as spent."""
        with self.lock:
            touched, self._touched = self._touched, set()
            steps, self._steps = self._steps, []
            return TableChanges(touched, steps, {}, {})

    def _needs_reservation(self, uid: PodUid) -> bool:
        seen = self._seen(uid)
        return seen is None or (not seen.node and seen.status is Status.PENDING)

    def _put(self, new: Reservation, old: Reservation | None) -> None:
        if old is not None and new.counts_like(old):
            # The same capacity, counted the same way: only the hooks need the new entry.
            self._by_uid[new.uid] = self._by_gang[new.gang][new.uid] = new
            self._by_node[new.node][new.uid] = new
        else:
            # The new node is counted before the old one is released: a reader in between sees too
            # little free capacity, never too much.
            self._count(new, 1)
            if old is not None:
                self._count(old, -1)
                self._unlink(old)
            self._by_uid[new.uid] = new
            self._by_gang.setdefault(new.gang, {})[new.uid] = new
            self._by_node.setdefault(new.node, {})[new.uid] = new
            self._touched.add(new.gang)
        if new.stage is Stage.BOUND:
            _step(self._bound, new.gang, 1)
            _step(self._bound_roles, (new.gang, new.pod.role), 1)

    def _drop(self, uid: PodUid) -> Reservation | None:
        old = self._by_uid.pop(uid, None)
        if old is not None:
            self._count(old, -1)
            self._unlink(old)
        return old

    def _count(self, each: Reservation, step: int) -> None:
        if each.node == ANY_NODE:
            return
        counts = self._reserved if each.is_unassumed else self._committed
        counts.count(each.node, each.pod.shape.requests, step)
        self._steps.append((each.node, each.pod.shape, step))
        self._on_changed(each.node)

    def _unlink(self, old: Reservation) -> None:
        members = self._by_gang[old.gang]
        del members[old.uid]
        if not members:
            del self._by_gang[old.gang]
        beside = self._by_node[old.node]
        del beside[old.uid]
        if not beside:
            del self._by_node[old.node]
        self._touched.add(old.gang)
        if old.stage is Stage.BOUND:
            _step(self._bound, old.gang, -1)
            _step(self._bound_roles, (old.gang, old.pod.role), -1)


def _step(counts: dict[_Key, int], key: _Key, by: int) -> None:
    """Add *by*; drop a count of zero."""
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


class NodeCounts:
    """Sums of resources by node; values are replaced as a whole, so that reads need no lock."""

    def __init__(self) -> None:
        self._sums: dict[str, Resources] = {}
        self._counts: dict[str, int] = {}

    def on(self, node: str) -> Resources:
        """Return the sum on *node*."""
        return self._sums.get(node, NOTHING)

    def nodes(self) -> KeysView[str]:
        """Return the nodes with a sum, as a live view."""
        return self._sums.keys()

    def count(self, node: str, amounts: Resources, step: int) -> None:
        """Add *amounts* on *node* (*step* is 1) or subtract them (-1)."""
        number = self._counts.get(node, 0) + step
        if not number:
            del self._counts[node], self._sums[node]
            return
        self._counts[node] = number
        self._sums[node] = self.on(node) + amounts if step > 0 else self.on(node) - amounts

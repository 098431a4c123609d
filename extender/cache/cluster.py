"""The cache of the cluster: takes in every change, and provides snapshots and single facts.

Rule 1: writers and snapshots share one lock. Reads never take it, because the filter hook may not
wait for a snapshot. A read returns one fact at one moment. Where two facts belong together (what is
seen, and what is reserved), the reservations are locked for that moment. What is seen is published
in an order that makes a race err on the safe side: too little free capacity, too few scheduled.
Rule 2: nothing here does I/O. The watches (or files, or the simulated cluster) report changes, and
listeners are called after the lock is released.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import count, groupby, islice
from typing import Any
from uuid import uuid4

from extender.cache.budget_gangs import BudgetGangs
from extender.cache.changes import (
    Change,
    ChangeSet,
    Delete,
    GroupListener,
    Item,
    Kind,
    Listeners,
    NodeListener,
    ObjectStore,
    OversizedObjects,
    PodListener,
    StoreBackend,
    Upsert,
    excess_of,
    key_of,
    kind_of,
)
from extender.cache.freshness import Freshness
from extender.cache.gang_history import PartialGangs, PendingEvictions, RejectedNodes
from extender.cache.gangs import Gangs, assemble
from extender.cache.nodes import NodeUsage
from extender.cache.pods import LONGEST_GRACE_S, STUCK_S, Pods
from extender.cache.queue_policy import QueuePolicy, QueueResolver
from extender.cache.reservation_table import ReservationTable, Stage
from extender.liveness import SchedulerLiveness
from extender.model.gang import GangKey, Membership, Phase, PodGroup
from extender.model.node import HostPorts, Node
from extender.model.pod import SCHEDULED_SET, Pod, PodUid
from extender.model.queue import (
    ROOT_QUEUE,
    Namespace,
    NamespaceShare,
    PriorityClass,
    Queue,
    QueueState,
)
from extender.model.reason import Problem
from extender.model.resources import CPU, MEMORY, NOTHING, Resources
from extender.model.snapshot import DisruptionBudget, ResourceQuota, Snapshot
from extender.ports import Clock
from extender.settings import Settings

#: Objects of a list that are applied while the lock is held once.
_BATCH = 200
#: How long a controller may take to create the pods of an admitted gang.
_CREATED_S = 60.0
#: How long kube-scheduler may use the allocatable resources of a node from before it shrank.
_SHRUNK_S = 30.0
_NONE: frozenset[str] = frozenset()
#: Kinds that tenants write; their objects are read only up to a size limit.
_BOUNDED = frozenset({Kind.POD, Kind.GROUP, Kind.BUDGET})


class Cluster:
    """All known objects of the cluster, and all reservations in it."""

    def __init__(
        self,
        clock: Clock,
        policy: QueuePolicy | None = None,
        *,
        stuck_s: float = STUCK_S,
        seen_s: float | None = None,
        budgets_are_gangs: bool = False,
        liveness: SchedulerLiveness | None = None,
    ) -> None:
        """A deleted pod is stuck *stuck_s* after its grace period, but not before *seen_s* here.

        The wall clock may be wrong: by default it alone never makes a pod stuck.
        """
        self._clock = clock
        self._stuck_s = stuck_s
        self._seen_s = stuck_s if seen_s is None else seen_s
        self._lock = threading.Lock()
        self._listeners = Listeners()
        #: By node, a new number after every change of its usage or its reservations.
        self.versions: dict[str, int] = {}
        self._version_numbers = count(1)
        self._usage = NodeUsage(self._usage_changed)
        self._gangs = Gangs()
        #: What is reserved or bound but not yet seen.
        self.reservations = ReservationTable(
            clock.monotonic,
            self.pod,
            self._freed,
            self._usage_changed,
            shown_until=lambda: self.freshness.current_at(Kind.POD.value),
        )
        #: Nodes that kube-scheduler rejected for a gang though they had free capacity.
        self.rejected_nodes = RejectedNodes(clock.monotonic)
        #: Gangs whose commit was not completed.
        self.partial_gangs = PartialGangs()
        #: Pods whose eviction was requested.
        self.pending_evictions = PendingEvictions(self)
        self._budget_gangs = BudgetGangs() if budgets_are_gangs else None
        self._pods = Pods(
            self._usage,
            self._gangs,
            self.reservations,
            self.rejected_nodes,
            self._expected_until,
            self._budget_gangs.membership if self._budget_gangs else None,
        )
        self._nodes: ObjectStore[Node] = ObjectStore(self._node_changed)
        self._groups: ObjectStore[PodGroup] = ObjectStore(self._group_changed)
        self._budgets: ObjectStore[DisruptionBudget] = ObjectStore(self._budget_changed)
        self._quotas: ObjectStore[ResourceQuota] = ObjectStore(self._quota_changed)
        queues: ObjectStore[Queue] = ObjectStore(self._queue_changed)
        namespaces: ObjectStore[Namespace] = ObjectStore(self._namespace_changed)
        classes: ObjectStore[PriorityClass] = ObjectStore(self._class_changed)
        self._stores: dict[Kind, StoreBackend[Any]] = {
            Kind.POD: self._pods,
            Kind.NODE: self._nodes,
            Kind.GROUP: self._groups,
            Kind.BUDGET: self._budgets,
            Kind.QUOTA: self._quotas,
            Kind.QUEUE: queues,
            Kind.NAMESPACE: namespaces,
            Kind.PRIORITY_CLASS: classes,
        }
        self._policy = QueueResolver(policy or QueuePolicy(), queues, namespaces, classes)
        self._queues: dict[str, Queue] | None = None
        self._shares: dict[str, NamespaceShare] | None = None
        self._namespaces: Mapping[str, Namespace] | None = None
        self._classes: frozenset[str] | None = None
        #: PodGroups in exempt namespaces, which guarantee nothing; replaced as a whole.
        self._exempt_groups: tuple[GangKey, ...] = ()
        self._oversized = OversizedObjects()
        self._sorted_budgets: tuple[DisruptionBudget, ...] | None = None
        #: When each recently admitted gang was admitted, in monotonic seconds.
        self._admitted_at: dict[GangKey, float] = {}
        #: The number of ResourceQuotas, by namespace.
        self._quotas_in: dict[str, int] = {}
        self._sorted_quotas: Mapping[str, tuple[ResourceQuota, ...]] | None = None
        self._rejected_shown: Mapping[GangKey, frozenset[str]] = {}
        self._generations = count(1)
        #: Grows with every change that may change the plan.
        self.generation = 0
        #: Nodes that the extender does not manage; any thread may look up a name.
        self.foreign: set[str] = set()
        #: When each recently shrunk node last shrank.
        self._shrunk: dict[str, float] = {}
        #: The allocatable resources of all ready managed nodes; replaced as a whole value.
        self.total = NOTHING
        #: Written by the watches.
        self.freshness = Freshness()
        #: Liveness of each scheduler name; without names, no scheduler is expected.
        self.liveness = liveness or SchedulerLiveness((), clock)

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Cluster:
        """Create an empty cache, by the settings."""
        return cls(
            clock,
            QueuePolicy.of(settings),
            stuck_s=settings.stuck_s,
            budgets_are_gangs=settings.budgets_are_gangs,
            liveness=SchedulerLiveness(
                settings.scheduler_name, clock, patience_s=settings.reservation_s, me=_our_name()
            ),
        )

    # ── changes ───────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> None:
        """Apply one change."""
        changes = ChangeSet()
        with self._lock:
            if isinstance(change, Upsert):
                self._put(change.item, change.dialect, changes)
            else:
                self._drop(change, changes)
        self._notify(changes)

    def replace(
        self, kind: Kind, objects: Iterable[Item | Delete], dialect: str | None = None
    ) -> None:
        """Replace the objects of *kind* and *dialect* by a whole list.

        *objects* may arrive slowly, from the network. Each is applied as it arrives, and nothing
        is forgotten before the last one. If *objects* raises, nothing is forgotten. A `Delete`
        among them undoes an earlier object.
        """
        present: set[tuple[str, str]] = set()
        coming = iter(objects)
        while batch := list(islice(coming, _BATCH)):
            changes = ChangeSet()
            with self._lock:
                for each in batch:
                    if isinstance(each, Delete):
                        self._drop(each, changes)
                    else:
                        present.add(self._put(each, dialect or "", changes))
            self._notify(changes)
        with self._lock:
            gone = [each for each in self._stores[kind].keys(dialect) if each not in present]
        for key, source in gone:
            self.apply(Delete(kind, key, source))

    def require_namespaces(self) -> None:
        """Treat an unknown namespace as too new to be trusted with named queues."""
        self._policy.knows_namespaces = True

    # ── reads ─────────────────────────────────────────────────────────────────────────────

    def snapshot(self, now: float) -> Snapshot:
        """Return the cluster at *now*, with every reservation counted as if it were used."""
        with self._lock:
            snapshot = self._snapshot(now)
        self.partial_gangs.report()
        return snapshot

    def _snapshot(self, now: float) -> Snapshot:
        monotonic = self._clock.monotonic()
        self._pods.mark_stuck(monotonic)
        self._forget_shrunk()
        rejected, before = self.rejected_nodes.expire(), self._rejected_shown
        self._gangs.touch(dict(before.items() ^ rejected.items()))
        self._rejected_shown = rejected
        drained = self.reservations.drain(self._gangs.stale)
        self._gangs.touch(drained.touched)
        self._usage.reserve(drained.steps)
        self._sort_policy()
        gangs = self._gangs.publish(
            lambda key: (
                None
                if self._pods.belongs_to_other_scheduler(key)
                else assemble(
                    key,
                    self._groups.get(key),
                    self._pods.members(key),
                    drained.reservations.get(key, {}),
                    self._policy,
                    now + drained.backoff[key] if key in drained.backoff else 0.0,
                    rejected.get(key, frozenset()),
                )
            )
        )
        return Snapshot(
            generation=self.generation,
            now=now,
            nodes=self._usage.table(),
            gangs=gangs,
            queues=self._queues or {},
            shares=self._shares or {},
            namespaces=self._namespaces or {},
            classes=self._classes or frozenset(),
            usual_priority=self._policy.default_class,
            exempt_groups=self._exempt_groups,
            too_large=self._oversized.all(),
            budgets=self._sorted_budgets or (),
            quotas=self._sorted_quotas or {},
            recently_admitted=self._recently_admitted(),
            partial_gangs=self.partial_gangs.update(gangs, monotonic),
            protected=self.partial_gangs.protected(gangs, monotonic),
            stuck=self._pods.stuck,
            schedulers=self.liveness.statuses(),
            rejected_nodes={
                pod.shape: names
                for key, names in rejected.items()
                if key in gangs
                for pod in gangs[key].waiting
            },
        )

    @property
    def stale_gangs(self) -> int:
        """The number of gangs that the next snapshot rebuilds."""
        return len(self._gangs.stale)

    def tidy(self) -> None:
        """Drop what is kept only for the next snapshot, while none is taken."""
        with self._lock:
            changes = self.reservations.changes()
            self._gangs.touch(changes.touched)
            self._usage.reserve(changes.steps)
            self._gangs.tidy(self._is_there)

    def _is_there(self, key: GangKey) -> bool:
        has_reservations = bool(self.reservations.of_gang(key))
        return has_reservations or self._pods.members(key) is not None or key in self._groups

    def pod(self, uid: PodUid) -> Pod | None:
        """Return a pod as last seen."""
        return self._pods.get(uid)

    def seen(self, uid: PodUid) -> tuple[Pod, Membership] | None:
        """Return one of our pods as last seen, with its membership."""
        return self._pods.seen(uid)

    def membership(self, pod: Pod, declared: Membership) -> Membership:
        """Return the membership of a pod that itself *declared* one; the watch may not know it."""
        return self._budget_gangs.membership(pod, declared) if self._budget_gangs else declared

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the gang of a pod; its reservation may be known before the pod."""
        key = self._pods.gang_of(uid)
        if key is not None:
            return key
        reservation = self.reservations.of(uid)
        return reservation.gang if reservation else None

    def group(self, key: GangKey) -> PodGroup | None:
        """Return the PodGroup of a gang, or its implicit one; None when it is missing."""
        written = self._groups.get(key)
        if written is not None:
            return written
        members = self._pods.members(key)
        return members.implicit if members else None

    def members(self, key: GangKey) -> int:
        """Return the number of pods of a gang that could count towards minMember."""
        members = self._pods.members(key)
        return members.valid if members else 0

    def bound_in_part(self, gang: GangKey) -> None:
        """Record a gang of which only a part was bound: the next plan places its other members."""
        if (group := self.group(gang)) is not None:
            self.partial_gangs.failed(group, self.pods_of(gang), self._clock.monotonic())

    def pods_of(self, key: GangKey) -> tuple[Pod, ...]:
        """Return the pods of a gang as last seen."""
        members = self._pods.members(key)
        return tuple(members.pods.values()) if members else ()

    def is_finished(self, key: GangKey) -> bool:
        """Return whether a gang has members and all of them have finished."""
        members = self._pods.members(key)
        return members is not None and 0 < len(members.pods) == members.finished

    def scheduled(self, key: GangKey) -> int:
        """Return the number of members on a node or succeeded, and bound but not yet seen.

        A pod whose eviction was requested does not count, even if it is not terminating yet.
        """
        evicting = len(self._evicting(key))
        with self.reservations.lock:
            members = self._pods.members(key)
            seen = members.scheduled - evicting if members else 0
            return seen + self.reservations.bound_in(key)

    def scheduled_in_role(self, key: GangKey, role: str) -> int:
        """Return the number of members of one role that `scheduled` counts."""
        evicting = sum(pod.role == role for pod in self._evicting(key))
        with self.reservations.lock:
            members = self._pods.members(key)
            seen = members.scheduled_in_role(role) - evicting if members else 0
            return seen + self.reservations.bound_in_role(key, role)

    def _evicting(self, key: GangKey) -> list[Pod]:
        """Return the members with a pending eviction: perhaps thousands, so not under the lock.

        A pod that is seen to terminate before it is counted is subtracted twice for a moment. That
        errs on the safe side.
        """
        members = self._pods.members(key)
        return self.pending_evictions.pods(key, members.pods) if members else []

    def on_nodes(self, key: GangKey) -> set[PodUid]:
        """Return the members on a node, and those whose binding was sent."""
        # In this order: a pod that is shown in between is in both sets.
        with self.reservations.lock:
            reservations = self.reservations.of_gang(key)
            sent = {each.pod.uid for each in reservations if each.stage >= Stage.BINDING}
        # A pod is shown before its reservation ends, and its gang knows it after that.
        shown = (self._pods.get(each.uid) or each for each in self.pods_of(key))
        return sent | {pod.uid for pod in shown if pod.status in SCHEDULED_SET}

    def node(self, name: str) -> Node | None:
        """Return a node as last seen."""
        return self._nodes.get(name)

    def any_node(self) -> str:
        """Return the name of any node; empty when there is none."""
        return next((node.name for node in tuple(self._nodes)), "")

    def free(self, name: str) -> Resources | None:
        """Return what a node has left as kube-scheduler counts it; None for an unknown node.

        Pods that kube-scheduler has not assumed are not subtracted (`reservations.reserved_on`).
        """
        with self.reservations.lock:
            committed = self.reservations.assumed_on(name)
            unused = self._usage.unused(name)
            return unused - committed if unused is not None and committed else unused

    def unused(self, name: str) -> Resources | None:
        """Return what a node has left besides the pods seen on it; None for an unknown node."""
        return self._usage.unused(name)

    def recently_shrunk(self) -> Set[str]:
        """Return the nodes that kube-scheduler may still take to be larger than they are."""
        if not self._shrunk:
            return _NONE
        since = self._clock.monotonic() - _SHRUNK_S
        return {name for name, at in tuple(self._shrunk.items()) if at >= since}

    def ports(self, name: str) -> HostPorts:
        """Return the host ports that are used on a node."""
        return self._usage.ports(name)

    def fullness(self, name: str) -> float:
        """Return how full a node is with all reservations, from 0 to 1; 1 for an unknown node."""
        node = self._nodes.get(name)
        free_now = self.free(name)
        if node is None or free_now is None:
            return 1.0
        free = free_now - self.reservations.reserved_on(name)
        parts = [
            1 - free.amount(each) / node.allocatable.amount(each)
            for each in (CPU, MEMORY)
            if node.allocatable.amount(each) > 0
        ]
        return min(1.0, max(0.0, sum(parts) / len(parts))) if parts else 1.0

    def queue(self, name: str) -> Queue | None:
        """Return the Queue object of that name as last seen; None without any."""
        return self._policy.queue(name)

    def is_closed(self, name: str) -> bool:
        """Return whether a queue, or one above it, is not open."""
        above: set[str] = set()
        while name not in above and (queue := self._policy.queue(name)) is not None:
            if queue.state is not QueueState.OPEN:
                return True
            above.add(name)
            name = queue.parent or ROOT_QUEUE
        return False

    def share(self, queue: str, namespace: str) -> NamespaceShare | None:
        """Return the share of a namespace in a queue; None without any."""
        return self._policy.share(queue, namespace)

    def queue_of(
        self, key: GangKey | None, namespace: str, wanted: str
    ) -> tuple[str, Problem | None]:
        """Return the queue of a gang that requests *wanted*, and why it may not use it."""
        members = self._pods.members(key) if key is not None else None
        return self._policy.resolve(namespace, wanted, members.started_in if members else "")

    def used_in_queue(self, key: GangKey | None, namespace: str, wanted: str) -> str:
        """Return the queue in which the capacity of a gang counts, even if it may have none."""
        return self._policy.accounting_queue(namespace, self.queue_of(key, namespace, wanted)[0])

    def reserved_in_queue(self, uid: PodUid) -> str:
        """Return the queue of the reservation of a pod; empty without a reservation.

        It is also empty while the cache is not ready: exempt pods are bound before that.
        """
        reservation = self.reservations.of(uid)
        return reservation.queue if reservation and not self.why_not_ready() else ""

    def has_quotas(self, namespace: str) -> bool:
        """Return whether a ResourceQuota limits what may be created in *namespace*."""
        return namespace in self._quotas_in

    def why_not_ready(self) -> list[str]:
        """Return why the cache is not complete or not fresh; nothing when it is."""
        return self.freshness.problems(self._clock.monotonic())

    def show_liveness(self, uid: PodUid, pod: Pod | None) -> None:
        """Show a pod to `liveness`; those of native groups wait for each other first."""
        seen = self._pods.seen(uid)
        is_native = seen is not None and seen[1].native
        self.liveness.pod_seen(uid, None if is_native else pod)

    # ── listeners ─────────────────────────────────────────────────────────────────────────

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call *listener* when the plan may change."""
        self._listeners.change.append(listener)

    def watch_pods(self, listener: PodListener) -> None:
        """Call *listener* for every change of one of our pods; None when it is gone."""
        self._listeners.pod.append(listener)

    def on_group(self, listener: GroupListener) -> None:
        """Call *listener* for every change of a PodGroup; None when it is gone."""
        self._listeners.group.append(listener)

    def on_node(self, listener: NodeListener) -> None:
        """Call *listener* for every change of a node; None when it is gone."""
        self._listeners.node.append(listener)

    # ── internals ─────────────────────────────────────────────────────────────────────────

    def _notify(self, changes: ChangeSet) -> None:
        if changes.changed:
            self.generation = next(self._generations)
        self._listeners.notify(changes)

    def _expected_until(self, pod: Pod) -> float:
        grace_s = min(pod.leaves_by - self._clock.now(), LONGEST_GRACE_S)
        return self._clock.monotonic() + max(grace_s + self._stuck_s, self._seen_s)

    def _usage_changed(self, node: str) -> None:
        if node in self._nodes:  # or the versions of nodes that are gone would be kept here
            self.versions[node] = next(self._version_numbers)

    def _freed(self) -> None:
        self.generation = next(self._generations)
        self._listeners.wake()

    def _forget_shrunk(self) -> None:
        since = self._clock.monotonic() - _SHRUNK_S
        for name in [name for name, at in self._shrunk.items() if at < since]:
            del self._shrunk[name]

    def _recently_admitted(self) -> frozenset[GangKey]:
        since = self._clock.monotonic() - _CREATED_S
        for key in [key for key, at in self._admitted_at.items() if at <= since]:
            del self._admitted_at[key]
        return frozenset(self._admitted_at)

    def _sort_policy(self) -> None:
        if self._queues is None:
            self._queues = self._policy.all_queues()
        if self._shares is None:
            self._shares = self._policy.all_shares()
        if self._namespaces is None:
            self._namespaces = self._policy.all_namespaces()
        if self._classes is None:
            self._classes = self._policy.all_classes()
        if self._sorted_budgets is None:
            self._sorted_budgets = tuple(sorted(self._budgets, key=key_of))
        if self._sorted_quotas is None:
            quotas = groupby(sorted(self._quotas, key=key_of), key=lambda quota: quota.namespace)
            self._sorted_quotas = {namespace: tuple(each) for namespace, each in quotas}

    def _put(self, item: Item, dialect: str, changes: ChangeSet) -> tuple[str, str]:
        key, source = key_of(item), item.dialect if isinstance(item, PodGroup) else dialect
        kind = kind_of(item)
        self._stores[kind].put(key, item, source, changes)
        if kind in _BOUNDED:
            self._oversized.note(kind.value, key, excess_of(item))
        return key, source

    def _drop(self, gone: Delete, changes: ChangeSet) -> None:
        self._stores[gone.kind].drop(gone.key, gone.dialect, changes)
        if gone.kind in _BOUNDED:
            self._oversized.note(gone.kind.value, gone.key, None)

    def _node_changed(
        self, name: str, old: Node | None, new: Node | None, changes: ChangeSet
    ) -> None:
        if new is not None:
            self._usage.put(new)
        else:
            self._usage.drop(name)
            self.versions.pop(name, None)
            self._shrunk.pop(name, None)
        if old is not None and new is not None and not old.allocatable.fits_in(new.allocatable):
            self._shrunk[name] = self._clock.monotonic()
        if new is not None and not new.managed:
            self.foreign.add(name)
        else:
            self.foreign.discard(name)
        self.total = self.total + _ready_capacity(new) - _ready_capacity(old)
        changes.nodes.append((name, new))

    def _group_changed(
        self, key: str, old: PodGroup | None, new: PodGroup | None, changes: ChangeSet
    ) -> None:
        was, now = (each is not None and each.exempt for each in (old, new))
        if was != now:
            others = set(self._exempt_groups) - {GangKey(key)}
            self._exempt_groups = tuple(sorted(others | ({GangKey(key)} if now else set())))
        self._gangs.touch((GangKey(key),))
        if new is None or new.phase is not Phase.INQUEUE:
            self._admitted_at.pop(GangKey(key), None)
        elif old is None or old.phase is not Phase.INQUEUE:
            self._admitted_at[GangKey(key)] = self._clock.monotonic()
        if new is None or (old is not None and old.uid != new.uid):
            self.rejected_nodes.forget(GangKey(key))
        changes.groups.append((GangKey(key), new))

    def _queue_changed(
        self, name: str, old: Queue | None, new: Queue | None, changes: ChangeSet
    ) -> None:
        if old is None or new is None or (old.problem, old.parent) != (new.problem, new.parent):
            self._gangs.touch_all()
        self._queues = self._shares = None

    def _namespace_changed(
        self, name: str, old: Namespace | None, new: Namespace | None, changes: ChangeSet
    ) -> None:
        self._gangs.touch_namespace(name)
        self._queues = self._shares = self._namespaces = None

    def _class_changed(
        self, name: str, old: PriorityClass | None, new: PriorityClass | None, changes: ChangeSet
    ) -> None:
        self._gangs.touch_all()
        self._classes = None

    def _budget_changed(
        self,
        name: str,
        old: DisruptionBudget | None,
        new: DisruptionBudget | None,
        changes: ChangeSet,
    ) -> None:
        self._sorted_budgets = None
        if self._budget_gangs is not None and (affected := self._budget_gangs.change(old, new)):
            self._pods.regroup(affected, changes)

    def _quota_changed(
        self, name: str, old: ResourceQuota | None, new: ResourceQuota | None, changes: ChangeSet
    ) -> None:
        self._sorted_quotas = None
        namespace = name.partition("/")[0]
        step = (new is not None) - (old is not None)
        self._quotas_in[namespace] = self._quotas_in.get(namespace, 0) + step
        if not self._quotas_in[namespace]:
            del self._quotas_in[namespace]


def _our_name() -> str:
    """Return a name that no other process has, not even a restart of this one."""
    return f"{os.uname().nodename}_{uuid4().hex[:8]}"


def _ready_capacity(node: Node | None) -> Resources:
    counts = node is not None and node.ready and node.managed
    return node.allocatable if node is not None and counts else NOTHING

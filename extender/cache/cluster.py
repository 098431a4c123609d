"""The mirror of the cluster: told every change, asked for snapshots and for quick facts.

Rule 1: one lock for those who write and for snapshots; reads never take it, because the filter
hook may not wait for a snapshot. A read sees one moment of one fact. Where two belong together
(what is seen, and what is promised) promises are held still for that moment, and what is seen is
published in the order that makes a race err on the safe side: too little room, too few seats.
Rule 2: nothing here does I/O. The watches (or files, or the simulated cluster) tell us what
happened, and listeners are called after the lock is released.
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

#: Objects of a list that are taken in under one hold of the lock.
_BATCH = 200
#: How long a controller may take to create pods of a gang that was let in.
_CREATED_S = 60.0
#: How long kube-scheduler may go by what a node had before it shrank.
_SHRUNK_S = 30.0
_NONE: frozenset[str] = frozenset()
#: Kinds that tenants write, and that are read only up to a size.
_BOUNDED = frozenset({Kind.POD, Kind.GROUP, Kind.BUDGET})


class Cluster:
    """Everything we know of the cluster, and everything we promised in it."""

    def __init__(
        self,
        clock: Clock,
        policy: QueuePolicy | None = None,
        *,
        stuck_s: float = STUCK_S,
        seen_s: float | None = None,
        budgets_are_gangs: bool = False,
        hearing: SchedulerLiveness | None = None,
    ) -> None:
        """*stuck_s* after its grace a deleted pod is given up, but not before *seen_s* of ours.

        The clock on the wall may be wrong: it alone, by default, calls nobody stuck.
        """
        self._clock = clock
        self._stuck_s = stuck_s
        self._seen_s = stuck_s if seen_s is None else seen_s
        self._lock = threading.Lock()
        self._listeners = Listeners()
        #: By node, another number after every change of its room or its promises.
        self.versions: dict[str, int] = {}
        self._numbers = count(1)
        self._rooms = NodeUsage(self._room_changed)
        self._gangs = Gangs()
        #: What was promised or bound but not yet seen.
        self.reservations = ReservationTable(
            clock.monotonic,
            self.pod,
            self._freed,
            self._room_changed,
            shown_until=lambda: self.freshness.current_at(Kind.POD.value),
        )
        #: Where kube-scheduler would not have a gang though we saw room.
        self.rejected_nodes = RejectedNodes(clock.monotonic)
        #: Gangs of which a commit was not finished.
        self.partial_gangs = PartialGangs()
        #: Whom we have asked to leave.
        self.pending_evictions = PendingEvictions(self)
        self._budget_gangs = BudgetGangs() if budgets_are_gangs else None
        self._pods = Pods(
            self._rooms,
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
        #: PodGroups that promise nothing because of where they are; replaced as a whole.
        self._exempt_groups: tuple[GangKey, ...] = ()
        self._large = OversizedObjects()
        self._sorted_budgets: tuple[DisruptionBudget, ...] | None = None
        #: When each gang was let in, in monotonic seconds, while that was not long ago.
        self._let_in: dict[GangKey, float] = {}
        #: How many quotas there are, by namespace.
        self._quotas_in: dict[str, int] = {}
        self._sorted_quotas: Mapping[str, tuple[ResourceQuota, ...]] | None = None
        self._misfits_shown: Mapping[GangKey, frozenset[str]] = {}
        self._generations = count(1)
        #: Grows with every change that may change the plan.
        self.generation = 0
        #: Nodes that are not ours; any thread may look a name up.
        self.foreign: set[str] = set()
        #: When each node last shrank, while that was not long ago.
        self._shrunk: dict[str, float] = {}
        #: What all ready nodes of ours have together; replaced as a whole value.
        self.total = NOTHING
        #: Kept by those who follow the API server.
        self.freshness = Freshness()
        #: Which kube-schedulers ask us; without any names nobody is missed.
        self.hearing = hearing or SchedulerLiveness((), clock)
        self.watch_pods(self._let_hear)

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Cluster:
        """Begin an empty one, as was set at start."""
        return cls(
            clock,
            QueuePolicy.of(settings),
            stuck_s=settings.stuck_s,
            budgets_are_gangs=settings.budgets_are_gangs,
            hearing=SchedulerLiveness(
                settings.scheduler_name, clock, patience_s=settings.ticket_s, me=_our_name()
            ),
        )

    # ── told ──────────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> None:
        """Take in one change."""
        news = ChangeSet()
        with self._lock:
            if isinstance(change, Upsert):
                self._put(change.item, change.dialect, news)
            else:
                self._drop(change, news)
        self._tell(news)

    def replace(
        self, kind: Kind, objects: Iterable[Item | Delete], dialect: str | None = None
    ) -> None:
        """Take in a whole list and forget whatever of *kind* and *dialect* is not in it.

        *objects* may come slowly, from the network: they are taken in as they come, and nothing
        is forgotten before the last one has come. If *objects* raises, nothing is forgotten. A
        `Delete` among them takes back what came before.
        """
        present: set[tuple[str, str]] = set()
        coming = iter(objects)
        while batch := list(islice(coming, _BATCH)):
            news = ChangeSet()
            with self._lock:
                for each in batch:
                    if isinstance(each, Delete):
                        self._drop(each, news)
                    else:
                        present.add(self._put(each, dialect or "", news))
            self._tell(news)
        with self._lock:
            gone = [each for each in self._stores[kind].told(dialect) if each not in present]
        for key, teller in gone:
            self.apply(Delete(kind, key, teller))

    def require_namespaces(self) -> None:
        """Take a namespace nobody has told us of for too new to be trusted with named queues."""
        self._policy.knows_namespaces = True

    # ── asked ─────────────────────────────────────────────────────────────────────────────

    def snapshot(self, now: float) -> Snapshot:
        """Give the cluster as it is at *now*, with every promise counted as if it were kept."""
        with self._lock:
            self._pods.give_up(self._clock.monotonic())
            self._forget_shrunk()
            misfits, before = self.rejected_nodes.by_gang(), self._misfits_shown
            self._gangs.touch(dict(before.items() ^ misfits.items()))
            self._misfits_shown = misfits
            turn = self.reservations.drain(self._gangs.stale)
            self._gangs.touch(turn.touched)
            self._rooms.reserve(turn.steps)
            self._sort_policy()
            gangs = self._gangs.publish(
                lambda key: (
                    None
                    if self._pods.belongs_to_other_scheduler(key)
                    else assemble(
                        key,
                        self._groups.get(key),
                        self._pods.members(key),
                        turn.reservations.get(key, {}),
                        self._policy,
                        now + turn.backoff[key] if key in turn.backoff else 0.0,
                        misfits.get(key, frozenset()),
                    )
                )
            )
            return Snapshot(
                generation=self.generation,
                now=now,
                nodes=self._rooms.table(),
                gangs=gangs,
                queues=self._queues or {},
                shares=self._shares or {},
                namespaces=self._namespaces or {},
                classes=self._classes or frozenset(),
                usual_priority=self._policy.default_class,
                exempt_groups=self._exempt_groups,
                too_large=self._large.all(),
                budgets=self._sorted_budgets or (),
                quotas=self._sorted_quotas or {},
                recently_admitted=self._let_in_lately(),
                partial_gangs=self.partial_gangs.among(gangs, self._clock.monotonic()),
                protected=self.partial_gangs.spared(gangs, self._clock.monotonic()),
                stuck=self._pods.stuck,
                schedulers=self.hearing.statuses(),
                rejected_nodes={
                    pod.shape: names
                    for key, names in misfits.items()
                    if key in gangs
                    for pod in gangs[key].waiting
                },
            )

    def tidy(self) -> None:
        """Let go of what is kept for the next snapshot alone, while nobody asks for one."""
        with self._lock:
            changes = self.reservations.changes()
            self._gangs.touch(changes.touched)
            self._rooms.reserve(changes.steps)
            self._gangs.tidy(self._is_there)

    def _is_there(self, key: GangKey) -> bool:
        has_promises = bool(self.reservations.of_gang(key))
        return has_promises or self._pods.members(key) is not None or key in self._groups

    def pod(self, uid: PodUid) -> Pod | None:
        """Give a pod as last seen."""
        return self._pods.get(uid)

    def seen(self, uid: PodUid) -> tuple[Pod, Membership] | None:
        """Give a pod of ours as last seen, with its membership."""
        return self._pods.seen(uid)

    def membership(self, pod: Pod, said: Membership) -> Membership:
        """Give what a pod is a member of that by itself *said* so; the watch may not know it."""
        return self._budget_gangs.membership(pod, said) if self._budget_gangs else said

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Name the gang of a pod; a promise may be known before its pod."""
        key = self._pods.gang_of(uid)
        if key is not None:
            return key
        reservation = self.reservations.of(uid)
        return reservation.gang if reservation else None

    def group(self, key: GangKey) -> PodGroup | None:
        """Give a gang's PodGroup, or the one its pods make without any; None when it is missing."""
        written = self._groups.get(key)
        if written is not None:
            return written
        roster = self._pods.members(key)
        return roster.made if roster else None

    def members(self, key: GangKey) -> int:
        """Count the pods of a gang that could count towards minMember."""
        roster = self._pods.members(key)
        return roster.valid if roster else 0

    def pods_of(self, key: GangKey) -> tuple[Pod, ...]:
        """Give the pods of a gang as last seen."""
        roster = self._pods.members(key)
        return tuple(roster.pods.values()) if roster else ()

    def is_finished(self, key: GangKey) -> bool:
        """Ask whether a gang has members and all of them have ended."""
        roster = self._pods.members(key)
        return roster is not None and 0 < len(roster.pods) == roster.over

    def scheduled(self, key: GangKey) -> int:
        """Count the members on a node or done, those bound by us and not yet seen included.

        Whoever was asked to leave stands for nobody, though he is not seen to leave yet.
        """
        going = len(self._going(key))
        with self.reservations.still:
            roster = self._pods.members(key)
            seen = roster.seated - going if roster else 0
            return seen + self.reservations.bound_in(key)

    def scheduled_in_role(self, key: GangKey, role: str) -> int:
        """Count the members of one role that `seated` counts."""
        going = sum(pod.role == role for pod in self._going(key))
        with self.reservations.still:
            roster = self._pods.members(key)
            seen = roster.scheduled_in_role(role) - going if roster else 0
            return seen + self.reservations.bound_in_role(key, role)

    def _going(self, key: GangKey) -> list[Pod]:
        """Give who was asked to leave: thousands perhaps, so never while others stand still.

        Whoever is seen to leave before he is counted is then missing twice, for a moment; that way
        round nobody counts on him.
        """
        roster = self._pods.members(key)
        return self.pending_evictions.pods(key, roster.pods) if roster else []

    def on_nodes(self, key: GangKey) -> set[PodUid]:
        """Name the members on a node, and those on the way there who cannot be called back."""
        # In this order: whoever is shown in between stands in both.
        with self.reservations.still:
            promises = self.reservations.of_gang(key)
            sent = {each.pod.uid for each in promises if each.stage >= Stage.BINDING}
        # A pod is shown before its promise ends, and its gang's roster is told after that.
        shown = (self._pods.get(each.uid) or each for each in self.pods_of(key))
        return sent | {pod.uid for pod in shown if pod.status in SCHEDULED_SET}

    def node(self, name: str) -> Node | None:
        """Give a node as last seen."""
        return self._nodes.get(name)

    def any_node(self) -> str:
        """Name one node or another; empty when there is none."""
        return next((node.name for node in tuple(self._nodes)), "")

    def free(self, name: str) -> Resources | None:
        """Give what a node has left as kube-scheduler counts it; None for an unknown node.

        Tickets are not subtracted: kube-scheduler does not know of them (`inflight.reserved_on`).
        """
        with self.reservations.still:
            committed = self.reservations.committed_on(name)
            idle = self._rooms.unused(name)
            return idle - committed if idle is not None and committed else idle

    def unused(self, name: str) -> Resources | None:
        """Give what a node has left beside the pods seen on it; None for an unknown node."""
        return self._rooms.unused(name)

    def recently_shrunk(self) -> Set[str]:
        """Name the nodes that kube-scheduler may take to be larger than they are."""
        if not self._shrunk:
            return _NONE
        since = self._clock.monotonic() - _SHRUNK_S
        return {name for name, at in tuple(self._shrunk.items()) if at >= since}

    def ports(self, name: str) -> HostPorts:
        """Give the host ports that are taken on a node."""
        return self._rooms.ports(name)

    def fullness(self, name: str) -> float:
        """Give how full a node is with everything promised, from 0 to 1; 1 for an unknown one."""
        node = self._nodes.get(name)
        room = self.free(name)
        if node is None or room is None:
            return 1.0
        free = room - self.reservations.reserved_on(name)
        parts = [
            1 - free.amount(each) / node.allocatable.amount(each)
            for each in (CPU, MEMORY)
            if node.allocatable.amount(each) > 0
        ]
        return min(1.0, max(0.0, sum(parts) / len(parts))) if parts else 1.0

    def queue(self, name: str) -> Queue | None:
        """Give a queue as last seen; None for one nobody wrote."""
        return self._policy.queue(name)

    def is_closed(self, name: str) -> bool:
        """Ask whether a queue, or one above it, is not open."""
        above: set[str] = set()
        while name not in above and (queue := self._policy.queue(name)) is not None:
            if queue.state is not QueueState.OPEN:
                return True
            above.add(name)
            name = queue.parent or ROOT_QUEUE
        return False

    def share(self, queue: str, namespace: str) -> NamespaceShare | None:
        """Give what a namespace may have of a queue; None where nobody wrote anything."""
        return self._policy.share(queue, namespace)

    def queue_of(
        self, key: GangKey | None, namespace: str, wanted: str
    ) -> tuple[str, Problem | None]:
        """Give the queue of a gang that wants *wanted* and, if it may not be there, the reason."""
        roster = self._pods.members(key) if key is not None else None
        return self._policy.resolve(namespace, wanted, roster.started_in if roster else "")

    def used_in_queue(self, key: GangKey | None, namespace: str, wanted: str) -> str:
        """Give the queue in which whatever room a gang has counts, even if it may have none."""
        return self._policy.accounting_queue(namespace, self.queue_of(key, namespace, wanted)[0])

    def reserved_in_queue(self, uid: PodUid) -> str:
        """Give the queue in which a pod was promised its room; empty when it was not.

        Also while we cannot be sure of it: exempt pods are bound before we know all queues.
        """
        promise = self.reservations.of(uid)
        return promise.queue if promise and not self.readiness() else ""

    def has_quotas(self, namespace: str) -> bool:
        """Ask whether a ResourceQuota limits what may be created in *namespace*."""
        return self._quotas_in.get(namespace, 0) > 0

    def readiness(self) -> list[str]:
        """Say what keeps the mirror from being trusted; nothing when it can be."""
        return self.freshness.complaints(self._clock.monotonic())

    # ── overheard ─────────────────────────────────────────────────────────────────────────

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call *listener* when there is something new to plan."""
        self._listeners.change.append(listener)

    def watch_pods(self, listener: PodListener) -> None:
        """Call *listener* for every change of a pod of ours; None when it is gone."""
        self._listeners.pod.append(listener)

    def on_group(self, listener: GroupListener) -> None:
        """Call *listener* for every change of a PodGroup; None when it is gone."""
        self._listeners.group.append(listener)

    def on_node(self, listener: NodeListener) -> None:
        """Call *listener* for every change of a node; None when it is gone."""
        self._listeners.node.append(listener)

    # ── inside ────────────────────────────────────────────────────────────────────────────

    def _tell(self, news: ChangeSet) -> None:
        if news.changed:
            self.generation = next(self._generations)
        self._listeners.notify(news)

    def _let_hear(self, uid: PodUid, pod: Pod | None) -> None:
        """Tell who waits for kube-scheduler; members of native groups wait for each other first."""
        seen = self._pods.seen(uid)
        is_native = seen is not None and seen[1].native
        self.hearing.pod_seen(uid, None if is_native else pod)

    def _expected_until(self, pod: Pod) -> float:
        grace_s = min(pod.leaves_by - self._clock.now(), LONGEST_GRACE_S)
        return self._clock.monotonic() + max(grace_s + self._stuck_s, self._seen_s)

    def _room_changed(self, node: str) -> None:
        if node in self._nodes:  # or the promises of nodes that are gone would be kept here
            self.versions[node] = next(self._numbers)

    def _freed(self) -> None:
        self.generation = next(self._generations)
        self._listeners.wake()

    def _forget_shrunk(self) -> None:
        since = self._clock.monotonic() - _SHRUNK_S
        for name in [name for name, at in self._shrunk.items() if at < since]:
            del self._shrunk[name]

    def _let_in_lately(self) -> frozenset[GangKey]:
        since = self._clock.monotonic() - _CREATED_S
        for key in [key for key, at in self._let_in.items() if at <= since]:
            del self._let_in[key]
        return frozenset(self._let_in)

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

    def _put(self, item: Item, dialect: str, news: ChangeSet) -> tuple[str, str]:
        key, teller = key_of(item), item.dialect if isinstance(item, PodGroup) else dialect
        kind = kind_of(item)
        self._stores[kind].put(key, item, teller, news)
        if kind in _BOUNDED:
            self._large.note(kind.value, key, excess_of(item))
        return key, teller

    def _drop(self, gone: Delete, news: ChangeSet) -> None:
        self._stores[gone.kind].drop(gone.key, gone.dialect, news)
        if gone.kind in _BOUNDED:
            self._large.note(gone.kind.value, gone.key, None)

    def _node_changed(self, name: str, old: Node | None, new: Node | None, news: ChangeSet) -> None:
        if new is not None:
            self._rooms.put(new)
        else:
            self._rooms.drop(name)
            self.versions.pop(name, None)
            self._shrunk.pop(name, None)
        if old is not None and new is not None and not old.allocatable.fits_in(new.allocatable):
            self._shrunk[name] = self._clock.monotonic()
        if new is not None and not new.managed:
            self.foreign.add(name)
        else:
            self.foreign.discard(name)
        self.total = self.total + _ready_room(new) - _ready_room(old)
        news.nodes.append((name, new))

    def _group_changed(
        self, key: str, old: PodGroup | None, new: PodGroup | None, news: ChangeSet
    ) -> None:
        was, now = (each is not None and each.exempt for each in (old, new))
        if was != now:
            others = set(self._exempt_groups) - {GangKey(key)}
            self._exempt_groups = tuple(sorted(others | ({GangKey(key)} if now else set())))
        self._gangs.touch((GangKey(key),))
        if new is None or new.phase is not Phase.INQUEUE:
            self._let_in.pop(GangKey(key), None)
        elif old is None or old.phase is not Phase.INQUEUE:
            self._let_in[GangKey(key)] = self._clock.monotonic()
        if new is None or (old is not None and old.uid != new.uid):
            self.rejected_nodes.forget(GangKey(key))
        news.groups.append((GangKey(key), new))

    def _queue_changed(
        self, name: str, old: Queue | None, new: Queue | None, news: ChangeSet
    ) -> None:
        if old is None or new is None or (old.problem, old.parent) != (new.problem, new.parent):
            self._gangs.touch_all()
        self._queues = self._shares = None

    def _namespace_changed(
        self, name: str, old: Namespace | None, new: Namespace | None, news: ChangeSet
    ) -> None:
        self._gangs.touch_namespace(name)
        self._queues = self._shares = self._namespaces = None

    def _class_changed(
        self, name: str, old: PriorityClass | None, new: PriorityClass | None, news: ChangeSet
    ) -> None:
        self._gangs.touch_all()
        self._classes = None

    def _budget_changed(
        self, name: str, old: DisruptionBudget | None, new: DisruptionBudget | None, news: ChangeSet
    ) -> None:
        self._sorted_budgets = None
        if self._budget_gangs is not None and (moved := self._budget_gangs.change(old, new)):
            self._pods.regroup(moved, news)

    def _quota_changed(
        self, name: str, old: ResourceQuota | None, new: ResourceQuota | None, news: ChangeSet
    ) -> None:
        self._sorted_quotas = None
        namespace = name.partition("/")[0]
        step = (new is not None) - (old is not None)
        self._quotas_in[namespace] = self._quotas_in.get(namespace, 0) + step
        if not self._quotas_in[namespace]:
            del self._quotas_in[namespace]


def _our_name() -> str:
    """Name this process as no other is named, not even another life of it."""
    return f"{os.uname().nodename}_{uuid4().hex[:8]}"


def _ready_room(node: Node | None) -> Resources:
    counts = node is not None and node.ready and node.managed
    return node.allocatable if node is not None and counts else NOTHING

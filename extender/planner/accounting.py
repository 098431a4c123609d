"""The totals of the cluster, the usage and requests of its queues, and the contending gangs."""

from __future__ import annotations

from collections.abc import Iterable, Set
from heapq import nsmallest
from itertools import islice
from zlib import crc32

import numpy as np

from extender.model.gang import Gang, GangKey, Phase
from extender.model.node import NodeTable
from extender.model.pod import VALID_SET, Status
from extender.model.queue import DEFAULT_QUEUE, Queue, share_name
from extender.model.queue_tree import queue_tree
from extender.model.resources import LARGEST, NOTHING, Resources, total
from extender.model.snapshot import Liveness, SchedulerStatus, Snapshot
from extender.planner.policy import Policy, Vector, excess
from extender.planner.quota import TOP, QueueLimits, queue_limits, share_limits, tree, using
from extender.planner.state import GangState, QueueUsage, ShareUsage

#: So many gangs of a namespace are considered in every cycle, in one queue.
FIRST = 500
#: So many of the gangs skipped them are considered too, in rotation.
ROTATING = 500
MOST = FIRST + ROTATING
#: Plugins that limit what queues use.
_LIMITING = {"proportion", "capacity"}


def is_short(gang: Gang) -> bool:
    """Return whether *gang* has fewer members than it needs."""
    return gang.ready + len(gang.waiting) < gang.group.min_member


def rotation(
    gangs: Iterable[Gang], now: float, partial: Set[GangKey] = frozenset()
) -> tuple[frozenset[GangKey], frozenset[GangKey]]:
    """Return the gangs not considered now, and those considered only now.

    Both are empty for up to `MOST` gangs of one queue and namespace: other gangs do not wait
    because of the number of these. *partial* gangs are always considered.
    """
    skipped: list[GangKey] = []
    rotating: list[GangKey] = []
    by_namespace: dict[tuple[str, str], list[Gang]] = {}
    for gang in gangs:
        by_namespace.setdefault((gang.queue, gang.group.namespace), []).append(gang)
    for peers in by_namespace.values():
        if len(peers) > MOST:
            some, rest = _divide(peers, now, partial)
            rotating += some
            skipped += rest
    return frozenset(skipped), frozenset(rotating)


def _divide(
    peers: list[Gang], now: float, partial: Set[GangKey]
) -> tuple[list[GangKey], list[GangKey]]:
    """Return the gangs of *peers* that are considered only now, and those that are not."""
    first = {gang.key for gang in nsmallest(FIRST, peers, key=_place)} | partial
    rest = [gang.key for gang in peers if gang.key not in first]
    if not rest:
        return [], []
    # The time selects the start: the plan has no memory, and equal steps might skip a gang.
    start = crc32(repr(now).encode()) % len(rest)
    rotated = [*islice(rest, start, None), *islice(rest, start)]
    return rotated[:ROTATING], rotated[ROTATING:]


def _place(gang: Gang) -> tuple[bool, int, float, str]:
    """Return the order: gangs with all their members first, then by priority and age."""
    return is_short(gang), -gang.priority, gang.group.created, gang.key


class Accounting:
    """The sums of a snapshot, computed once before any plugin reads it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.ready_nodes = snapshot.nodes.facts.ready
        self.total = _total(snapshot.nodes)
        self.queues = _queues(snapshot)
        #: Queues that have gangs; the others take no part in dividing the cluster.
        self.active: dict[str, QueueUsage] = {}
        #: Gangs that this cycle decides for, in the order of their keys.
        self.contenders: dict[GangKey, GangState] = {}
        #: Gangs that would contend, but whose namespace has too many in their queue.
        self.over_limit: dict[GangKey, Gang] = {}
        #: Gangs of such namespaces that contend only in this cycle; no pod is evicted for them.
        self.rotating: frozenset[GangKey] = frozenset()
        #: Gangs with members that have a node and are not seen on it yet.
        self.binding: list[Gang] = []
        #: Gangs with members whose kube-scheduler is silent, which keeps them from being
        #: considered.
        self.without_scheduler: dict[GangKey, SchedulerStatus] = {}
        schedulers = snapshot.schedulers.values()
        self._silent = {each.name: each for each in schedulers if not each.may_reserve}
        self._without_preemption = frozenset(each.name for each in schedulers if not each.may_claim)
        self._states: dict[GangKey, GangState] = {}
        self._count()
        #: What each queue used before this cycle decided anything.
        self.used = {name: state.allocated for name, state in self.queues.items()}
        #: The shares of namespaces in single queues, where those are limited or guaranteed.
        self.shares = {
            name: ShareUsage(share)
            for name, share in snapshot.shares.items()
            if share.queue in self.queues
        }
        if self.shares:
            self._count_shares()
        #: Used by terminating pods, by queue, or by share where there is one.
        has_terminating = bool(snapshot.stuck) or snapshot.nodes.releasing.any()
        self.terminating = self._terminating() if has_terminating else {}

    def _terminating(self) -> dict[str, Resources]:
        """Return what terminating pods still use, without pods that are long overdue.

        A pod counts for its queue while its grace period lasts, however long that is: until then
        the kubelet lets it run. But no gang waits for the capacity of such a pod.
        """
        now, found = self.snapshot.now, dict[str, dict[str, int]]()
        stuck = self.snapshot.stuck
        for gang in self.snapshot.gangs.values():
            for pod in gang.by_status.get(Status.RELEASING, ()):
                if pod.node and (pod.uid not in stuck or pod.leaves_by > now):
                    share = share_name(gang.queue, gang.group.namespace)
                    where = share if share in self.shares else gang.queue
                    pod.requests.add_to(found.setdefault(where, {}))
        return {name: Resources(amounts) for name, amounts in found.items()}

    def _count_shares(self) -> None:
        """Count what gangs use and request in the shares of their namespaces."""
        by_share: dict[str, list[Gang]] = {}
        for gang in self.snapshot.gangs.values():
            name = share_name(gang.queue, gang.group.namespace)
            if name in self.shares and self._takes_part(gang):
                by_share.setdefault(name, []).append(gang)
        for name, gangs in by_share.items():
            share = self.shares[name]
            share.used = total(gang.allocated for gang in gangs)
            share.requested = share.used + total(map(self.wanted, gangs))
            share.inqueue = total(reserved_minimum(gang) for gang in gangs if self._may_start(gang))

    def recheck_reservations(self) -> None:
        """Limit `minResources` to the requests of existing pods, some time after admission.

        A PodGroup that creates fewer pods than it states, or that was left skipped, then no longer
        keeps other gangs out of its queue.
        """
        for key, gang in self.snapshot.gangs.items():
            if gang.group.min_resources is None or key in self.snapshot.recently_admitted:
                continue
            if gang.queue not in self.queues or not self._may_start(gang):
                continue
            stated = reserved_minimum(gang)
            unconfirmed = stated.beyond(gang.pending).positive() if stated else NOTHING
            if unconfirmed:
                queue = self.queues[gang.queue]
                queue.inqueue = queue.inqueue - unconfirmed
                share = self.shares.get(share_name(gang.queue, gang.group.namespace))
                if share is not None:
                    share.inqueue = share.inqueue - unconfirmed

    def limit_queues(self, policy: Policy) -> tuple[QueueLimits, ...]:
        """Give every queue, and every share of a namespace, its node in the tree of limits.

        Return the limits: those of no queue where *policy* limits none. Volcano knows neither
        ceilings of ancestors nor guarantees beyond single queues. The share of a namespace in a
        queue holds with every policy. Under Volcano's rules the tree only limits namespaces.
        """
        hold_together = policy.rules.reservations_hold_together
        limits = self._limits(hold_together, is_limiting=not policy.plugins.isdisjoint(_LIMITING))
        limiting = limits
        if not hold_together:
            limiting = tuple(s if s.namespace else s._replace(ceiling=NOTHING) for s in limits)
            if not self.shares:
                return limits
        quotas = tree(limiting, self.total)
        for state in self.queues.values():
            state.quota = quotas.get(state.name)
        for name, use in self.shares.items():
            self.queues[use.share.queue].shares[use.share.namespace] = quotas[name]
        return limits

    def _limits(self, hold_together: bool, *, is_limiting: bool) -> tuple[QueueLimits, ...]:
        if not is_limiting and not self.shares:
            return ()
        limits = [
            queue_limits(state.queue, state.parent.name if state.parent else TOP, state.allocated)
            for state in self.queues.values()
        ]
        if not hold_together:
            limits = [each._replace(parent=TOP, guarantee=NOTHING) for each in limits]
        if not is_limiting:
            limits = [each._replace(ceiling=NOTHING, guarantee=NOTHING) for each in limits]
        if self.shares:
            limits += [share_limits(use.share, use.used) for use in self.shares.values()]
            of_shares = {name: use.used for name, use in self.shares.items()}
            limits = using(limits, self.used, of_shares)
        if self.terminating and hold_together:
            limits = [s._replace(leaving=self.terminating.get(s.name, NOTHING)) for s in limits]
        return tuple(limits)

    def state(self, key: GangKey) -> GangState | None:
        """Return the state of any gang that is in a queue; it is created on first use."""
        state = self.contenders.get(key) or self._states.get(key)
        if state is not None:
            return state
        gang = self.snapshot.gangs.get(key)
        if gang is None or not _is_valid(gang) or gang.queue not in self.queues:
            return None
        state = self._states[key] = GangState(gang, self.queues[gang.queue])
        return state

    def wanted(self, gang: Gang) -> Resources:
        """Return what *gang* requests: nothing, while its kube-scheduler is silent."""
        return NOTHING if gang.key in self.without_scheduler else gang.pending

    def may_claim(self, gang: Gang) -> bool:
        """Return whether pods may be evicted, or kept waiting, for *gang*."""
        if gang.key in self.rotating:
            return False  # the next cycle may not consider it, so freed capacity would stay unused
        return not self._without_preemption or self._without_preemption.isdisjoint(gang.schedulers)

    def _may_start(self, gang: Gang) -> bool:
        return gang.problem is None and gang.key not in self.without_scheduler

    def _takes_part(self, gang: Gang) -> bool:
        """Return whether *gang* uses resources or may request them."""
        return self._may_start(gang) or gang.on_nodes > 0

    def _silence_of(self, gang: Gang) -> SchedulerStatus | None:
        """Return a silent scheduler that would have to schedule members of *gang*, if any."""
        if self._silent.keys().isdisjoint(gang.schedulers) or gang.is_exempt:
            return None
        silent = self._silent[min(self._silent.keys() & gang.schedulers)]
        if silent.liveness is Liveness.UNHEARD and gang.key in self.snapshot.partial_gangs:
            return None  # its bound members were scheduled before this replica became leader
        return silent

    def _count(self) -> None:
        now, queues, contenders = self.snapshot.now, self.queues, self.contenders
        by_queue: dict[str, list[Gang]] = {}
        for key, gang in self.snapshot.gangs.items():
            if gang.on_nodes > gang.scheduled:
                self.binding.append(gang)
            silent = self._silence_of(gang) if self._silent else None
            if silent is not None:
                self.without_scheduler[key] = silent
            name = gang.queue
            if name not in queues or not self._takes_part(gang):
                continue
            by_queue.setdefault(name, []).append(gang)
            if self._may_start(gang) and _contends(gang, now):
                contenders[key] = GangState(gang, queues[name])
        if len(contenders) > MOST:
            skipped, self.rotating = rotation(
                (each.gang for each in contenders.values()), now, self.snapshot.partial_gangs
            )
            self.over_limit = {key: contenders.pop(key).gang for key in sorted(skipped)}
        for name, gangs in sorted(by_queue.items()):
            self.active[name] = queues[name]
            self._add_up(queues[name], gangs)

    def _add_up(self, queue: QueueUsage, gangs: list[Gang]) -> None:
        """Count what the *gangs* of *queue* use and request."""
        allocated = total(gang.allocated for gang in gangs)
        queue.take(allocated)
        wanted = map(self.wanted, gangs)
        queue.requested = allocated + total(each for each in wanted if each is not NOTHING)
        least_of = [(gang, gang.group.min_resources) for gang in gangs]
        stated = [(gang, least) for gang, least in least_of if least is not None]
        # The part within the `minResources` of the gangs.
        bound = total(gang.allocated - gang.allocated.beyond(least) for gang, least in stated)
        queue.elastic = allocated - bound
        queue.inqueue = total(reserved_minimum(gang) for gang, _ in stated if self._may_start(gang))


def reserved_minimum(gang: Gang) -> Resources:
    """Return what an admitted gang has reserved by `minResources` and does not use yet."""
    group = gang.group
    was_admitted = group.phase is Phase.INQUEUE or (
        group.phase is Phase.RUNNING and gang.on_nodes >= group.min_member
    )
    if group.min_resources is None or not was_admitted:
        return NOTHING
    return without_gated(gang, group.min_resources.beyond(gang.allocated))


def still_needed(gang: Gang, least: Resources, limit: Vector) -> Resources:
    """Return *least* without the requests of the gang's pods: those pods exist already.

    All of it is returned if it can never fit into *limit*.
    """
    if excess(least, limit, least):
        return least
    here = (pod.requests for pod in gang.pods if pod.status in VALID_SET)
    return least.beyond(total(here)).positive()


def without_gated(gang: Gang, amounts: Resources) -> Resources:
    """Return *amounts* without the requests of gated members, which will not start soon."""
    gated = total(pod.requests for pod in gang.pods if pod.gated)
    return amounts.beyond(gated) if gated else amounts


def _is_valid(gang: Gang) -> bool:
    """Return whether *gang* uses resources or may request them; an invalid one requests nothing."""
    return gang.problem is None or gang.on_nodes > 0


def _contends(gang: Gang, now: float) -> bool:
    """Return whether *gang* waits for a node for a member, or for admission to its queue."""
    group = gang.group
    if gang.is_exempt:
        return False  # only kube-scheduler decides for it
    if not gang.waiting and (group.phase is not Phase.PENDING or not group.dialect):
        return False
    return gang.backing_off_until <= now


def _queues(snapshot: Snapshot) -> dict[str, QueueUsage]:
    queues = {name: QueueUsage(queue) for name, queue in snapshot.queues.items()}
    if DEFAULT_QUEUE not in queues:
        queues[DEFAULT_QUEUE] = QueueUsage(Queue(name=DEFAULT_QUEUE))
    for name, above in queue_tree(
        {name: use.queue for name, use in queues.items()}
    ).effective_parents.items():
        queues[name].parent = queues[above]
    return queues


def _total(table: NodeTable) -> Resources:
    """Return the capacity of managed ready nodes; the same object until a node changes."""
    return table.facts.memo.recall(
        ("total", table.dimensions),
        lambda: table.resources(
            np.minimum(table.allocatable, LARGEST)[table.facts.ready].sum(axis=0)
        ),
    )

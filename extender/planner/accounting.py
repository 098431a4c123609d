"""Who is there: the cluster's total, the queues with what they use and want, and who contends."""

from __future__ import annotations

from collections.abc import Iterable, Set
from heapq import nsmallest
from itertools import islice
from zlib import crc32

import numpy as np

from extender.model.gang import Gang, GangKey, Phase
from extender.model.node import Mask, NodeFacts, NodeTable
from extender.model.pod import VALID_SET, Status
from extender.model.queue import DEFAULT_QUEUE, Queue, share_name
from extender.model.queue_tree import queue_tree
from extender.model.resources import LARGEST, NOTHING, Resources, total
from extender.model.snapshot import Liveness, SchedulerStatus, Snapshot
from extender.planner.policy import Vector, excess
from extender.planner.state import GangState, QueueUsage, ShareUsage

#: So many gangs of a namespace have a turn in every cycle, in one queue.
FIRST = 500
#: So many of those behind them have one too.
ROTATING = 500
MOST = FIRST + ROTATING


def is_short(gang: Gang) -> bool:
    """Ask whether *gang* has not got the members it needs."""
    return gang.ready + len(gang.waiting) < gang.group.min_member


def turns(
    gangs: Iterable[Gang], now: float, cut_short: Set[GangKey] = frozenset()
) -> tuple[frozenset[GangKey], frozenset[GangKey]]:
    """Name who has no turn now, and who has one only now; both empty for up to `MOST` gangs.

    Only within one queue and namespace: nobody else is kept waiting by the number of these. Who
    was *cut_short* always has a turn.
    """
    behind: list[GangKey] = []
    visitors: list[GangKey] = []
    crowds: dict[tuple[str, str], list[Gang]] = {}
    for gang in gangs:
        crowds.setdefault((gang.queue, gang.group.namespace), []).append(gang)
    for crowd in crowds.values():
        if len(crowd) > MOST:
            some, rest = _divide(crowd, now, cut_short)
            visitors += some
            behind += rest
    return frozenset(behind), frozenset(visitors)


def _divide(
    crowd: list[Gang], now: float, cut_short: Set[GangKey] = frozenset()
) -> tuple[list[GangKey], list[GangKey]]:
    first = {gang.key for gang in nsmallest(FIRST, crowd, key=_place)} | cut_short
    rest = [gang.key for gang in crowd if gang.key not in first]
    if not rest:
        return [], []
    # The time says where to begin: the plan has no memory, and equal steps might miss somebody.
    start = crc32(repr(now).encode()) % len(rest)
    turned = [*islice(rest, start, None), *islice(rest, start)]
    return turned[:ROTATING], turned[ROTATING:]


def _place(gang: Gang) -> tuple[bool, int, float, str]:
    """Put those first that have all their members, by priority and age."""
    return is_short(gang), -gang.priority, gang.group.created, gang.key


class Accounting:
    """A snapshot counted once, before any plugin looks at it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.ready_nodes = _ready(snapshot.nodes.facts)
        self.total = _total(snapshot.nodes, self.ready_nodes)
        self.queues = _queues(snapshot)
        #: Queues that have gangs; the others take no part in dividing the cluster.
        self.busy: dict[str, QueueUsage] = {}
        #: Gangs that want something of this cycle, in the order of their keys.
        self.contenders: dict[GangKey, GangState] = {}
        #: Gangs that would be among them, but whose namespace has too many in their queue.
        self.behind: dict[GangKey, Gang] = {}
        #: Gangs of such namespaces that contend only now; nobody has to leave for them.
        self.visitors: frozenset[GangKey] = frozenset()
        #: Gangs of which people should know something beside their verdict.
        self.remarked: list[Gang] = []
        #: Gangs with members that have a node and are not seen on it yet.
        self.coming: list[Gang] = []
        #: Gangs for whose members no kube-scheduler would come, and whose silence keeps them.
        self.hushed: dict[GangKey, SchedulerStatus] = {}
        callers = snapshot.schedulers.values()
        self._mute = {each.name: each for each in callers if not each.may_reserve}
        self._meek = frozenset(each.name for each in callers if not each.may_claim)
        self._states: dict[GangKey, GangState] = {}
        self._count()
        #: What each queue used before anything was decided.
        self.used = {name: state.allocated for name, state in self.queues.items()}
        #: What namespaces have of single queues, where that is limited or guaranteed.
        self.shares = {
            name: ShareUsage(share)
            for name, share in snapshot.shares.items()
            if share.queue in self.queues
        }
        if self.shares:
            self._count_shares()
        #: What pods that are being deleted occupy, by queue, or by share where there is one.
        is_anybody = bool(snapshot.stuck) or snapshot.nodes.releasing.any()
        self.leaving = self._leaving() if is_anybody else {}

    def _leaving(self) -> dict[str, Resources]:
        """Add up what is still occupied; who should have left long ago is given up.

        But not by its queue while its own grace lasts, though nobody waits for such a long one:
        until then the kubelet lets it run.
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
        """Count what gangs use and want in the shares of their namespaces."""
        by_share: dict[str, list[Gang]] = {}
        for gang in self.snapshot.gangs.values():
            name = share_name(gang.queue, gang.group.namespace)
            if name in self.shares and self._takes_part(gang):
                by_share.setdefault(name, []).append(gang)
        for name, gangs in by_share.items():
            share = self.shares[name]
            share.used = total(gang.allocated for gang in gangs)
            share.requested = share.used + total(map(self.wanted, gangs))
            share.inqueue = total(awaited(gang) for gang in gangs if self._may_start(gang))

    def recheck_reservations(self) -> None:
        """Count of what gangs say they need at least, a while after they were let in, what exists.

        What somebody says and does not create, or a PodGroup that was left behind, keeps nobody
        out for longer.
        """
        for key, gang in self.snapshot.gangs.items():
            if gang.group.min_resources is None or key in self.snapshot.recently_admitted:
                continue
            if gang.queue not in self.queues or not self._may_start(gang):
                continue
            said = awaited(gang)
            doubted = said.beyond(gang.pending).positive() if said else NOTHING
            if doubted:
                queue = self.queues[gang.queue]
                queue.inqueue = queue.inqueue - doubted
                share = self.shares.get(share_name(gang.queue, gang.group.namespace))
                if share is not None:
                    share.inqueue = share.inqueue - doubted

    def state(self, key: GangKey) -> GangState | None:
        """Give the state of any gang that is in a queue, made when first asked for."""
        state = self.contenders.get(key) or self._states.get(key)
        if state is not None:
            return state
        gang = self.snapshot.gangs.get(key)
        if gang is None or not _is_valid(gang) or gang.queue not in self.queues:
            return None
        state = self._states[key] = GangState(gang, self.queues[gang.queue])
        return state

    def wanted(self, gang: Gang) -> Resources:
        """Give what *gang* asks for: nothing, while nobody would come for it."""
        return NOTHING if gang.key in self.hushed else gang.pending

    def may_claim(self, gang: Gang) -> bool:
        """Ask whether others may have to leave, or be kept out, for *gang*."""
        if gang.key in self.visitors:
            return False  # what was freed for it would find it gone
        return not self._meek or self._meek.isdisjoint(gang.schedulers)

    def _may_start(self, gang: Gang) -> bool:
        return gang.problem is None and gang.key not in self.hushed

    def _takes_part(self, gang: Gang) -> bool:
        """Ask whether *gang* uses something or may want it."""
        return self._may_start(gang) or gang.on_nodes > 0

    def _silence_of(self, gang: Gang) -> SchedulerStatus | None:
        """Give a scheduler that would have to bring members of *gang* and does not ask."""
        if self._mute.keys().isdisjoint(gang.schedulers) or gang.is_exempt:
            return None
        silent = self._mute[min(self._mute.keys() & gang.schedulers)]
        if silent.liveness is Liveness.UNHEARD and gang.key in self.snapshot.partial_gangs:
            return None  # what is bound of it was asked for before we led
        return silent

    def _count(self) -> None:
        now, queues, contenders = self.snapshot.now, self.queues, self.contenders
        by_queue: dict[str, list[Gang]] = {}
        for key, gang in self.snapshot.gangs.items():
            if gang.remark:
                self.remarked.append(gang)
            if gang.on_nodes > gang.scheduled:
                self.coming.append(gang)
            silent = self._silence_of(gang) if self._mute else None
            if silent is not None:
                self.hushed[key] = silent
            name = gang.queue
            if name not in queues or not self._takes_part(gang):
                continue
            by_queue.setdefault(name, []).append(gang)
            if self._may_start(gang) and _contends(gang, now):
                contenders[key] = GangState(gang, queues[name])
        if len(contenders) > MOST:
            behind, self.visitors = turns(
                (each.gang for each in contenders.values()), now, self.snapshot.partial_gangs
            )
            self.behind = {key: contenders.pop(key).gang for key in sorted(behind)}
        for name, gangs in sorted(by_queue.items()):
            self.busy[name] = queues[name]
            self._add_up(queues[name], gangs)

    def _add_up(self, queue: QueueUsage, gangs: list[Gang]) -> None:
        """Count what the *gangs* of *queue* use and want."""
        allocated = total(gang.allocated for gang in gangs)
        queue.take(allocated)
        wanted = map(self.wanted, gangs)
        queue.requested = allocated + total(each for each in wanted if each is not NOTHING)
        least_of = [(gang, gang.group.min_resources) for gang in gangs]
        stated = [(gang, least) for gang, least in least_of if least is not None]
        # The part that gangs said they need at least.
        bound = total(gang.allocated - gang.allocated.beyond(least) for gang, least in stated)
        queue.elastic = allocated - bound
        queue.inqueue = total(awaited(gang) for gang, _ in stated if self._may_start(gang))


def awaited(gang: Gang) -> Resources:
    """Give what a gang that was let in has been promised but does not use yet."""
    group = gang.group
    was_let_in = group.phase is Phase.INQUEUE or (
        group.phase is Phase.RUNNING and gang.on_nodes >= group.min_member
    )
    if group.min_resources is None or not was_let_in:
        return NOTHING
    return without_gated(gang, group.min_resources.beyond(gang.allocated))


def still_needed(gang: Gang, least: Resources, limit: Vector) -> Resources:
    """Leave out of what a gang needs at least what its own pods ask for: those exist already.

    All of it is asked for where the limit could never hold it.
    """
    if excess(least, limit, least):
        return least
    here = (pod.requests for pod in gang.pods if pod.status in VALID_SET)
    return least.beyond(total(here)).positive()


def without_gated(gang: Gang, amounts: Resources) -> Resources:
    """Leave out what gated members ask for: they will not come soon."""
    gated = sum((pod.requests for pod in gang.pods if pod.gated), NOTHING)
    return amounts.beyond(gated) if gated else amounts


def _is_valid(gang: Gang) -> bool:
    """Ask whether *gang* uses something or may want it; an invalid one wants nothing."""
    return gang.problem is None or gang.on_nodes > 0


def _contends(gang: Gang, now: float) -> bool:
    """Ask whether *gang* wants a node for somebody, or to be let into its queue."""
    group = gang.group
    if gang.is_exempt:
        return False  # what it wants is kube-scheduler's to give
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


def _ready(facts: NodeFacts) -> Mask:
    """Mark the nodes of ours that are ready: only those count as room."""
    return facts.memo.recall(
        "ready", lambda: np.array([node.ready and node.managed for node in facts.nodes], dtype=bool)
    )


def _total(table: NodeTable, ready: Mask) -> Resources:
    """Add up what ready nodes of ours have; the same object as long as no node changes."""

    def count() -> Resources:
        amounts = np.minimum(table.allocatable, LARGEST)[ready].sum(axis=0)
        return Resources(zip(table.dimensions, amounts.tolist(), strict=True))

    return table.facts.memo.recall(("total", table.dimensions), count)

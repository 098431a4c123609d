"""Who is there: the cluster's total, the queues with what they use and want, and who contends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from extender.model.gang import Gang, GangKey, Phase
from extender.model.node import NodeTable
from extender.model.quantity import LARGEST
from extender.model.queue import DEFAULT_QUEUE, ROOT_QUEUE, Queue
from extender.model.resources import NOTHING, Resources
from extender.model.snapshot import Snapshot
from extender.plan.queues.quota import upwards
from extender.plan.room.state import GangState, QueueUse


class Census:
    """A snapshot counted once, before any plugin looks at it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.ready_nodes = _ready(snapshot.nodes)
        self.total = _total(snapshot.nodes, self.ready_nodes)
        self.queues = _queues(snapshot)
        #: Queues that have gangs; the others take no part in dividing the cluster.
        self.busy: dict[str, QueueUse] = {}
        #: Gangs that want something of this cycle, in the order of their keys.
        self.contenders: dict[GangKey, GangState] = {}
        self._states: dict[GangKey, GangState] = {}
        self._count()
        #: What each queue used before anything was decided.
        self.used = {name: state.allocated for name, state in self.queues.items()}

    def state(self, key: GangKey) -> GangState | None:
        """Give the state of any gang that is in a queue, made when first asked for."""
        state = self.contenders.get(key) or self._states.get(key)
        if state is not None:
            return state
        gang = self.snapshot.gangs.get(key)
        if gang is None or gang.queue not in self.queues or gang.problem is not None:
            return None
        state = self._states[key] = GangState(gang, self.queues[gang.queue])
        return state

    def _count(self) -> None:
        now, queues, contenders = self.snapshot.now, self.queues, self.contenders
        tallies: dict[str, _Tally] = {}
        for key, gang in self.snapshot.gangs.items():
            name = gang.queue
            if gang.problem is not None or name not in queues:
                continue
            tally = tallies.get(name)
            if tally is None:
                tally = tallies[name] = _Tally()
            tally.add(gang)
            if _contends(gang, now):
                contenders[key] = GangState(gang, queues[name])
        for name in sorted(tallies):
            self.busy[name] = self.queues[name]
            tallies[name].write_to(self.queues[name])


class _Tally:
    """What the gangs of one queue add up to."""

    __slots__ = ("allocated", "bound", "inqueue", "pending")

    def __init__(self) -> None:
        self.allocated: dict[str, int] = {}
        self.pending: dict[str, int] = {}
        #: The part of *allocated* that gangs said they need at least.
        self.bound: dict[str, int] = {}
        self.inqueue: dict[str, int] = {}

    def add(self, gang: Gang) -> None:
        gang.allocated.add_to(self.allocated)
        if gang.pending is not NOTHING:
            gang.pending.add_to(self.pending)
        if gang.group.min_resources is not None:
            (gang.allocated - gang.allocated.beyond(gang.group.min_resources)).add_to(self.bound)
            awaited(gang).add_to(self.inqueue)

    def write_to(self, queue: QueueUse) -> None:
        allocated = Resources(self.allocated)
        queue.take(allocated)
        queue.requested = allocated + Resources(self.pending)
        queue.elastic = allocated - Resources(self.bound)
        queue.inqueue = Resources(self.inqueue)


def awaited(gang: Gang) -> Resources:
    """Give what a gang that was let in has been promised but does not use yet."""
    least = gang.group.min_resources
    if least is None or not _was_let_in(gang):
        return NOTHING
    return without_gated(gang, least.beyond(gang.allocated))


def without_gated(gang: Gang, amounts: Resources) -> Resources:
    """Leave out what gated members ask for: they will not come soon."""
    gated = sum((pod.requests for pod in gang.pods if pod.gated), NOTHING)
    return amounts.beyond(gated) if gated else amounts


def _was_let_in(gang: Gang) -> bool:
    if gang.group.phase is Phase.RUNNING:
        return gang.on_nodes >= gang.group.min_member
    return gang.group.phase is Phase.INQUEUE


def _contends(gang: Gang, now: float) -> bool:
    """Ask whether *gang* wants a node for somebody, or to be let into its queue."""
    group = gang.group
    if not gang.waiting and (group.phase is not Phase.PENDING or not group.dialect):
        return False
    return gang.backing_off_until <= now


def _queues(snapshot: Snapshot) -> dict[str, QueueUse]:
    queues = {name: QueueUse(queue) for name, queue in snapshot.queues.items()}
    if DEFAULT_QUEUE not in queues:
        queues[DEFAULT_QUEUE] = QueueUse(Queue(name=DEFAULT_QUEUE))
    for state in queues.values():
        parent = queues.get(state.queue.parent or ROOT_QUEUE)
        if state not in upwards(parent):  # it would close a circle
            state.parent = parent
    return queues


def _ready(table: NodeTable) -> npt.NDArray[np.bool_]:
    nodes = table.nodes
    return table.facts.memo.recall(
        "ready", lambda: np.array([node.ready for node in nodes], dtype=bool)
    )


def _total(table: NodeTable, ready: npt.NDArray[np.bool_]) -> Resources:
    """Add up what ready nodes have; the same object as long as no node changes."""

    def total() -> Resources:
        amounts = np.minimum(table.allocatable, LARGEST)[ready].sum(axis=0)
        return Resources(zip(table.dimensions, amounts.tolist(), strict=True))

    return table.facts.memo.recall(("total", table.dimensions), total)

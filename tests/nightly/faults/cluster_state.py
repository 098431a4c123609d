"""The state of the cluster by a record, with recent values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tests.nightly.faults import record as seen

from .record import Amounts, Change, PodCreated

T = TypeVar("T")


class History(Generic[T]):
    """The values of an object over time; None while it does not exist."""

    def __init__(self) -> None:
        self._values: list[tuple[float, T | None]] = []

    def add(self, at: float, value: T | None) -> None:
        self._values.append((at, value))

    @property
    def now(self) -> T | None:
        return self._values[-1][1] if self._values else None

    def since(self, at: float) -> list[T | None]:
        """Return all values from *at* to now, that of *at* first."""
        later = [value for moment, value in self._values if moment > at]
        before = [value for moment, value in self._values if moment <= at]
        return [before[-1] if before else None, *later]


@dataclass
class Pod:
    """One pod, by its uid."""

    made: PodCreated
    node: str = ""
    bound_at: float = 0.0
    #: The queue of its gang at the bind, in which it counts to its end.
    started_in: str | None = None
    leaving_at: float | None = None
    by_scheduler: bool = False
    ended_at: float | None = None
    #: Whether it has succeeded and exists, and when it was deleted.
    is_done: bool = False
    done_until: float | None = None

    @property
    def name(self) -> str:
        return f"{self.made.namespace}/{self.made.name}"

    @property
    def has_room(self) -> bool:
        return bool(self.node) and self.ended_at is None

    @property
    def stands(self) -> bool:
        """Return whether it is bound and not terminating."""
        return self.has_room and self.leaving_at is None

    @property
    def waits(self) -> bool:
        return not self.node and self.ended_at is None and self.leaving_at is None


@dataclass(frozen=True, slots=True)
class Group:
    """The fields of a PodGroup."""

    minimum: int
    queue: str


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a node."""

    room: Amounts
    closed: bool


@dataclass(frozen=True, slots=True)
class Queue:
    """The fields of a queue."""

    ceiling: Amounts
    open: bool


class World:
    """The state after the changes so far."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        #: The pods that use capacity of a node.
        self.placed: dict[str, Pod] = {}
        self.gangs: dict[str, list[Pod]] = defaultdict(list)
        self.groups: dict[str, History[Group]] = defaultdict(History)
        self.nodes: dict[str, History[Node]] = defaultdict(History)
        self.queues: dict[str, History[Queue]] = defaultdict(History)
        self._takes: Mapping[type[Change], Callable[[Any], None]] = {
            seen.PodCreated: self._made,
            seen.PodBound: self._bound,
            seen.PodLeaving: self._leaving,
            seen.PodEnded: self._ended,
            seen.GroupSet: self._group,
            seen.GroupGone: self._group_gone,
            seen.NodeSet: self._node,
            seen.NodeGone: self._node_gone,
            seen.QueueSet: self._queue,
            seen.QueueGone: self._queue_gone,
        }

    def take(self, change: Change) -> None:
        """Apply one change."""
        self._takes[type(change)](change)

    def queue_of(self, pod: PodCreated) -> str | None:
        """Return the queue of a pod; None while its PodGroup does not exist."""
        if not pod.gang:
            return pod.queue or "default"
        group = self.groups[pod.gang].now
        return group.queue if group else None

    def taken_on(self, node: str) -> dict[str, int]:
        """Return the usage of a node."""
        return added(pod.made.request for pod in self.placed.values() if pod.node == node)

    def taken_in(self, queue: str) -> dict[str, int]:
        """Return the usage of a queue."""
        placed = (pod for pod in self.placed.values() if pod.made.ours)
        return added(pod.made.request for pod in placed if pod.started_in == queue)

    def _made(self, change: PodCreated) -> None:
        pod = self.pods[change.uid] = Pod(change)
        if change.gang:
            self.gangs[change.gang].append(pod)

    def _bound(self, change: seen.PodBound) -> None:
        pod = self.pods[change.uid]
        if not pod.node:
            pod.node, pod.bound_at = change.node, change.at
            pod.started_in = self.queue_of(pod.made)
            self.placed[change.uid] = pod

    def _leaving(self, change: seen.PodLeaving) -> None:
        pod = self.pods[change.uid]
        pod.leaving_at, pod.by_scheduler = change.at, change.by_scheduler

    def _ended(self, change: seen.PodEnded) -> None:
        pod = self.pods[change.uid]
        if pod.is_done and change.how == "gone":
            pod.done_until = change.at
        pod.is_done = change.how == "Succeeded"
        if pod.ended_at is None:
            pod.ended_at = change.at
            self.placed.pop(change.uid, None)

    def _group(self, change: seen.GroupSet) -> None:
        self.groups[change.gang].add(change.at, Group(change.minimum, change.queue))

    def _group_gone(self, change: seen.GroupGone) -> None:
        self.groups[change.gang].add(change.at, None)

    def _node(self, change: seen.NodeSet) -> None:
        self.nodes[change.name].add(change.at, Node(change.room, change.closed))

    def _node_gone(self, change: seen.NodeGone) -> None:
        self.nodes[change.name].add(change.at, None)

    def _queue(self, change: seen.QueueSet) -> None:
        self.queues[change.name].add(change.at, Queue(change.ceiling, change.open))

    def _queue_gone(self, change: seen.QueueGone) -> None:
        self.queues[change.name].add(change.at, None)


def added(amounts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of amounts."""
    total: dict[str, int] = defaultdict(int)
    for each in amounts:
        for name, amount in each.items():
            total[name] += amount
    return dict(total)

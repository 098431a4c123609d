"""Gangs and queues as they stand in the middle of a cycle: the only mutable view of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.model.gang import Gang, Phase
from extender.model.pod import READY_SET, Pod, PodUid
from extender.model.queue import NamespaceShare, Queue
from extender.model.reason import Problem
from extender.model.resources import NOTHING, Resources, total
from extender.planner.policy import Vector
from extender.planner.quota import QuotaNode, upwards


@dataclass(slots=True, eq=False)
class QueueUsage:
    """A queue with what its gangs use and want."""

    queue: Queue
    parent: QueueUsage | None = None
    allocated: Resources = NOTHING
    #: What the queues below it use.
    allocated_by_children: Resources = NOTHING
    requested: Resources = NOTHING
    #: Promised to gangs that were let in but do not run yet.
    inqueue: Resources = NOTHING
    #: Used by gangs beyond what they need at least.
    elastic: Resources = NOTHING
    #: What its own gangs used when they began to replace each other.
    before: Resources = NOTHING
    #: Its place in the tree of ceilings and guarantees; None where nobody limits queues.
    quota: QuotaNode | None = None
    #: Below it, the places of namespaces that have a share of their own; mostly empty.
    shares: dict[str, QuotaNode] = field(default_factory=dict)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.queue.name

    def take(self, amounts: Resources, namespace: str = "") -> None:
        """Count *amounts* here, for *namespace*, and in every queue above; or give them back."""
        self.allocated = self.allocated + amounts
        quota = self.shares.get(namespace, self.quota) if self.shares else self.quota
        if quota is not None:
            quota.take(amounts)
        for line in upwards(self.parent):
            line.allocated_by_children = line.allocated_by_children + amounts

    @property
    def guarantee(self) -> Resources:
        """Give what it is guaranteed: at least what its namespaces are, all together."""
        if not self.shares:
            return self.queue.guarantee
        of_shares = total(Resources(share.least) for share in self.shares.values())
        return self.queue.guarantee.at_least(of_shares)

    def rank_over(self, other: QueueUsage) -> str:
        """Name both priorities; empty when they are the same."""
        ours, theirs = self.queue.priority, other.queue.priority
        if ours == theirs:
            return ""
        return f"queue {self.name} has priority {ours}, {other.name} {theirs}"

    def preemption_limit(self, due: Vector, gang: GangState, asked: Resources) -> Vector:
        """Give the due; or what it used before, if it keeps as much as its due without *gang*.

        Below its due others of the queue could start before *gang*, in the room it was given.
        """
        others = self.allocated - gang.trying
        if any(others.amount(name) < due.get(name, 0) for name, a in asked.items() if a > 0):
            return due
        return self.before.at_least(Resources({name: int(a) for name, a in due.items()}))

    @property
    def with_children(self) -> Resources:
        """Give what it uses together with all queues below it."""
        return (
            self.allocated + self.allocated_by_children
            if self.allocated_by_children
            else self.allocated
        )


@dataclass(slots=True, eq=False)
class ShareUsage:
    """What a namespace has of a queue, with what its gangs there use and want."""

    share: NamespaceShare
    #: Used when the snapshot was taken.
    used: Resources = NOTHING
    requested: Resources = NOTHING
    #: Promised to gangs that were let in but do not run yet.
    inqueue: Resources = NOTHING


_NO_ROLES = Counter[str]()


class GangState:
    """A gang with what this cycle has decided for it so far; only `TrialRoom` changes it."""

    __slots__ = (
        "allocated", "blocked", "committed", "empty", "evicted", "gang", "key", "min_member",
        "phase", "pipelined", "placed", "queue", "ready", "ready_by_role", "role_minima", "runs",
        "trying",
    )  # fmt: skip

    def __init__(self, gang: Gang, queue: QueueUsage) -> None:
        group = gang.group
        self.gang = gang
        self.key = group.key
        self.queue = queue
        self.min_member = group.min_member
        self.phase: Phase = group.phase
        self.ready: int = gang.ready
        self.allocated: Resources = gang.allocated
        #: What the trial under way has given it.
        self.trying = NOTHING
        #: Waiting members not yet tried in this action, cut into runs of identical ones.
        self.runs: list[list[Pod]] = []
        #: Members given a node in this cycle: (pod, row of the node table).
        self.placed: list[tuple[Pod, int]] = []
        #: How many of *placed*, from the front, may start.
        self.committed = 0
        #: Members given a node whose room is still being released.
        self.pipelined: list[tuple[Pod, int]] = []
        self.evicted: set[PodUid] = set()
        #: Pending members that ask for nothing but a place and count as ready without one; only
        #: under Volcano's rules.
        self.empty: list[Pod] = []
        #: Why it could not go on, as far as an action noticed.
        self.blocked: Problem | None = None
        self.role_minima = group.role_minima
        #: Counted only where roles have minima: there may be thousands of gangs.
        self.ready_by_role: Counter[str] = _NO_ROLES
        if self.role_minima:
            ready = (pod.role for pod in gang.pods if pod.status in READY_SET)
            self.ready_by_role = Counter(ready)

    @property
    def quota(self) -> QuotaNode | None:
        """The place in the tree where what it uses counts; None where nobody limits queues."""
        return self.share or self.queue.quota

    @property
    def share(self) -> QuotaNode | None:
        """That place, if it is a share of its namespace."""
        return self.queue.shares.get(self.gang.group.namespace) if self.queue.shares else None

    @property
    def created(self) -> float:
        """When its PodGroup was made."""
        return self.gang.group.created

    @property
    def has_freed_capacity(self) -> bool:
        """Is an ordinary pod that waits where kube-scheduler made room for it."""
        waiting = self.gang.waiting
        return not self.gang.group.dialect and bool(waiting) and bool(waiting[0].nominated)

    @property
    def bound_or_done(self) -> int:
        """Count the ready members that depend on no promise: on a node for all to see, or done."""
        return self.gang.bound_or_done - len(self.evicted)

    @property
    def is_pending(self) -> bool:
        """Has not been let into its queue yet."""
        return self.phase is Phase.PENDING

    def commit(self) -> None:
        """Let everybody who was given a node start."""
        self.committed = len(self.placed)

    @property
    def started(self) -> Resources:
        """Add up what its members that may start now ask for."""
        if self.committed == len(self.placed) and not self.pipelined and not self.evicted:
            return self.allocated - self.gang.allocated
        counts = Counter(pod.shape for pod, _ in self.placed[: self.committed])
        return sum((shape.requests * number for shape, number in counts.items()), NOTHING)

    def needed(self, tasks: Sequence[Pod], lacking: int) -> list[Pod]:
        """Choose the *tasks* that bring it to its minimum, roles that lack some first."""
        if not self.role_minima:
            return list(tasks[: max(0, lacking)])
        coming = Counter(pod.role for pod, _ in self.pipelined)
        short = Counter(self.role_minima) - self.ready_by_role - coming
        chosen, others = [], []
        for pod in tasks:
            if short[pod.role] > 0:
                short[pod.role] -= 1
                chosen.append(pod)
            else:
                others.append(pod)
        return chosen + others[: max(0, lacking - len(chosen))]

    def enqueue(self) -> None:
        """Let it into its queue, if it is not there yet."""
        if self.is_pending:
            self.phase = Phase.INQUEUE

    def count(self, pods: list[Pod], sign: int) -> None:
        """Count *pods* as ready members (*sign* 1) or no longer (*sign* -1)."""
        self.ready += sign * len(pods)
        for pod in pods if self.role_minima else ():
            self.ready_by_role[pod.role] += sign

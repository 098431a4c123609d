"""The state of gangs and queues during a cycle: the only mutable view of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.model.gang import Gang, Phase
from extender.model.pod import READY_SET, Pod, PodUid
from extender.model.queue import NamespaceShare, Queue, QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, Resources, total
from extender.planner.policy import Vector
from extender.planner.quota import QuotaNode, upwards


@dataclass(slots=True, eq=False)
class QueueUsage:
    """A queue with what its gangs use and request."""

    queue: Queue
    parent: QueueUsage | None = None
    allocated: Resources = NOTHING
    #: Used by the queues below it.
    allocated_by_children: Resources = NOTHING
    requested: Resources = NOTHING
    #: Reserved for gangs that are admitted to the queue but do not run yet.
    inqueue: Resources = NOTHING
    #: Used by gangs beyond their `minResources`.
    elastic: Resources = NOTHING
    #: What its own gangs used when preemption began.
    before: Resources = NOTHING
    #: Its node in the tree of ceilings and guarantees; None where the policy limits no queue.
    quota: QuotaNode | None = None
    #: The nodes below it of namespaces that have a share of their own; mostly empty.
    shares: dict[str, QuotaNode] = field(default_factory=dict)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.queue.name

    def take(self, amounts: Resources, namespace: str = "") -> None:
        """Count *amounts* for *namespace* here, and in all queues above; negative ones release."""
        self.allocated = self.allocated + amounts
        quota = self.shares.get(namespace, self.quota) if self.shares else self.quota
        if quota is not None:
            quota.take(amounts)
        for above in upwards(self.parent):
            above.allocated_by_children = above.allocated_by_children + amounts

    @property
    def guarantee(self) -> Resources:
        """Return its guarantee, which is at least the sum of those of its namespaces."""
        if not self.shares:
            return self.queue.guarantee
        of_shares = total(Resources(share.guarantee) for share in self.shares.values())
        return self.queue.guarantee.at_least(of_shares)

    def closed(self) -> Problem | None:
        """Return a problem if it, or a queue above it, is not open, else None.

        Closing a queue closes the whole family. Volcano's scheduler checks the queue alone, but its
        controller closes the queues below a closed one, so the result is the same.
        """
        for each in upwards(self):
            state = each.queue.state
            if state is not QueueState.OPEN:
                what = f"queue {each.name} is {state.value.lower()}"
                below = f"queue {self.name} is below {each.name}, and "
                return Problem(Reason.QUEUE_CLOSED, what if each is self else f"{below}{what}")
        return None

    def rank_over(self, other: QueueUsage) -> str:
        """Return a phrase that names both priorities; empty when they are equal."""
        ours, theirs = self.queue.priority, other.queue.priority
        if ours == theirs:
            return ""
        return f"queue {self.name} has priority {ours}, {other.name} {theirs}"

    def preemption_limit(self, deserved: Vector, gang: GangState, requested: Resources) -> Vector:
        """Return *deserved*; or what it used before, if it keeps as much as that without *gang*.

        Below its deserved amount other gangs of the queue could start before *gang*, in the
        capacity that was freed for it.
        """
        others = self.allocated - gang.in_trial
        if any(
            others.amount(name) < deserved.get(name, 0) for name, a in requested.items() if a > 0
        ):
            return deserved
        return self.before.at_least(Resources({name: int(a) for name, a in deserved.items()}))

    @property
    def with_children(self) -> Resources:
        """Return what it uses together with all queues below it."""
        return (
            self.allocated + self.allocated_by_children
            if self.allocated_by_children
            else self.allocated
        )


@dataclass(slots=True, eq=False)
class ShareUsage:
    """The share of a namespace in a queue, with what its gangs there use and request."""

    share: NamespaceShare
    #: Used when the snapshot was taken.
    used: Resources = NOTHING
    requested: Resources = NOTHING
    #: Reserved for gangs that are admitted to the queue but do not run yet.
    inqueue: Resources = NOTHING


_NO_ROLES = Counter[str]()


class GangState:
    """A gang with what this cycle has decided for it so far; actions and trials change it."""

    __slots__ = (
        "allocated", "best_effort", "blocked", "committed", "evicted", "gang", "in_trial", "key",
        "min_member", "phase", "pipelined", "placed", "queue", "ready", "ready_by_role",
        "role_minima", "runs",
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
        #: What the current trial has placed for it.
        self.in_trial = NOTHING
        #: Waiting members not yet tried in this action, split into runs of identical ones.
        self.runs: list[list[Pod]] = []
        #: Members placed in this cycle: (pod, row of the node table).
        self.placed: list[tuple[Pod, int]] = []
        #: How many of *placed*, from the front, may start.
        self.committed = 0
        #: Members placed in capacity that is still being released.
        self.pipelined: list[tuple[Pod, int]] = []
        self.evicted: set[PodUid] = set()
        #: Pending best-effort members, which count as ready without a node; only under Volcano's
        #: rules.
        self.best_effort: list[Pod] = []
        #: Why it cannot start, as far as an action found out.
        self.blocked: Problem | None = None
        self.role_minima = group.role_minima
        #: Counted only where roles have minima: there can be thousands of gangs.
        self.ready_by_role: Counter[str] = _NO_ROLES
        if self.role_minima:
            ready = (pod.role for pod in gang.pods if pod.status in READY_SET)
            self.ready_by_role = Counter(ready)

    @property
    def quota(self) -> QuotaNode | None:
        """The node in the tree that counts what it uses; None where the policy limits no queue."""
        return self.share or self.queue.quota

    @property
    def share(self) -> QuotaNode | None:
        """The node of its namespace's share; None where the namespace has none."""
        return self.queue.shares.get(self.gang.group.namespace) if self.queue.shares else None

    @property
    def created(self) -> float:
        """When its PodGroup was created."""
        return self.gang.group.created

    @property
    def has_freed_capacity(self) -> bool:
        """Whether it is a single pod that waits where kube-scheduler preempted others for it."""
        waiting = self.gang.waiting
        return not self.gang.group.dialect and bool(waiting) and bool(waiting[0].nominated)

    @property
    def bound_or_done(self) -> int:
        """Count the members that are bound or have ended, without those to be evicted."""
        return self.gang.bound_or_done - len(self.evicted)

    @property
    def is_pending(self) -> bool:
        """Whether it has not been admitted to its queue yet."""
        return self.phase is Phase.PENDING

    def commit(self) -> None:
        """Let all placed members start."""
        self.committed = len(self.placed)

    @property
    def started(self) -> Resources:
        """Return the requests of its members that may start now."""
        if self.committed == len(self.placed) and not self.pipelined and not self.evicted:
            return self.allocated - self.gang.allocated
        counts = Counter(pod.shape for pod, _ in self.placed[: self.committed])
        return total(shape.requests * number for shape, number in counts.items())

    @property
    def placed_requests(self) -> Resources:
        """Return the requests of all members that this cycle placed."""
        return total(pod.requests for pod, _ in (*self.placed, *self.pipelined))

    def needed(self, tasks: Sequence[Pod], missing: int) -> list[Pod]:
        """Return the *tasks* that bring it to its minimum, roles that lack some first."""
        if not self.role_minima:
            return list(tasks[: max(0, missing)])
        pipelined = Counter(pod.role for pod, _ in self.pipelined)
        short = Counter(self.role_minima) - self.ready_by_role - pipelined
        chosen, others = [], []
        for pod in tasks:
            if short[pod.role] > 0:
                short[pod.role] -= 1
                chosen.append(pod)
            else:
                others.append(pod)
        return chosen + others[: max(0, missing - len(chosen))]

    def enqueue(self) -> None:
        """Admit it to its queue, if it is still pending."""
        if self.is_pending:
            self.phase = Phase.INQUEUE

    def count(self, pods: list[Pod], sign: int) -> None:
        """Count *pods* as ready members (*sign* 1), or stop counting them (*sign* -1)."""
        self.ready += sign * len(pods)
        for pod in pods if self.role_minima else ():
            self.ready_by_role[pod.role] += sign

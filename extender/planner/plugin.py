"""The contract of a plugin: a policy that the session calls about gangs, queues, tasks and nodes.

A plugin subclasses `Plugin` and defines any of the methods below. The session calls only those that
exist and are enabled. *gang* is a `GangState`, *queue* a `QueueUsage`; a plugin reads them and
never changes them.

    method                                   returns                      enabled by
    gang_order(gang)                         key, smaller goes first      enableJobOrder
    gang_order_reason(ahead, behind)          why, for explain             as the order
    queue_order(queue)                       key, smaller goes first      enableQueueOrder
    queue_order_reason(ahead, behind)         why, for explain             as the order
    namespace_order(name)                    key, smaller goes first      enableNamespaceOrder
    namespace_order_reason(ahead, behind)     why, for explain             as the order
    task_order(pod)                          key, smaller goes first      enableTaskOrder
    gang_valid(gang)                         Problem or None              -
    gang_ready(gang)                         how many members it lacks    enableJobReady
    gang_pipelined(gang)                     Vote                         enableJobPipelined
    gang_starving(gang)                      needs more capacity?         enableJobStarving
    enqueueable(gang)                        Vote, or Problem to reject   enableJobEnqueued
    enqueued(gang)                           nothing (is notified)        enableJobEnqueued
    overused(queue)                          has all it may have?         enabledOverused
    allocatable(gang, shape)                 how many more, or Problem    enabledAllocatable
    entitled(gang, needs)                    may have a reservation?      enabledAllocatable
    preemptive(gang, shape)                  may reclaim for it?          enablePreemptive
    preemptable(preemptor, candidates)       victims; None abstains       enablePreemptable
    reclaimable(preemptor, candidates)       victims; None abstains       enableReclaimable
    protects(action, preemptor, gang)        spare its queue+priority?    as the vote
    victim_queue_order(queue, own)           key, smaller is taken first  -
    obstacles(shape, facts)                  {word: mask of such nodes}   enablePredicate
    scores(shape, table)                     array, higher is better      enableNodeOrder
    deserved(queue)                          Vector, for the figures      -
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Protocol

from extender.model.pod import Pod
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner.accounting import Accounting
from extender.planner.free_capacity import FreeCapacity, PlannedEviction
from extender.planner.policy import Arguments, Arithmetic, Policy, Rules, Vector
from extender.planner.quota import QueueLimits
from extender.planner.state import GangState, QueueUsage


class Vote(Enum):
    """Yes, no, or no vote."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Round(Enum):
    """Which gangs capacity is handed out to."""

    #: Gangs that keep their queue within its deserved amount.
    DESERVED = auto()
    #: Gangs whose queue begins below its deserved amount, from what is left.
    OVERSHOOT = auto()
    #: Any gang that can use what is left then, above the deserved amount: it is borrowed.
    BORROW = auto()
    #: Gangs for which pods of other queues may be evicted.
    DEFAULT = auto()
    #: Gangs of higher priority, for which pods of their own queue may be evicted.
    PREEMPT = auto()


@dataclass(frozen=True, slots=True)
class VictimCandidate:
    """A pod that might be evicted."""

    gang: GangState
    pod: Pod
    row: int

    def eviction(self, action: str, beneficiary: GangState) -> PlannedEviction:
        """Return its eviction by *action*, for *beneficiary*."""
        return PlannedEviction(self.gang, self.pod, self.row, action, beneficiary)


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting member, and its gang, for which pods may be evicted."""

    gang: GangState
    pod: Pod


class View(Protocol):
    """What a plugin reads of a cycle; it never changes any of it."""

    snapshot: Snapshot
    accounting: Accounting
    queues: dict[str, QueueUsage]
    #: The capacity of all managed ready nodes together.
    total: Resources
    policy: Policy
    rules: Rules
    arithmetic: Arithmetic
    #: The free capacity as decided so far.
    capacity: FreeCapacity
    #: Which gangs capacity is handed out to now.
    round: Round
    #: Limits and guarantees of queues, and their usage when the snapshot was taken.
    limits: tuple[QueueLimits, ...]
    #: What the queues could hold at most.
    ceilings: Mapping[str, Vector]
    #: What the queues use and could start. Computed from the answers of the plugins, so it does not
    #: exist yet when they are opened.
    startable: Mapping[str, Resources]
    #: The part of `startable` of namespaces that have a share of their own.
    startable_by_share: Mapping[str, Resources]

    def in_victim_order(
        self, preemptor: Preemptor, candidates: Iterable[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Return *candidates* in the order in which they should be evicted."""


class Plugin:
    """A policy; the head of this file lists what it may define."""

    #: Its name in the policy file.
    name = ""
    #: The arguments it reads, `x.*` for all that begin with `x.`; None turns the check off.
    known: ClassVar[tuple[str, ...] | None] = None
    #: Arguments of Volcano's plugin of the same name that have no effect here.
    ignored_arguments: ClassVar[tuple[str, ...]] = ()
    #: Whether `enableNamespaceOrder` is set, which unlike other flags is off by default.
    orders_namespaces = False

    def __init__(self, arguments: Arguments, *, hierarchy: bool = False) -> None:
        self.arguments = arguments
        self.hierarchy = hierarchy
        self.configure()

    def configure(self) -> None:
        """Read the arguments; one that cannot be read is an error of the policy file."""

    def open(self, session: View) -> None:
        """Read the cluster once, before any other method is called."""
        self.session = session

"""What a plugin is: a policy, asked by the session about gangs, queues, tasks and nodes.

A plugin subclasses `Plugin` and defines whichever of these methods it has an opinion on; the
session asks only those that exist and are switched on. *gang* is a `GangState`, *queue* a
`QueueUse`; both are to be read, never changed.

    method                                   answer                       switched by
    gang_order(gang)                         key, smaller goes first      enableJobOrder
    gang_order_words(ahead, behind)          why, for people              as the order
    queue_order(queue)                       key, smaller goes first      enableQueueOrder
    queue_order_words(ahead, behind)         why, for people              as the order
    namespace_order(name)                    key, smaller goes first      enableNamespaceOrder
    namespace_order_words(ahead, behind)     why, for people              as the order
    task_order(pod)                          key, smaller goes first      enableTaskOrder
    gang_valid(gang)                         Problem or None              -
    gang_ready(gang)                         how many members it lacks    enableJobReady
    gang_pipelined(gang)                     Vote                         enableJobPipelined
    gang_starving(gang)                      wants more?                  enableJobStarving
    enqueueable(gang)                        Vote, or Problem to reject   enableJobEnqueued
    enqueued(gang)                           (is told)                    enableJobEnqueued
    overused(queue)                          has it enough?               enabledOverused
    allocatable(gang, shape)                 how many more, or Problem    enabledAllocatable
    entitled(gang, needs)                    may room be kept for it?     enabledAllocatable
    preemptive(gang, shape)                  may it reclaim for it?       enablePreemptive
    preemptable(claim, candidates)           who may go; None abstains    enablePreemptable
    reclaimable(claim, candidates)           who may go; None abstains    enableReclaimable
    protects(action, claim, gang)            spare its queue+priority?    as the vote
    victim_queue_order(queue, claimant)      key, smaller is taken first  -
    obstacles(shape, facts)                  {word: mask of such nodes}   enablePredicate
    scores(shape, prospect)                  array, higher is better      enableNodeOrder
    deserved(queue)                          Vector, for the figures      -
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
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
    """Yes, no, or no opinion."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Round(Enum):
    """For whom room is being handed out."""

    #: Gangs that keep their queue within its due.
    DESERVED = "due"
    #: Gangs whose queue begins below its due, from what is left.
    OVERSHOOT = "rest"
    #: Whoever can use what is left then, above the due: it is lent.
    BORROW = "lent"
    #: Gangs for which others may have to leave.
    DEFAULT = "claims"
    #: More important gangs, for which others of their queue may have to leave.
    PREEMPT = "swaps"


@dataclass(frozen=True, slots=True)
class VictimCandidate:
    """A pod that might be asked to leave."""

    gang: GangState
    pod: Pod
    row: int

    def leaving(self, action: str, beneficiary: GangState) -> PlannedEviction:
        """Have it asked to leave by *action*, for *beneficiary*."""
        return PlannedEviction(self.gang, self.pod, self.row, action, beneficiary)


@dataclass(frozen=True, slots=True)
class Preemptor:
    """For whom somebody might have to leave: a waiting member and its gang."""

    gang: GangState
    pod: Pod


class View(Protocol):
    """What a plugin sees of a cycle; all of it is to be read, never changed."""

    snapshot: Snapshot
    accounting: Accounting
    queues: dict[str, QueueUsage]
    #: What all ready nodes of ours have together.
    total: Resources
    policy: Policy
    rules: Rules
    arithmetic: Arithmetic
    #: Who would be where by now.
    capacity: FreeCapacity
    #: For whom room is being handed out now.
    round: Round
    #: What the queues could hold at most, and what they use and could start.
    ceilings: Mapping[str, Vector]
    startable: Mapping[str, Resources]
    #: The part of those wishes that namespaces have which have a share of their own.
    startable_by_share: Mapping[str, Resources]
    #: What queues are limited to and guaranteed, and used when the snapshot was taken.
    limits: tuple[QueueLimits, ...]

    def in_victim_order(
        self, claim: Preemptor, candidates: Iterable[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Sort *candidates* so that whoever should leave first comes first."""


class Plugin:
    """A policy; see the head of this file for what it may define."""

    #: What the policy file calls it.
    name = ""
    #: The arguments it reads, `x.*` for all that begin with `x.`; None when nobody should check.
    known: ClassVar[tuple[str, ...] | None] = None
    #: Arguments of Volcano's plugin of the same name that have no effect here.
    ignored_arguments: ClassVar[tuple[str, ...]] = ()
    #: `enableNamespaceOrder` is set, which unlike other switches nobody has on by default.
    orders_namespaces = False

    def __init__(self, arguments: Arguments, *, hierarchy: bool = False) -> None:
        self.arguments = arguments
        self.hierarchy = hierarchy
        self.configure()

    def configure(self) -> None:
        """Read the arguments; one that cannot be read is an error of the policy file."""

    def open(self, session: View) -> None:
        """Look at the cluster once, before anything is asked."""
        self.session = session

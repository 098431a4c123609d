"""What one cycle decided: verdicts, tickets, evictions, queue figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from extender.model.gang import GangKey, Phase
from extender.model.pod import PodUid
from extender.model.reason import Reason
from extender.model.resources import NOTHING, Resources
from extender.planner.quota import QueueLimits


class GangStatus(Enum):
    """Where a gang stands."""

    RUNNING = "running"
    ADMITTED = "admitted"
    WAITING = "waiting"
    INVALID = "invalid"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the plan says of a gang: one word, one sentence with the arithmetic."""

    gang: GangKey
    queue: str
    standing: GangStatus
    reason: Reason
    message: str
    phase: Phase = Phase.PENDING
    share: float = 0.0
    min_member: int = 1
    members: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlacement:
    """An admitted gang's reservation; placing a member elsewhere is a change of the ticket."""

    gang: GangKey
    #: Members that may start now.
    placements: Mapping[PodUid, str] = field(default_factory=dict)
    #: Members that wait for room that is being released.
    pipelined: Mapping[PodUid, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod that is asked to leave, and for whom."""

    uid: PodUid
    namespace: str
    name: str
    node: str
    #: reclaim or preempt.
    action: str
    beneficiary: GangKey


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """What a queue deserves, uses and wants."""

    name: str
    weight: int
    deserved: Resources = NOTHING
    #: Used by its gangs and those of the queues below it.
    allocated: Resources = NOTHING
    #: Used by its own gangs.
    own: Resources = NOTHING
    #: Used and waited for, here and below.
    requested: Resources = NOTHING
    #: What it uses above its due: lent to it, and the first to be taken back.
    borrowed: Resources = NOTHING
    share: float = 0.0
    overused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFigures:
    """What a namespace may have of a queue, has at least, uses and wants."""

    queue: str
    namespace: str
    limit: Resources = NOTHING
    guarantee: Resources = NOTHING
    allocated: Resources = NOTHING
    requested: Resources = NOTHING


class HoldReason(Enum):
    """Why room stands idle; `{}` is for whom."""

    GUARANTEED = "guaranteed to queue {}, which does not lend it"
    NAMESPACE_GUARANTEE = "kept for namespace {}, which has at least so much there"
    STARVING = "kept for gang {}, which has waited long"
    RESERVED = "promised to gang {} while room is made for it"
    RELEASING = "given to members of gang {} that are on their way"
    CORDONED = "on {}, where nobody may start"


class HeldCapacity(NamedTuple):
    """Room that is kept for somebody, or from everybody."""

    reason: HoldReason
    #: A queue, a namespace in one, or a gang; or where it is.
    whom: str
    amounts: Resources

    @property
    def words(self) -> str:
        """Say for whom and why."""
        return self.reason.value.format(self.whom)


class DirectAdmission(NamedTuple):
    """How much may start in a queue before the next cycle, by its due; `stakes` limit it too."""

    #: While somebody waits for room anywhere, the rest of its weighted part. None: whatever there
    #: is.
    left: Resources | None = None
    #: Nobody in it waits for room. Where somebody does, single pods may start in what is left
    #: over, which was too little for those who wait, but no gang that came after them.
    is_quiet: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The outcome of one cycle, published as one reference."""

    generation: int = 0
    verdicts: Mapping[GangKey, Verdict] = field(default_factory=dict)
    #: New reservations of this cycle only; older ones are pods with a node in the snapshot.
    placements: Mapping[GangKey, GangPlacement] = field(default_factory=dict)
    evictions: tuple[Eviction, ...] = ()
    queues: Mapping[str, QueueFigures] = field(default_factory=dict)
    #: Namespaces that have a share of their own in a queue, by the name of that share.
    shares: Mapping[str, ShareFigures] = field(default_factory=dict)
    #: Queues in which something may start without waiting for a cycle.
    direct_admission: Mapping[str, DirectAdmission] = field(default_factory=dict)
    #: What queues are limited to and guaranteed, with what they used when the snapshot was taken:
    #: this plan's tickets not counted. Empty where the policy limits no queue.
    limits: tuple[QueueLimits, ...] = ()
    #: What all nodes have together.
    total: Resources = NOTHING
    #: What is free on ready nodes when all tickets are used, and what of it is kept for whom.
    unused: Resources = NOTHING
    held: tuple[HeldCapacity, ...] = ()
    #: Room kept free on nodes for gangs that wait too long: node name -> amounts.
    reservations: Mapping[str, Resources] = field(default_factory=dict)
    #: What those gangs lack there still: whoever leaves such a node leaves it to them first.
    reservations_missing: Mapping[str, Resources] = field(default_factory=dict)
    #: Whoever cannot stay longer may be let into room that is kept (`Starvation.backfill_s`).
    brief_s: float = 0.0


NO_PLAN = Plan()

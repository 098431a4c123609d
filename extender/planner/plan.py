"""What one cycle decided: verdicts, placements, evictions, queue figures."""

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
    """The status of a gang."""

    RUNNING = "running"
    ADMITTED = "admitted"
    WAITING = "waiting"
    INVALID = "invalid"
    FINISHED = "finished"


#: Its members are on nodes, or were until it finished.
STARTED = frozenset({GangStatus.RUNNING, GangStatus.FINISHED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The plan's verdict on a gang: one reason word and one sentence with the figures."""

    gang: GangKey
    queue: str
    status: GangStatus
    reason: Reason
    message: str
    phase: Phase = Phase.PENDING
    share: float = 0.0
    min_member: int = 1
    members: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlacement:
    """The nodes of an admitted gang; the ledger makes reservations of its `placements`."""

    gang: GangKey
    #: Members that may start now.
    placements: Mapping[PodUid, str] = field(default_factory=dict)
    #: Members that wait for capacity that is being released.
    pipelined: Mapping[PodUid, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod that is to be evicted, and the gang that needs its capacity."""

    uid: PodUid
    namespace: str
    name: str
    node: str
    #: `reclaim` or `preempt`.
    action: str
    beneficiary: GangKey


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """What a queue deserves, uses and requests."""

    name: str
    weight: int
    deserved: Resources = NOTHING
    #: Used by its gangs and those of the queues below it.
    allocated: Resources = NOTHING
    #: Used by its own gangs.
    own: Resources = NOTHING
    #: Used and waited for by its gangs and those of the queues below it.
    requested: Resources = NOTHING
    #: What it uses above its deserved amount; the first to be reclaimed.
    borrowed: Resources = NOTHING
    share: float = 0.0
    overused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFigures:
    """The limit, guarantee, use and requests of a namespace in a queue."""

    queue: str
    namespace: str
    limit: Resources = NOTHING
    guarantee: Resources = NOTHING
    allocated: Resources = NOTHING
    requested: Resources = NOTHING


class HoldReason(Enum):
    """Why free capacity is not used; `{}` is what it is held for, or where."""

    GUARANTEED = "guaranteed to queue {}, which does not let others borrow it"
    NAMESPACE_GUARANTEE = "guaranteed to namespace {}"
    STARVING = "reserved for gang {}, which has waited long"
    RESERVED = "reserved for gang {} while its victims terminate"
    BINDING = "allocated to members of gang {} that are still binding"
    CORDONED = "on {}, where no pod may start"


class HeldCapacity(NamedTuple):
    """Free capacity that is held for a queue, namespace or gang, or that no pod may use."""

    reason: HoldReason
    #: A queue, a namespace in one, or a gang; or where the capacity is.
    beneficiary: str
    amounts: Resources

    @property
    def why(self) -> str:
        """Return a phrase that names the reason and what the capacity is held for."""
        return self.reason.value.format(self.beneficiary)


class DirectAdmission(NamedTuple):
    """What may start in a queue before the next cycle; `Plan.limits` restrict it too."""

    #: While any gang waits for capacity, the rest of the queue's weighted part. None: no bound.
    left: Resources | None = None
    #: No gang in it waits for capacity. Otherwise single pods may still start in the capacity that
    #: was too little for the waiting gangs, but no gang that came later may.
    is_quiet: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of one cycle, published as one reference."""

    generation: int = 0
    verdicts: Mapping[GangKey, Verdict] = field(default_factory=dict)
    #: New reservations of this cycle only; older ones are pods with a node in the snapshot.
    placements: Mapping[GangKey, GangPlacement] = field(default_factory=dict)
    evictions: tuple[Eviction, ...] = ()
    queues: Mapping[str, QueueFigures] = field(default_factory=dict)
    #: The shares of namespaces in queues, by the name of the share.
    shares: Mapping[str, ShareFigures] = field(default_factory=dict)
    #: Queues in which pods may start without waiting for a cycle.
    direct_admission: Mapping[str, DirectAdmission] = field(default_factory=dict)
    #: Limits and guarantees of queues, with what they used when the snapshot was taken; this plan's
    #: placements are not counted. Empty where the policy limits no queue.
    limits: tuple[QueueLimits, ...] = ()
    #: The capacity of all nodes together.
    total: Resources = NOTHING
    #: Free capacity of ready nodes once all placements are used, and what of it is held for what.
    unused: Resources = NOTHING
    held: tuple[HeldCapacity, ...] = ()
    #: What of that is held on each node for gangs that starve or wait for victims: node name ->
    #: amounts.
    held_on_nodes: Mapping[str, Resources] = field(default_factory=dict)
    #: What those gangs still miss there; the next capacity released on such a node is theirs.
    missing_on_nodes: Mapping[str, Resources] = field(default_factory=dict)
    #: Gangs that end within so many seconds may use held capacity (`Starvation.backfill_s`).
    brief_s: float = 0.0


NO_PLAN = Plan()

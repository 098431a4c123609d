"""The interface of the state machine.

Events go in, `Facts` are what it may look up meanwhile, instructions are what is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NewType, Protocol, TypeAlias

import msgspec

from extender.model.gang import GangKey, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid
from extender.ports import BindOrder, BindOutcome, EvictOrder


class Cause(Enum):
    """The closed list of reasons why a bind call ends; the value is its sentence."""

    __hash__ = object.__hash__  # as with `Status`

    BOUND = "the pod is bound"
    BIND_FAILED = "the API server did not bind the pod"
    DEADLINE = "members did not assemble in time"
    TOO_LATE = "too little time is left to bind the whole gang"
    TOO_LARGE = "it is too large to be bound in time; raise the bind timeout"
    SIBLING_UNSCHEDULABLE = "a member that is needed fits no node"
    NOT_ENOUGH_MEMBERS = "too few members are left to reach minMember"
    INCOMPLETE = "the rest of the gang has not been created yet"
    UNVERIFIED = "its PodGroup could not be read from the API server in time"
    EVICTED_PARTIAL = "it could not be completed, and the members that had started were evicted"
    GROUP_GONE = "its PodGroup does not exist"
    GROUP_REPLACED = "its PodGroup was replaced by another of the same name"
    GROUP_MOVED = "its PodGroup was moved to another queue; filter must admit the pod there"
    GROUP_UNUSABLE = "its PodGroup cannot be used; see its events"
    NODE_LOST = "the chosen node is gone, not ready, cordoned or tainted"
    NODE_FULL = "the chosen node has not enough free capacity for it any more"
    POD_GONE = "the pod is gone or being deleted"
    POD_PREEMPTED = "kube-scheduler may be evicting the pod for another one"
    GANG_PREEMPTED = "kube-scheduler may be evicting all of it for another pod"
    POD_CHANGED = "the pod was gated or moved to another gang while its bind waited"
    POD_ELSEWHERE = "the pod is already on another node"
    PEER_GONE = "the caller disconnected before the answer"
    SUPERSEDED = "a newer bind call for the same pod took its place"
    BACKING_OFF = "the gang did not assemble in time and is tried again later"
    NO_RESERVATION = "the gang has no reservation for this pod; filter must admit it again"
    NOT_FILTERED = "filter has not admitted the pod here; it must do so first"
    CAPACITY_RESERVED = "the capacity of the chosen node, or of the queue, is reserved for others"
    TABLE_FULL = "too many binds wait already; raise max-holds"
    SHUT_DOWN = "the extender is shutting down"
    LEASE_LOST = "this extender is not the leader"

    @property
    def word(self) -> str:
        """Return its name for metrics and histories."""
        return self.name.lower()

    def text(self, gang: GangKey | None = None) -> str:
        """Return its sentence, the same every time for the same gang."""
        return f"gang {gang}: {self.value}" if gang else self.value


#: Causes after which the gang backs off.
BACKS_OFF = frozenset(
    {
        Cause.DEADLINE,
        Cause.TOO_LATE,
        Cause.TOO_LARGE,
        Cause.SIBLING_UNSCHEDULABLE,
        Cause.NOT_ENOUGH_MEMBERS,
        Cause.UNVERIFIED,
        Cause.BIND_FAILED,
        Cause.EVICTED_PARTIAL,
    }
)


#: One HTTP request; a pod may have several over time.
CallId = NewType("CallId", int)
#: Called with the error text of the answer to a bind; empty when the pod is bound.
TakeAnswer: TypeAlias = Callable[[str], None]


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""


class GangEvent(Event, frozen=True):
    """Something that happened to a gang."""

    gang: GangKey


class Arrived(Event, frozen=True):
    """A bind call arrived that requests *order*."""

    id: CallId
    order: BindOrder


class PeerGone(Event, frozen=True):
    """The caller closed its connection before the answer."""

    id: CallId


class Joined(Event, frozen=True):
    """A new member exists, and nothing prevents it from coming."""

    uid: PodUid
    gang: GangKey


class PodChanged(Event, frozen=True):
    """A pod of a gang was changed, deleted or is being deleted; the cache shows how."""

    uid: PodUid
    gang: GangKey | None


class SiblingUnschedulable(Event, frozen=True):
    """kube-scheduler found no node for a member."""

    uid: PodUid
    gang: GangKey


class GroupChanged(GangEvent, frozen=True):
    """A PodGroup was changed; None when it was deleted."""

    group: PodGroup | None


class NodeChanged(Event, frozen=True):
    """A node was changed or deleted; the cache shows how."""

    name: str


class StillIncomplete(GangEvent, frozen=True):
    """No further member of a gang has come for a while."""


class Withdrawn(GangEvent, frozen=True):
    """The reservations of a gang were released: its queue closed, changed, or has less capacity."""


class FoundPartial(GangEvent, frozen=True):
    """An earlier leader, or this replica before a restart, left a gang bound in part."""


class EvictionStarted(GangEvent, frozen=True):
    """The eviction of a partial gang starts: all its members may be evicted."""


class EvictionRefused(GangEvent, frozen=True):
    """A partial gang is not evicted, because one of its members would never come again."""


class Verified(GangEvent, frozen=True):
    """The live PodGroup was read; None when it does not exist."""

    epoch: int
    group: PodGroup | None


class VerifyFailed(GangEvent, frozen=True):
    """The live PodGroup could not be read."""

    epoch: int


class Settled(Event, frozen=True):
    """The outcome of a binding that was sent is known."""

    uid: PodUid
    outcome: BindOutcome


class Tick(Event, frozen=True):
    """Time has passed."""


class Opened(Event, frozen=True):
    """This replica leads from now on and accepts binds."""


class Closed(Event, frozen=True):
    """No more binds from now on, because of a shutdown or a lost lease."""

    cause: Cause


class Facts(Protocol):
    """The facts of the cluster that the state machine needs: `facts.CacheFacts`."""

    def pod(self, uid: PodUid) -> Pod | None:
        """Return the pod as last seen; None when it does not exist."""

    def pod_or_filtered(self, uid: PodUid) -> Pod | None:
        """Return the pod as last seen, or as filter saw it a moment ago."""

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the gang of a pod; None for a pod that is bound without one."""

    def group(self, key: GangKey) -> PodGroup | None:
        """Return the PodGroup as last seen."""

    def pods_of(self, key: GangKey) -> Iterable[Pod]:
        """Return the members of a gang that exist."""

    def scheduled(self, key: GangKey) -> int:
        """Return the number of members on a node, and of those bound but not yet seen."""

    def scheduled_in_role(self, key: GangKey, role: str) -> int:
        """Return the number of members of one role that `scheduled` counts."""

    def reserved_node(self, uid: PodUid) -> str | None:
        """Return the node that is reserved for this pod; None without any."""

    def has_passed(self, uid: PodUid) -> bool:
        """Return whether filter admitted a pod; also True where only kube-scheduler can know."""

    def may_bind(self, uid: PodUid, node: str) -> bool:
        """Return whether a pod that need not wait finds capacity not reserved for others."""

    def may_lose_all(self, gang: GangKey) -> bool:
        """Return whether kube-scheduler may preempt a gang, because the preempt hook allowed it."""

    def may_lose(self, uid: PodUid) -> bool:
        """Return whether kube-scheduler may preempt a pod, because the preempt hook allowed it."""

    def node(self, name: str) -> Node | None:
        """Return a node as last seen."""

    def has_capacity(self, uid: PodUid, node: str) -> bool:
        """Return whether a node has free capacity for a pod, as far as the extender decides it."""

    def fits(self, node: str, pods: Iterable[PodUid]) -> bool:
        """Return whether *pods* fit on a node besides all that is there or on the way there."""


class Instruction(msgspec.Struct, frozen=True):
    """Something to do, in order."""


class NodeInstruction(Instruction, frozen=True):
    """Something to do about the reservation of one pod on one node."""

    uid: PodUid
    node: str


class GangInstruction(Instruction, frozen=True):
    """Something to do about a gang."""

    gang: GangKey


class MarkWaiting(NodeInstruction, frozen=True):
    """Mark the reservation of the pod on *node* as WAITING."""


class Verify(GangInstruction, frozen=True):
    """Read the PodGroup from the API server; its result is `Verified` or `VerifyFailed`."""

    epoch: int
    group: PodGroup


class Bind(Instruction, frozen=True):
    """Mark the reservations as BINDING and send the bindings; each results in `Settled`.

    All outcomes must be known at *until*: kube-scheduler does not wait longer for the answer.
    """

    orders: tuple[BindOrder, ...]
    until: float


class MarkBound(NodeInstruction, frozen=True):
    """Mark the reservation of the pod as BOUND to *node*, until the watch shows the pod."""


class Release(Instruction, frozen=True):
    """Release the reservation of the pod."""

    uid: PodUid


class KeepReserved(NodeInstruction, frozen=True):
    """Make the pod RESERVED again: its binding failed, but its gang has begun to start."""


class MarkUnknown(NodeInstruction, frozen=True):
    """Keep the reservation of a pod that may be bound; its caller got an error."""


class Answer(Instruction, frozen=True):
    """Answer one bind call; an empty *error* is success."""

    id: CallId
    error: str
    cause: Cause
    waited_s: float


class BackOff(GangInstruction, frozen=True):
    """Do not start the gang for *span_s* seconds."""

    span_s: float


class ReportPartial(GangInstruction, frozen=True):
    """A gang is below minMember after its bindings were sent."""


class EvictPartial(GangInstruction, frozen=True):
    """Evict the members of a partial gang that were bound."""

    orders: tuple[EvictOrder, ...]


class ReportPeerClosed(Instruction, frozen=True):
    """A caller gave up *age_s* after its call."""

    age_s: float

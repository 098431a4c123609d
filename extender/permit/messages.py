"""All that passes between the book and the world.

What it is told (events), what it may ask meanwhile (`Facts`), what it wants done (instructions).
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
    """The closed list of what ends a bind call; the value is its sentence."""

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
    EVICTED_PARTIAL = "it could not be completed and what had started was taken back"
    GROUP_GONE = "its PodGroup does not exist"
    GROUP_REPLACED = "its PodGroup was replaced by another of the same name"
    GROUP_MOVED = "its PodGroup was moved to another queue; it must pass filter there"
    GROUP_UNUSABLE = "its PodGroup cannot be used; see its events"
    NODE_LOST = "the chosen node is gone, not ready, cordoned or tainted"
    NODE_FULL = "the chosen node has no room for it any more"
    POD_GONE = "the pod is gone or being deleted"
    POD_PREEMPTED = "kube-scheduler may be evicting the pod for another one"
    GANG_PREEMPTED = "kube-scheduler may be evicting all of it for another pod"
    POD_CHANGED = "the pod was gated or moved to another gang while its bind waited"
    POD_ELSEWHERE = "the pod is already on another node"
    PEER_GONE = "the caller went away before the answer"
    SUPERSEDED = "a newer bind call for the same pod took its place"
    BACKING_OFF = "the gang did not assemble in time and is tried again later"
    NO_RESERVATION = "the gang holds no ticket for this pod; it must pass filter again"
    NOT_FILTERED = "the pod has not passed filter here; it must pass first"
    CAPACITY_RESERVED = "the room on the chosen node, or in the queue, is promised to others"
    TABLE_FULL = "too many binds are held already; raise max-holds"
    SHUT_DOWN = "the extender is shutting down"
    LEASE_LOST = "this extender is not the leader"

    @property
    def word(self) -> str:
        """Name it for metrics and stories."""
        return self.name.lower()

    def text(self, gang: GangKey | None = None) -> str:
        """Say it to a person, the same words every time for the same gang."""
        return f"gang {gang}: {self.value}" if gang else self.value


#: Causes after which the gang should not be tried again at once.
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
#: Takes the error text of the answer to a bind, empty when the pod is bound.
TakeAnswer: TypeAlias = Callable[[str], None]


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""


class Arrived(Event, frozen=True):
    """A bind call came in, asking for *order*."""

    id: CallId
    order: BindOrder


class PeerGone(Event, frozen=True):
    """The caller closed its connection before the answer."""

    id: CallId


class Joined(Event, frozen=True):
    """A new member exists, and nothing is known against it."""

    uid: PodUid
    gang: GangKey


class PodChanged(Event, frozen=True):
    """A pod of a gang was changed, deleted or is being deleted; the mirror shows how."""

    uid: PodUid
    gang: GangKey | None


class SiblingUnschedulable(Event, frozen=True):
    """kube-scheduler found no node for a member."""

    uid: PodUid
    gang: GangKey


class GroupChanged(Event, frozen=True):
    """A PodGroup was changed; None when it was deleted."""

    gang: GangKey
    group: PodGroup | None


class NodeChanged(Event, frozen=True):
    """A node was changed or deleted; the mirror shows how."""

    name: str


class StillIncomplete(Event, frozen=True):
    """No further member of a gang has come for a while."""

    gang: GangKey


class Withdrawn(Event, frozen=True):
    """What a gang was promised is good no more: its queue was closed, left, or has less."""

    gang: GangKey


class FoundPartial(Event, frozen=True):
    """Whoever led before us, or we before we were ended, left a gang bound in part."""

    gang: GangKey


class EvictionStarted(Event, frozen=True):
    """A gang that was to be taken back is asked to leave: nobody of it has to stay."""

    gang: GangKey


class EvictionRefused(Event, frozen=True):
    """A gang that was to be taken back stays, because somebody of it would never come again."""

    gang: GangKey


class Verified(Event, frozen=True):
    """The live PodGroup was read; None when it does not exist."""

    gang: GangKey
    epoch: int
    group: PodGroup | None


class VerifyFailed(Event, frozen=True):
    """The live PodGroup could not be read."""

    gang: GangKey
    epoch: int


class Settled(Event, frozen=True):
    """It is known what became of a binding that was sent."""

    uid: PodUid
    outcome: BindOutcome


class Tick(Event, frozen=True):
    """Time has passed."""


class Opened(Event, frozen=True):
    """We lead from now on: binds are welcome."""


class Closed(Event, frozen=True):
    """No more binds from now on, because we shut down or lost the lease."""

    cause: Cause


class Facts(Protocol):
    """The mirror of the cluster, as far as holds are concerned."""

    def pod(self, uid: PodUid) -> Pod | None:
        """Return the pod as last seen, None when it does not exist."""

    def arriving(self, uid: PodUid) -> Pod | None:
        """Return the pod as last seen, or as kube-scheduler showed it to filter a moment ago."""

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the gang of a pod; None for a pod that is bound without one."""

    def group(self, key: GangKey) -> PodGroup | None:
        """Return the PodGroup as last seen."""

    def pods_of(self, key: GangKey) -> Iterable[Pod]:
        """Return the members of a gang that exist."""

    def seated(self, key: GangKey) -> int:
        """Count the members on a node, those bound by us and not yet seen included."""

    def seated_in_role(self, key: GangKey, role: str) -> int:
        """Count the members of one role that `seated` counts."""

    def reserved_node(self, uid: PodUid) -> str | None:
        """Return the node on which room is kept for this pod, None without any."""

    def has_passed(self, uid: PodUid) -> bool:
        """Return whether filter let a pod pass; also True where only kube-scheduler can tell."""

    def may_bind(self, uid: PodUid, node: str) -> bool:
        """Return whether a pod that waits for nobody finds its room there, promised to nobody else."""

    def may_lose_all(self, gang: GangKey) -> bool:
        """Return whether kube-scheduler was allowed to evict a gang, and may be about to."""

    def may_lose(self, uid: PodUid) -> bool:
        """Return whether kube-scheduler was allowed to evict a pod, and may be about to."""

    def node(self, name: str) -> Node | None:
        """Return a node as last seen."""

    def has_room(self, uid: PodUid, node: str) -> bool:
        """Return whether a node has room for a pod, as far as that is ours to say."""

    def fits(self, node: str, pods: Iterable[PodUid]) -> bool:
        """Return whether a node has room for *pods* beside all that is there or on its way there."""


class Instruction(msgspec.Struct, frozen=True):
    """Something to be done, in order."""


class NodeInstruction(Instruction, frozen=True):
    """Something to be done about the room of one pod at one node."""

    uid: PodUid
    node: str


class MarkWaiting(NodeInstruction, frozen=True):
    """Mark the pod in flight as held at *node*."""


class Verify(Instruction, frozen=True):
    """Read the PodGroup from the API server and tell `Verified` or `VerifyFailed`."""

    gang: GangKey
    epoch: int
    group: PodGroup


class Bind(Instruction, frozen=True):
    """Mark the pods in flight as committing, send the bindings, tell `Settled` for each.

    All outcomes must be known *until* then: later kube-scheduler would not wait for the answer.
    """

    orders: tuple[BindOrder, ...]
    until: float


class MarkBound(NodeInstruction, frozen=True):
    """Mark the pod in flight as bound to *node*, until the mirror shows it."""


class Release(Instruction, frozen=True):
    """Give back the room the pod had in flight."""

    uid: PodUid


class KeepReserved(NodeInstruction, frozen=True):
    """Let the pod keep its room as a ticket: its binding failed, its gang has begun to start."""


class MarkUnknown(NodeInstruction, frozen=True):
    """Keep the room of a pod that may be bound or not; its caller hears that it was not."""


class Answer(Instruction, frozen=True):
    """Answer one bind call; an empty *error* is success."""

    id: CallId
    error: str
    cause: Cause
    waited_s: float


class BackOff(Instruction, frozen=True):
    """Do not try the gang for *span_s* seconds."""

    gang: GangKey
    span_s: float


class ReportPartial(Instruction, frozen=True):
    """A gang ended short of minMember after its bindings were sent."""

    gang: GangKey


class EvictPartial(Instruction, frozen=True):
    """Ask the members of a gang that did get bound to leave again."""

    gang: GangKey
    orders: tuple[EvictOrder, ...]


class ReportPeerClosed(Instruction, frozen=True):
    """A caller gave up *age_s* after its call."""

    age_s: float

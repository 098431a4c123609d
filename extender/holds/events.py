"""What can happen at the barrier. The book is told; it never looks for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, TypeAlias

from extender.holds.cause import Cause
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.ports import BindOrder, BindOutcome

#: One HTTP request; a pod may have several over time.
CallId = NewType("CallId", int)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A bind call came in, asking for *order*."""

    id: CallId
    order: BindOrder


@dataclass(frozen=True, slots=True)
class PeerGone:
    """The caller closed its connection before the answer."""

    id: CallId


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod of a gang was changed, deleted or is being deleted; the mirror shows how."""

    uid: PodUid
    gang: GangKey | None


@dataclass(frozen=True, slots=True)
class SiblingUnschedulable:
    """kube-scheduler found no node for a member."""

    uid: PodUid
    gang: GangKey


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A PodGroup was changed; None when it was deleted."""

    gang: GangKey
    group: PodGroup | None


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node was changed or deleted; the mirror shows how."""

    name: str


@dataclass(frozen=True, slots=True)
class StillIncomplete:
    """No further member of a gang has come for a while."""

    gang: GangKey


@dataclass(frozen=True, slots=True)
class Verified:
    """The live PodGroup was read; None when it does not exist."""

    gang: GangKey
    epoch: int
    group: PodGroup | None


@dataclass(frozen=True, slots=True)
class VerifyFailed:
    """The live PodGroup could not be read."""

    gang: GangKey
    epoch: int


@dataclass(frozen=True, slots=True)
class Settled:
    """It is known what became of a binding that was sent."""

    uid: PodUid
    outcome: BindOutcome


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Opened:
    """We lead from now on: binds are welcome."""


@dataclass(frozen=True, slots=True)
class Closed:
    """No more binds from now on, because we shut down or lost the lease."""

    cause: Cause


Event: TypeAlias = (
    Arrived
    | PeerGone
    | PodChanged
    | SiblingUnschedulable
    | GroupChanged
    | NodeChanged
    | StillIncomplete
    | Verified
    | VerifyFailed
    | Settled
    | Tick
    | Opened
    | Closed
)

"""What can happen at the barrier. The book is told; it never looks for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType, TypeAlias

import msgspec

from extender.holds.machine.cause import Cause
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.ports import BindOrder, BindOutcome

#: One HTTP request; a pod may have several over time.
CallId = NewType("CallId", int)
#: Takes the error text of the answer to a bind, empty when the pod is bound.
TakeAnswer: TypeAlias = Callable[[str], None]


class Arrived(msgspec.Struct, frozen=True):
    """A bind call came in, asking for *order*."""

    id: CallId
    order: BindOrder


class PeerGone(msgspec.Struct, frozen=True):
    """The caller closed its connection before the answer."""

    id: CallId


class Joined(msgspec.Struct, frozen=True):
    """A new member exists, and nothing is known against it."""

    uid: PodUid
    gang: GangKey


class PodChanged(msgspec.Struct, frozen=True):
    """A pod of a gang was changed, deleted or is being deleted; the mirror shows how."""

    uid: PodUid
    gang: GangKey | None


class SiblingUnschedulable(msgspec.Struct, frozen=True):
    """kube-scheduler found no node for a member."""

    uid: PodUid
    gang: GangKey


class GroupChanged(msgspec.Struct, frozen=True):
    """A PodGroup was changed; None when it was deleted."""

    gang: GangKey
    group: PodGroup | None


class NodeChanged(msgspec.Struct, frozen=True):
    """A node was changed or deleted; the mirror shows how."""

    name: str


class StillIncomplete(msgspec.Struct, frozen=True):
    """No further member of a gang has come for a while."""

    gang: GangKey


class Verified(msgspec.Struct, frozen=True):
    """The live PodGroup was read; None when it does not exist."""

    gang: GangKey
    epoch: int
    group: PodGroup | None


class VerifyFailed(msgspec.Struct, frozen=True):
    """The live PodGroup could not be read."""

    gang: GangKey
    epoch: int


class Settled(msgspec.Struct, frozen=True):
    """It is known what became of a binding that was sent."""

    uid: PodUid
    outcome: BindOutcome


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class Opened(msgspec.Struct, frozen=True):
    """We lead from now on: binds are welcome."""


class Closed(msgspec.Struct, frozen=True):
    """No more binds from now on, because we shut down or lost the lease."""

    cause: Cause


Event: TypeAlias = (
    Arrived
    | PeerGone
    | Joined
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

"""One attempt of a gang to start, and the bind calls that wait in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from extender.holds.machine.events import CallId
from extender.holds.machine.states import AssemblyState, HoldState
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.ports import BindOrder


class Seats(NamedTuple):
    """Members on a node; *by_role* only knows the roles that have a minimum."""

    total: int
    by_role: Mapping[str, int]


NO_SEATS = Seats(0, {})


class Waiter(msgspec.Struct, frozen=True):
    """A call that gets the answer; *node* is what it asked for."""

    id: CallId
    node: str
    arrived: float


class Hold(msgspec.Struct, kw_only=True):
    """One pod whose bind waits or is under way."""

    order: BindOrder
    gang: GangKey | None
    role: str
    state: HoldState = HoldState.NEW
    #: One while HELD; more when a call is repeated while COMMITTING; none when all went away.
    waiters: list[Waiter] = msgspec.field(default_factory=list)

    @property
    def uid(self) -> PodUid:
        """Name the pod."""
        return self.order.uid

    @property
    def node(self) -> str:
        """Where the pod is about to go."""
        return self.order.node


@dataclass(slots=True, kw_only=True)
class Assembly:
    """The held members of one PodGroup object (another uid is another assembly)."""

    group: PodGroup
    #: Unique over the life of the book; a new one for every verification.
    epoch: int
    deadline: float
    #: A verification that has not ended by then never will.
    verify_by: float
    #: kube-scheduler's patience with the first arrival ends here, margin taken off.
    give_up: float
    state: AssemblyState = AssemblyState.ASSEMBLING
    #: What the mirror showed when the live PodGroup was asked for.
    seen: PodGroup | None = None
    #: Members that wait or are being bound.
    holds: dict[PodUid, Hold] = field(default_factory=dict)
    #: Members known to exist, held or not, with what kube-scheduler had said of them before.
    siblings: dict[PodUid, str] = field(default_factory=dict)
    #: Members kube-scheduler found no node for since the assembly began.
    stuck: set[PodUid] = field(default_factory=set)
    #: When to look again whether enough members are left; None without doubt.
    doubt_at: float | None = None
    #: When to read the PodGroup again after a failed read; None otherwise.
    reread_at: float | None = None
    #: Members on a node when the commit began.
    seated_before: Seats = NO_SEATS
    #: Members bound by this assembly, with their roles.
    bound: dict[PodUid, str] = field(default_factory=dict)
    #: Members whose binding certainly failed.
    failed: set[PodUid] = field(default_factory=set)
    #: Members that may have been bound without our seeing it.
    unsure: set[PodUid] = field(default_factory=set)

    @property
    def key(self) -> GangKey:
        """Name the gang."""
        return self.group.key

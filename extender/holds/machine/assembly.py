"""One attempt of a gang to start, the bind calls that wait in it, and how far each may go.

The tables of moves are the whole truth: they are asked before every move, and the diagrams in
docs/holds.md are drawn from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import msgspec

from extender.holds.machine.messages import CallId
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.ports import BindOrder


class HoldState(Enum):
    """How far one bind call is; its value is its sentence in the docs."""

    __hash__ = object.__hash__  # as with `Status`

    NEW = "The call has just come in and its pod passed the entry checks."
    HELD = "The call waits for the rest of its gang; nothing was sent to the API server."
    COMMITTING = "The binding was sent, or is about to be; there is no way back."
    BOUND = "The API server has shown the pod on the node; the answer was success."
    FAILED = "The pod is not known to be on the node; the answer was an error."
    RELEASED = "The call was refused before anything was sent; kube-scheduler tries again."


class AssemblyState(Enum):
    """How far one attempt of a gang to start is; its value is its sentence in the docs."""

    __hash__ = object.__hash__

    ASSEMBLING = "Members are held, but too few to start; the first arrival set the deadline."
    VERIFYING = "Enough are held; the PodGroup is being read from the API server itself."
    COMMITTING = "The members it needs are being bound; the others wait for what becomes of them."
    DONE = "At least minMember members are bound; the attempt is over."
    BROKEN = "Too few got bound; while one of them runs, missing ones are bound as they come."
    ABORTED = "All were refused together, and nothing stays bound; the gang may have to back off."
    DISSOLVED = "Nobody waits or runs any more; the gang starts anew when a member comes."


HOLD_MOVES: Mapping[HoldState, frozenset[HoldState]] = {
    HoldState.NEW: frozenset({HoldState.HELD, HoldState.COMMITTING}),
    HoldState.HELD: frozenset({HoldState.COMMITTING, HoldState.RELEASED, HoldState.BOUND}),
    HoldState.COMMITTING: frozenset({HoldState.BOUND, HoldState.FAILED}),
    HoldState.BOUND: frozenset(),
    HoldState.FAILED: frozenset(),
    HoldState.RELEASED: frozenset(),
}

ASSEMBLY_MOVES: Mapping[AssemblyState, frozenset[AssemblyState]] = {
    AssemblyState.ASSEMBLING: frozenset(
        {
            AssemblyState.VERIFYING,
            AssemblyState.ABORTED,
            AssemblyState.DISSOLVED,
        }
    ),
    AssemblyState.VERIFYING: frozenset(
        {
            AssemblyState.ASSEMBLING,
            AssemblyState.COMMITTING,
            AssemblyState.ABORTED,
            AssemblyState.DISSOLVED,
        }
    ),
    AssemblyState.COMMITTING: frozenset(
        {AssemblyState.DONE, AssemblyState.BROKEN, AssemblyState.ABORTED}
    ),
    AssemblyState.BROKEN: frozenset(
        {AssemblyState.DONE, AssemblyState.ABORTED, AssemblyState.DISSOLVED}
    ),
    AssemblyState.DONE: frozenset(),
    AssemblyState.ABORTED: frozenset(),
    AssemblyState.DISSOLVED: frozenset(),
}

#: Nothing was sent yet: any doubt may still end it.
GATHERING = frozenset({AssemblyState.ASSEMBLING, AssemblyState.VERIFYING})
#: Bindings were sent: it can only go forward.
FORWARD = frozenset({AssemblyState.COMMITTING, AssemblyState.BROKEN})


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

    uid: PodUid
    #: The newest one when the call was repeated.
    order: BindOrder
    gang: GangKey | None
    role: str
    state: HoldState = HoldState.NEW
    #: One while HELD; more when a call is repeated while COMMITTING; none when all went away.
    waiters: list[Waiter] = msgspec.field(default_factory=list)

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
    #: How many of those are being bound.
    under_way: int = 0
    #: Members known to exist, held or not, with what kube-scheduler had said of them before.
    siblings: dict[PodUid, str] = field(default_factory=dict)
    #: Members kube-scheduler found no node for since the assembly began.
    stuck: set[PodUid] = field(default_factory=set)
    #: When to look again whether enough members are left; None without doubt.
    doubt_at: float | None = None
    #: When to read the PodGroup again after a failed read; None otherwise.
    reread_at: float | None = None
    #: When to look after a gang bound in part.
    look_at: float = 0.0
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

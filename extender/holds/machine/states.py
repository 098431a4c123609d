"""The states of a hold and of an assembly, and the moves between them.

The tables are the whole truth: the book asks them before every move, and the diagram in
docs/holds.md is drawn from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


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
    COMMITTING = "Every held member is being bound; late members are bound as they come."
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

"""What the book wants done. The barrier carries these out, in order."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from extender.holds.machine.cause import Cause
from extender.holds.machine.events import CallId
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.ports import BindOrder, EvictOrder


class Park(msgspec.Struct, frozen=True):
    """Mark the pod in flight as held at *node*."""

    uid: PodUid
    node: str


class Verify(msgspec.Struct, frozen=True):
    """Read the PodGroup from the API server and tell `Verified` or `VerifyFailed`."""

    gang: GangKey
    epoch: int
    group: PodGroup


class Bind(msgspec.Struct, frozen=True):
    """Mark the pods in flight as committing, send the bindings, tell `Settled` for each."""

    orders: tuple[BindOrder, ...]


class Seat(msgspec.Struct, frozen=True):
    """Mark the pod in flight as bound to *node*, until the mirror shows it."""

    uid: PodUid
    node: str


class Free(msgspec.Struct, frozen=True):
    """Give back the room the pod had in flight."""

    uid: PodUid


class Keep(msgspec.Struct, frozen=True):
    """Let the pod keep its room as a ticket: its binding failed, its gang has begun to start."""

    uid: PodUid
    node: str


class Answer(msgspec.Struct, frozen=True):
    """Answer one bind call; an empty *error* is success."""

    id: CallId
    error: str
    cause: Cause
    waited_s: float


class BackOff(msgspec.Struct, frozen=True):
    """Do not try the gang for *span_s* seconds."""

    gang: GangKey
    span_s: float


class ReportPartial(msgspec.Struct, frozen=True):
    """A gang ended short of minMember after its bindings were sent."""

    gang: GangKey


class TakeBack(msgspec.Struct, frozen=True):
    """Ask the members of a gang that did get bound to leave again."""

    gang: GangKey
    orders: tuple[EvictOrder, ...]


class ReportPeerClosed(msgspec.Struct, frozen=True):
    """A caller gave up *age_s* after its call."""

    age_s: float


Instruction: TypeAlias = (
    Park
    | Verify
    | Bind
    | Seat
    | Free
    | Keep
    | Answer
    | BackOff
    | ReportPartial
    | TakeBack
    | ReportPeerClosed
)

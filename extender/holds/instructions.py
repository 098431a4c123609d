"""What the book wants done. The barrier carries these out, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from extender.holds.cause import Cause
from extender.holds.events import CallId
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.ports import BindOrder, EvictOrder


@dataclass(frozen=True, slots=True)
class Park:
    """Mark the pod in flight as held at *node*."""

    uid: PodUid
    node: str


@dataclass(frozen=True, slots=True)
class Verify:
    """Read the PodGroup from the API server and tell `Verified` or `VerifyFailed`."""

    gang: GangKey
    epoch: int
    group: PodGroup


@dataclass(frozen=True, slots=True)
class Bind:
    """Mark the pods in flight as committing, send the bindings, tell `Settled` for each."""

    orders: tuple[BindOrder, ...]


@dataclass(frozen=True, slots=True)
class Seat:
    """Mark the pod in flight as bound to *node*, until the mirror shows it."""

    uid: PodUid
    node: str


@dataclass(frozen=True, slots=True)
class Free:
    """Give back the room the pod had in flight."""

    uid: PodUid


@dataclass(frozen=True, slots=True)
class Keep:
    """Let the pod keep its room as a ticket: its binding failed, its gang has begun to start."""

    uid: PodUid
    node: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer one bind call; an empty *error* is success."""

    id: CallId
    error: str
    cause: Cause
    waited_s: float


@dataclass(frozen=True, slots=True)
class BackOff:
    """Do not try the gang for *span_s* seconds."""

    gang: GangKey
    span_s: float


@dataclass(frozen=True, slots=True)
class ReportPartial:
    """A gang ended short of minMember after its bindings were sent."""

    gang: GangKey


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Ask the members of a gang that did get bound to leave again."""

    gang: GangKey
    orders: tuple[EvictOrder, ...]


@dataclass(frozen=True, slots=True)
class ReportPeerClosed:
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

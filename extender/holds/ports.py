"""What the barrier needs from others to carry out what the book says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from extender.model.gang import GangKey
from extender.model.pod import PodUid


class InFlight(Protocol):
    """Where room is kept for pods on their way to a node; never calls back, never waits."""

    def held(self, uid: PodUid, node: str) -> None:
        """Keep room for a pod whose bind waits."""

    def committing(self, uid: PodUid, node: str) -> None:
        """Keep room for a pod whose binding is being sent."""

    def bound(self, uid: PodUid, node: str) -> None:
        """Keep room for a bound pod until the mirror shows it."""

    def keep(self, uid: PodUid, node: str) -> None:
        """Let a pod whose binding failed keep its room as a ticket."""

    def doubt(self, uid: PodUid, node: str) -> None:
        """Keep room for a pod of whose binding nobody knows, until the mirror shows the truth."""

    def release(self, uid: PodUid) -> None:
        """Give the room of a pod back; none may be kept."""

    def back_off(self, gang: GangKey, span_s: float) -> None:
        """Do not try the gang for *span_s*."""


class Timer(Protocol):
    """Calls back later, always from the same thread; may be asked from any."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back once after *delay_s*."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back once, as soon as that thread has time."""


class Observer(Protocol):
    """Hears what is worth counting."""

    def released(self, cause: str, waited_s: float) -> None:
        """A bind call was answered; *cause* is a word of the closed list."""

    def partial_commit(self, gang: GangKey) -> None:
        """A gang ended short of minMember after its bindings were sent."""

    def peer_closed(self, age_s: float) -> None:
        """A caller gave up *age_s* after its call."""

    def learnt_timeout(self, seconds: float | None) -> None:
        """kube-scheduler seems to give up sooner than configured; None when it does not."""

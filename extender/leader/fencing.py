"""A term: the time in which this replica may write to the cluster. It expires by itself.

Each check compares the term with a monotonic clock, which also runs while the process is stopped.
So a process that was frozen finds its term expired before it sends anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from extender.errors import NotLeader
from extender.ports import Fencing

_OVER = float("-inf")


class Term:
    """The `Fencing` of replicas with a lease; any thread may read it, the event loop begins it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._number = 0
        self._until = _OVER

    def current(self) -> int:
        """Return the number of our current term; 0 while we have none."""
        # The number is read first: if the next term begins in between, the old number is void.
        number = self._number
        return number if self._monotonic() < self._until else 0

    def holds(self, number: int) -> bool:
        """Return whether the term *number* is still ours."""
        # The time is read first: if the next term begins in between, the numbers differ.
        return self._monotonic() < self._until and number == self._number

    def begin(self, until: float) -> None:
        """Begin the next term; it expires at *until*."""
        self._until = _OVER
        self._number += 1
        self._until = until

    def extend(self, until: float) -> None:
        """Extend the term to *until*, unless it has expired."""
        if self.current():
            self._until = until

    def end(self) -> None:
        """End the term now."""
        self._until = _OVER


@dataclass(frozen=True, slots=True)
class FencingToken:
    """The term in which a write was ordered; in a later term it must not be sent."""

    fencing: Fencing
    term: int

    def check(self) -> None:
        """Raise `NotLeader` unless that term is still ours."""
        if not self.fencing.holds(self.term):
            raise NotLeader("not sent, because the term of the order has ended")

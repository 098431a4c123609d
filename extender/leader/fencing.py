"""A term: the time in which this replica may write to the cluster. It expires by itself.

Each check compares the term with a monotonic clock, which also runs while the process is stopped.
So a process that was frozen finds its term expired before it sends anything.
"""

from __future__ import annotations

from collections.abc import Callable

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


class FencingToken:
    """The `Fencing` of work that belongs to one term: the next term does not allow it."""

    def __init__(self, fencing: Fencing, number: int) -> None:
        self._fencing = fencing
        self._number = number

    def current(self) -> int:
        """Return the number of that term while it is ours; then 0, also in a later term."""
        return self._number if self._fencing.holds(self._number) else 0

    def holds(self, number: int) -> bool:
        """Return whether *number* is that term, and still ours."""
        return number == self._number and self._fencing.holds(number)

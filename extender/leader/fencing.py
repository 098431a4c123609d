"""A term: the time in which we may act. It ends by itself, whether or not anybody looks.

It is judged by a clock that never steps and that runs on while we are stopped, each time anew. So
a process that was frozen finds its term over before it sends anything.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.ports import Fencing

_OVER = float("-inf")


class Term:
    """The `Mandate` of those who share a cluster; asked from any thread, begun by the loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._number = 0
        self._until = _OVER

    def current(self) -> int:
        """Number the term that is ours now; 0 while none is."""
        # In this order: should the next one begin in between, the number of the old one is void.
        number = self._number
        return number if self._monotonic() < self._until else 0

    def holds(self, number: int) -> bool:
        """Ask whether the term *number* is still ours."""
        # In this order: should the next one begin in between, it is that one's time, not ours.
        return self._monotonic() < self._until and number == self._number

    def begin(self, until: float) -> None:
        """Begin the next one."""
        self._until = _OVER
        self._number += 1
        self._until = until

    def extend(self, until: float) -> None:
        """Let it last until *until*, if it lasts still."""
        if self.current():
            self._until = until

    def end(self) -> None:
        """End it now."""
        self._until = _OVER


class FencingToken:
    """The `Mandate` of what belongs to one term: in the next it may not go on."""

    def __init__(self, mandate: Fencing, number: int) -> None:
        self._mandate = mandate
        self._number = number

    def current(self) -> int:
        """Number that term while it is ours; then 0, whichever is ours by then."""
        return self._number if self._mandate.holds(self._number) else 0

    def holds(self, number: int) -> bool:
        """Ask whether *number* is that term, and still ours."""
        return number == self._number and self._mandate.holds(number)

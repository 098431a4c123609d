"""When does time matter next, and to which gang?"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from extender.model.gang import GangKey


class Alarms:
    """Moments to look after a gang; one that no longer matters rings for nothing."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, GangKey]] = []

    def set(self, when: float, gang: GangKey) -> None:
        """Look after *gang* at *when*."""
        heappush(self._heap, (when, gang))

    @property
    def due(self) -> float | None:
        """When to ring next; may be earlier than needed, never later."""
        return self._heap[0][0] if self._heap else None

    def ring(self, now: float) -> Iterator[GangKey]:
        """Give the gangs whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[1]

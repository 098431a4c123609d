"""What happened to a gang at the barrier, in order; bounded, for people and for bug reports."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from extender.model.gang import GangKey
from extender.model.pod import PodUid

_LINES = 64
_GANGS = 1_000


class Line(NamedTuple):
    """One thing that happened; *at* is the barrier's monotonic time."""

    at: float
    what: str
    uid: PodUid | None = None


class Stories:
    """The last lines of the gangs that were here last."""

    def __init__(self) -> None:
        self._lines: OrderedDict[GangKey, deque[Line]] = OrderedDict()

    def note(self, gang: GangKey | None, at: float, what: str, uid: PodUid | None = None) -> None:
        """Add a line; lone pods have no story."""
        if gang is None:
            return
        lines = self._lines.get(gang)
        if lines is None:
            lines = self._lines[gang] = deque(maxlen=_LINES)
            if len(self._lines) > _GANGS:
                self._lines.popitem(last=False)
        lines.append(Line(at, what, uid))

    def of(self, gang: GangKey) -> tuple[Line, ...]:
        """Tell the story of a gang, oldest line first."""
        return tuple(self._lines.get(gang, ()))

"""Calls that wait a moment before they are judged, because two counts of a node's room differ.

kube-scheduler sends a pod where we count no room, and a moment ago we bound somebody there. Either
our watch is behind its own, and will show that somebody left; then the call goes on. Or it does not
count whom we bound, because our answer was lost on the way and its watch is behind; then the book
refuses. Where nothing was bound lately its count is the better one, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from extender.holds.looptimer import LoopTimer
from extender.holds.machine.messages import Arrived, CallId

#: How often it is looked whether the counts agree by now, and how long they may differ.
_LOOK_S = 0.03
_LONGEST_S = 0.25


class _Caller(NamedTuple):
    call: Arrived
    until: float


class Doorstep:
    """Belongs to the event loop."""

    def __init__(
        self,
        is_crowded: Callable[[Arrived], bool],
        let_in: Callable[[Arrived], None],
        timer: LoopTimer,
        now: Callable[[], float],
    ) -> None:
        self._is_crowded = is_crowded
        self._let_in = let_in
        self._timer = timer
        self._now = now
        self._callers: dict[CallId, _Caller] = {}
        #: There is one look to come at a time, also when everybody has left meanwhile.
        self._will_look = False

    def come(self, call: Arrived) -> None:
        """Let a call in, or let it wait."""
        if not self._is_crowded(call):
            self._let_in(call)
            return
        self._callers[call.id] = _Caller(call, self._now() + _LONGEST_S)
        self._look_later()

    def leave(self, call: CallId) -> bool:
        """Ask whether a call waits here, which it does no longer."""
        return self._callers.pop(call, None) is not None

    def clear(self) -> None:
        """Let everybody in: it is said to them what is said to all."""
        for each in tuple(self._callers.values()):
            if self.leave(each.call.id):
                self._let_in(each.call)

    def _look_later(self) -> None:
        if self._callers and not self._will_look:
            self._will_look = True
            self._timer.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._will_look, now = False, self._now()
        for each in tuple(self._callers.values()):
            is_over = now >= each.until or not self._is_crowded(each.call)
            if is_over and self.leave(each.call.id):  # others may have let it in meanwhile
                self._let_in(each.call)
        self._look_later()

"""Who leads, and telling the house when that changes: always in the event loop, one by one.

The thread that keeps the lease reports here. It may end a term at once; only the loop begins one,
and not before everybody was told that the former is over. So whatever was promised, held or
ordered in one term is gone when the next begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from extender.leadership.term import Term
from extender.logs import event
from extender.metrics import Metrics

log = logging.getLogger(__name__)

#: How often the loop looks whether the term is over though nobody said so.
LOOK_S = 0.1


class CallsSoon(Protocol):
    """The event loop, for those who live in other threads."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back once, as soon as the loop has time."""


class Succession:
    """Takes what the keeper of the lease saw, and tells of beginnings and ends in turn."""

    def __init__(self, term: Term, loop: CallsSoon, metrics: Metrics) -> None:
        self._term = term
        self._loop = loop
        self._metrics = metrics
        self._listeners: list[tuple[Callable[[], None], Callable[[], None]]] = []
        #: The term of which everybody was told that it began; 0 once they know of its end.
        self._told = 0
        #: Raised when the keeper says that the lease is lost: what it said before is void.
        self._era = 0
        self._is_over = False
        #: Who held the lease when it was seen last, and by what name it was ours.
        self.leader = self._ours = ""
        #: Why the lease could not be read or written, since it last could.
        self.trouble = ""
        metrics.leader.set_function(lambda: float(bool(term.current())))

    def on_change(self, *, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Call *begun* when a term of ours has begun, and *ended* when it is over."""
        self._listeners.append((begun, ended))

    # Told by the keeper of the lease, in its thread

    def renewed(self, until: float, leader: str) -> None:
        """Hear that the lease is ours; we may act until *until*."""
        self.leader = self._ours = leader
        self._loop.call_soon(partial(self._renew, self._era, until))

    def lost(self, leader: str = "") -> None:
        """Hear that the lease is not ours."""
        self.leader = leader
        self._era += 1
        self._term.end()
        self._loop.call_soon(self.look)

    def resign(self) -> None:
        """End the term, and begin none any more; from any thread."""
        self._is_over = True
        self.lost()

    # In the event loop

    def look(self) -> bool:
        """Tell everybody if the term is over; there is never more to do at once."""
        if self._told and not self._term.holds(self._told):
            self._told = 0
            if self.leader == self._ours:
                self.leader = ""  # it ran out, and who leads now nobody has told us
            self._metrics.leader_changes.labels("lost").inc()
            event(log, logging.WARNING, "leadership lost", leader=self.leader)
            for _, ended in self._listeners:
                ended()
        return False

    def _renew(self, era: int, until: float) -> None:
        if era != self._era or self._is_over:
            return
        self.look()
        is_next = not self._told
        (self._term.begin if is_next else self._term.extend)(until)
        if era != self._era:
            self._term.end()  # it was lost while we were at it, and that is the last word
        if not is_next:
            return
        self._told = self._term.current()
        if not self._told:
            return  # it took too long to hear of it
        self._metrics.leader_changes.labels("got").inc()
        event(log, logging.INFO, "leadership got", leader=self.leader)
        for begun, _ in self._listeners:
            begun()

    # Asked by anybody

    def readiness(self) -> list[str]:
        """Say who leads while it is not us."""
        if self._told and self._term.holds(self._told):
            return []
        why = f" ({self.trouble})" if self.trouble else ""
        return [f"standby: {self.leader or 'nobody we know of'} leads{why}"]

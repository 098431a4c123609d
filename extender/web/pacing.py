"""When does the answer to a bind leave? When kube-scheduler can use its connection again.

Go keeps two idle connections to us and closes any more. A gang's binds are all answered in the
same moment, so all but two of their connections were thrown away, and the next gang had to dial
anew for every member: twice, for filter asks from kube-scheduler's serial loop and finds none
left. So a good answer that would make a third idle connection waits until the next bind takes
one, or a moment at most. Its pod is bound already; only kube-scheduler's note of it is later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

#: What Go's client keeps for one host.
_IDLE = 2
#: Longer than the members of a small gang are apart, shorter than anybody notices.
_LONGEST_S = 0.25


class Answerer(Protocol):
    """A connection with an answer to give."""

    def answer_now(self) -> None:
        """Give it."""


class AnswerPacing:
    """Says when each answer leaves; everything happens on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: With the moment at which each goes in any case.
        self._waiting: deque[tuple[float, Answerer]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        #: Open connections on which nothing is asked.
        self.idle: set[Answerer] = set()

    def settled(self, answerer: Answerer) -> None:
        """Let *answerer* answer now or soon."""
        if len(self.idle) < _IDLE:
            answerer.answer_now()
            return
        self._waiting.append((self._loop.time() + _LONGEST_S, answerer))
        if self._timer is None:
            self._timer = self._loop.call_later(_LONGEST_S, self._overdue)

    def bind_came(self) -> None:
        """Hear that a bind has come in: one answer may leave for it."""
        if self._waiting and len(self.idle) < _IDLE:
            self._waiting.popleft()[1].answer_now()

    def close(self) -> None:
        """Let every answer leave."""
        while self._waiting:
            self._waiting.popleft()[1].answer_now()

    def _overdue(self) -> None:
        self._timer = None
        while self._waiting and self._waiting[0][0] <= self._loop.time():
            self._waiting.popleft()[1].answer_now()
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._overdue)

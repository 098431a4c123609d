"""When does an answer leave? At once, but for two kinds.

A bind's: when kube-scheduler can use its connection again. Go keeps two idle connections to us and
closes any more. A gang's binds are all answered in the same moment, so all but two of their
connections were thrown away, and the next gang had to dial anew for every member: twice, for filter
asks from kube-scheduler's serial loop and finds none left. So a good answer that would make a third
idle connection waits until the next bind takes one, or a moment at most. Its pod is bound already;
only kube-scheduler's note of it is later.

A refusal's: after a breath, if kube-scheduler tries that pod over and over. It wakes whom an
extender has refused at every event of the cluster and, from 1.33 on, does not wait for the end of
the pod's pause while it has nobody else to try: eighty waiting pods were tried 470 times a second,
for nothing, which took half a core from whoever arrived. Whoever comes within that breath waits
for its rest; with more to do kube-scheduler keeps to the pauses, and nobody is put off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple, Protocol

from cachetools import LRUCache

from extender.model.pod import PodUid

#: What Go's client keeps for one host.
_IDLE = 2
#: Longer than the members of a small gang are apart, shorter than anybody notices.
_LONGEST_S = 0.25
#: kube-scheduler's pauses begin with 1 s, rounded down, and double: of two in a row that are
#: shorter than that, one was cut short.
_SOON_S = 0.9
#: As long as four of its attempts take, and nothing to whoever waits for a gang.
_BREATH_S = 0.005
#: More pods than it can try in so short a time.
_REMEMBERED = 5_000


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


class _Tried(NamedTuple):
    """A refusal: when, and whether it came soon after the one before."""

    at: float
    soon: bool


_NEVER = _Tried(float("-inf"), soon=False)


class Retries:
    """Says how long a refusal takes; everything happens on the loop."""

    def __init__(self) -> None:
        self._last: LRUCache[PodUid, _Tried] = LRUCache(_REMEMBERED)

    def breath_s(self, uid: PodUid, now: float) -> float:
        """Give the time after which kube-scheduler hears that *uid* is refused, mostly none."""
        last = self._last.get(uid, _NEVER)
        is_soon = now - last.at < _SOON_S
        self._last[uid] = _Tried(now, is_soon)
        return _BREATH_S if is_soon and last.soon else 0.0

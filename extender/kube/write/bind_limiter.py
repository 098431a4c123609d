"""The line before the API server: few bindings are under way at a time, gang after gang.

If all were sent at once, a slow API server would take some of every gang, and all of them would be
bound in part for as long as the whole crowd takes. So a gang comes after the one before it, and
only so many bindings are under way as keep the API server busy: fewer while its answers take long,
unless they take as long when few are under way. Then it is far away rather than busy, and who would
wait for it one after the other would wait for nothing.

Whoever comes too late in the line is not sent at all, the whole gang: at the head of the line we
ask whether the time that is left is enough for all of it at the pace of the moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Each = TypeVar("Each")
#: How many bindings are under way at most: enough for the fastest API server that we have met.
MAX_LIMIT = 64
#: One for each connection: fewer would leave connections idle.
MIN_LIMIT = 16
#: An answer that took longer says that too much is under way; a shorter one than that, too little.
SLOW_S = 1.0
QUICK_S = 0.5
_STILL = float("inf")
#: By how much more than with few under way an answer may take before too much is.
_SLACK = 1.5
#: An older answer says nothing of the pace of the moment.
FRESH_S = 5.0
#: What an API server is believed to take until it has shown otherwise.
USUAL_PER_S = 250.0


@dataclass(slots=True)
class BindBatch(Generic[Each]):
    """Those who stand in line together."""

    waiting: deque[Each]
    #: When whoever waits for their outcomes gives up.
    until: float
    #: Told when they are too many for the time that is left; nothing of them was sent.
    too_late: Callable[[], None]
    begun: bool = field(default=False, init=False)


class BindLimiter(Generic[Each]):
    """Sends whoever is next, as long as there is a place under way; belongs to the event loop."""

    def __init__(self, send: Callable[[list[Each]], None], now: Callable[[], float]) -> None:
        self._send = send
        self._now = now
        self._again: deque[Each] = deque()
        self._parties: deque[BindBatch[Each]] = deque()
        self._width = MAX_LIMIT
        self._under_way = 0
        self._narrowed_at = float("-inf")
        #: From when to when few were under way the last time, and how long an answer took then.
        self._calm_from, self._calm_until = float("-inf"), _STILL
        self._unhurried_s = 0.0
        self._took_s = 0.0
        self._answered_at = float("-inf")

    @property
    def limit(self) -> int:
        """How many may be under way just now."""
        return self._width

    @property
    def in_flight(self) -> int:
        """Count those who have a place."""
        return self._under_way

    def join(self, party: BindBatch[Each]) -> None:
        """Stand at the end of the line."""
        self._parties.append(party)
        self.start_next()

    def first(self, each: Each) -> None:
        """Stand at its head: its party is under way already, and waits for it."""
        self._again.append(each)
        self.start_next()

    def release(self) -> None:
        """Hear that one of those under way is so no more; somebody has to `move_up` then."""
        self._under_way -= 1
        self._note_calm()

    def answered(self, sent_at: float) -> None:
        """Hear that the API server answered one that was sent then."""
        now = self._now()
        took_s, self._answered_at = now - sent_at, now
        self._took_s += (took_s - self._took_s) / 8
        if self._calm_from <= sent_at < self._calm_until or took_s < self._unhurried_s:
            self._unhurried_s = took_s
        usual_s, is_full = _SLACK * self._unhurried_s, self._under_way >= self._width
        if took_s <= QUICK_S or (took_s <= usual_s and is_full):
            self._width = min(MAX_LIMIT, self._width + 1)
        elif took_s > max(SLOW_S, usual_s) and sent_at >= self._narrowed_at:
            self._width, self._narrowed_at = max(MIN_LIMIT, self._width // 2), now

    def start_next(self) -> None:
        """Send as many as there are places for."""
        ready: list[Each] = []
        while (self._again or self._parties) and self._under_way < self._width:
            if self._again:
                ready.append(self._again.popleft())
            elif (party := self._at_the_head()) is not None:
                ready.append(party.waiting.popleft())
            else:
                continue
            self._under_way += 1
        if ready:
            self._note_calm()
            self._send(ready)

    def _note_calm(self) -> None:
        is_calm = self._under_way <= MIN_LIMIT
        if is_calm and self._calm_until < _STILL:
            self._calm_from, self._calm_until = self._now(), _STILL
        elif not is_calm and self._calm_until == _STILL:
            self._calm_until = self._now()

    def _at_the_head(self) -> BindBatch[Each] | None:
        """Give the party whose turn it is; None when it left the line instead."""
        party = self._parties[0]
        if not party.waiting:
            self._parties.popleft()
            return None
        if not party.begun and self._is_too_late(party):
            self._parties.popleft()
            party.too_late()
            return None
        party.begun = True
        return party

    def _is_too_late(self, party: BindBatch[Each]) -> bool:
        """Ask whether a party would be torn by the end of its time; one alone cannot be."""
        left_s, size = party.until - self._now(), len(party.waiting)
        return size > 1 and left_s < self._needs_s(size)

    def _needs_s(self, size: int) -> float:
        usual_s = size / USUAL_PER_S
        if self._now() - self._answered_at > FRESH_S:
            return usual_s
        return max(usual_s, self._took_s * (1 + size / self._width))

"""The limit of bindings in flight: gang after gang, and only as many as the API server handles.

If all bindings were sent at once, a slow API server would bind some members of every gang. All
gangs would be bound partly until the last binding is done. So gangs are sent one after the other,
and the bindings in flight are limited. The limit falls while responses are slow, unless they are as
slow with few bindings in flight. Then the API server is distant, not busy, and a low limit would
only add delay.

A gang that is too late is not sent at all: before its first binding we estimate whether the time
before its deadline is enough for all of them at the current rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Each = TypeVar("Each")
#: The most bindings in flight: enough for the fastest API server that we have measured.
MAX_LIMIT = 64
#: One for each connection: fewer would leave connections idle.
MIN_LIMIT = 16
#: A response slower than the first lowers the limit; one faster than the second raises it.
SLOW_S = 1.0
QUICK_S = 0.5
_OPEN = float("inf")
#: The tolerated ratio of a response time to that with few bindings in flight.
_SLACK = 1.5
#: An older response says nothing about the current rate.
FRESH_S = 5.0
#: The rate that we assume until responses show another.
USUAL_PER_S = 250.0


@dataclass(slots=True)
class BindBatch(Generic[Each]):
    """The bindings of one gang, in order."""

    waiting: deque[Each]
    #: Their deadline.
    until: float
    #: Called when they are too many for the time before the deadline; none of them was sent.
    too_late: Callable[[], None]
    begun: bool = field(default=False, init=False)


class BindLimiter(Generic[Each]):
    """Sends the next binding while fewer than the limit are in flight; runs in the event loop."""

    def __init__(self, send: Callable[[list[Each]], None], now: Callable[[], float]) -> None:
        self._send = send
        self._now = now
        self._retries: deque[Each] = deque()
        self._batches: deque[BindBatch[Each]] = deque()
        self._limit = MAX_LIMIT
        self._in_flight = 0
        self._lowered_at = float("-inf")
        #: The last period with few bindings in flight, and the response time in it.
        self._low_from, self._low_until = float("-inf"), _OPEN
        self._baseline_s = 0.0
        self._took_s = 0.0
        self._answered_at = float("-inf")

    @property
    def limit(self) -> int:
        """The most bindings that may be in flight at present."""
        return self._limit

    @property
    def in_flight(self) -> int:
        """The number of bindings in flight."""
        return self._in_flight

    def add(self, batch: BindBatch[Each]) -> None:
        """Add a batch at the end of the queue."""
        self._batches.append(batch)
        self.start_next()

    def add_first(self, each: Each) -> None:
        """Add a binding ahead of all batches: a retry, or one that no gang waits for."""
        self._retries.append(each)
        self.start_next()

    def release(self) -> None:
        """Release the slot of a binding in flight; the caller calls `start_next` after it."""
        self._in_flight -= 1
        self._note_load()

    def answered(self, sent_at: float) -> None:
        """Adjust the limit to the response time of a binding that was sent at *sent_at*."""
        now = self._now()
        took_s, self._answered_at = now - sent_at, now
        self._took_s += (took_s - self._took_s) / 8
        if self._low_from <= sent_at < self._low_until or took_s < self._baseline_s:
            self._baseline_s = took_s
        usual_s, is_full = _SLACK * self._baseline_s, self._in_flight >= self._limit
        if took_s <= QUICK_S or (took_s <= usual_s and is_full):
            self._limit = min(MAX_LIMIT, self._limit + 1)
        elif took_s > max(SLOW_S, usual_s) and sent_at >= self._lowered_at:
            self._limit, self._lowered_at = max(MIN_LIMIT, self._limit // 2), now

    def start_next(self) -> None:
        """Send as many bindings as the limit allows."""
        ready: list[Each] = []
        while (self._retries or self._batches) and self._in_flight < self._limit:
            if self._retries:
                ready.append(self._retries.popleft())
            elif (batch := self._next_batch()) is not None:
                ready.append(batch.waiting.popleft())
            else:
                continue
            self._in_flight += 1
        if ready:
            self._note_load()
            self._send(ready)

    def _note_load(self) -> None:
        is_low = self._in_flight <= MIN_LIMIT
        if is_low and self._low_until < _OPEN:
            self._low_from, self._low_until = self._now(), _OPEN
        elif not is_low and self._low_until == _OPEN:
            self._low_until = self._now()

    def _next_batch(self) -> BindBatch[Each] | None:
        """Return the first batch; None if it was empty or too late, and was removed."""
        batch = self._batches[0]
        if not batch.waiting:
            self._batches.popleft()
            return None
        if not batch.begun and self._is_too_late(batch):
            self._batches.popleft()
            batch.too_late()
            return None
        batch.begun = True
        return batch

    def _is_too_late(self, batch: BindBatch[Each]) -> bool:
        """Return whether a batch would be bound partly at its deadline; a single one cannot be."""
        left_s, size = batch.until - self._now(), len(batch.waiting)
        return size > 1 and left_s < self._estimate_s(size)

    def _estimate_s(self, size: int) -> float:
        usual_s = size / USUAL_PER_S
        if self._now() - self._answered_at > FRESH_S:
            return usual_s
        return max(usual_s, self._took_s * (1 + size / self._limit))

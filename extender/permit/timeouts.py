"""How long: the spans of the barrier, what experience makes of them, pauses and alarms.

kube-scheduler gives a bind call one timeout for everything. It is split into holding,
verifying, committing and a margin; the first call of a gang starts the clock for all.

Its httpTimeout is not on the wire. But it closes the connection exactly then, so calls that die
at the same age again and again betray it. A restart closes everything at once, at ages that
mean nothing: closes of the same moment are therefore one observation, and only three of them
that agree are believed. What was learnt is forgotten after a while, so that a mended
configuration shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from cachetools import LRUCache

from extender.durations import Backoff
from extender.model.gang import GangKey
from extender.settings import Settings

_AGREE = 3
_SPREAD_S = 0.25
_SAME_MOMENT_S = 1.0
_BELIEVED_S = 600.0
#: Nobody configures less; whoever hangs up sooner is not kube-scheduler running out of time.
_LEAST_S = 1.0
_JITTER = 0.25
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Spans in seconds; together they make up httpTimeout of kube-scheduler's bind entry."""

    hold_s: float = 30.0
    verify_s: float = 2.0
    commit_s: float = 10.0
    margin_s: float = 3.0
    #: How fast a slow API server takes our bindings; a gang that is larger needs more time.
    binds_per_s: float = 250.0
    #: How long a gang may look hopeless before it is sent back.
    grace_s: float = 2.0
    #: Pause before the PodGroup is read again after a failed read.
    reread_s: float = 0.5
    #: How often a gang that was bound only in part is looked at.
    look_s: float = 2.0
    #: How long a gang that was bound only in part is completed without holding its members.
    partial_s: float = 600.0
    #: After so long without the rest, what was bound is taken back instead; None: never.
    evict_partial_s: float | None = None
    max_waiting_binds: int = 10_000
    backoff_s: float = 10.0
    max_backoff_s: float = 120.0

    @classmethod
    def of(cls, settings: Settings) -> Timeouts:
        """Split the time kube-scheduler gives a bind."""
        return cls.within(
            settings.hold_s,
            settings.bind_timeout_s,
            max_waiting_binds=settings.max_holds,
            evict_partial_s=None if settings.dry_run else settings.take_back_s or None,
        )

    @classmethod
    def within(
        cls,
        hold_s: float,
        bind_timeout_s: float,
        max_waiting_binds: int = 10_000,
        evict_partial_s: float | None = None,
    ) -> Timeouts:
        """Split what *bind_timeout_s* leaves after *hold_s*: 15 s give 2 + 10 + 3."""
        rest = bind_timeout_s - hold_s
        return cls(
            hold_s=hold_s,
            verify_s=rest * 2 / 15,
            commit_s=rest * 10 / 15,
            margin_s=rest * 3 / 15,
            max_waiting_binds=max_waiting_binds,
            evict_partial_s=evict_partial_s,
        )

    @property
    def bind_timeout_s(self) -> float:
        """The httpTimeout these limits are made for."""
        return self.hold_s + self.verify_s + self.commit_s + self.margin_s

    @property
    def answer_s(self) -> float:
        """How long after its arrival a call is answered at the latest."""
        return self.bind_timeout_s - self.margin_s

    def commit_needs_s(self, binds: int) -> float:
        """Return the time that binding *binds* pods may take; there is commit_s of it, or more."""
        return binds / self.binds_per_s

    def for_timeout(self, bind_timeout_s: float) -> Timeouts:
        """Shrink every span in proportion, for a caller that gives up after *bind_timeout_s*."""
        share = min(1.0, bind_timeout_s / self.bind_timeout_s)
        return replace(
            self,
            hold_s=self.hold_s * share,
            verify_s=self.verify_s * share,
            commit_s=self.commit_s * share,
            margin_s=self.margin_s * share,
        )


class LearnedTimeout:
    """The limits in force: the configured ones, or shorter ones learnt from experience."""

    def __init__(self, configured: Timeouts) -> None:
        self._configured = configured
        self._limits = configured
        self._ages: deque[float] = deque(maxlen=_AGREE)
        self._last_close = float("-inf")
        #: The httpTimeout kube-scheduler seems to have, when it is shorter than configured.
        self.learnt_timeout_s: float | None = None
        self._learnt_at = 0.0

    def limits(self, now: float) -> Timeouts:
        """Return the limits to use at *now*."""
        if self.believed_until is not None and now >= self.believed_until:
            self.forget()
        return self._limits

    @property
    def believed_until(self) -> float | None:
        """When what was learnt is forgotten; None while nothing is."""
        return None if self.learnt_timeout_s is None else self._learnt_at + _BELIEVED_S

    def forget(self) -> None:
        """Believe what is configured again."""
        self.learnt_timeout_s, self._limits = None, self._configured
        self._ages.clear()

    def peer_closed(self, age_s: float, now: float) -> None:
        """Record that a call was given up by its caller *age_s* after it came."""
        same_moment = now - self._last_close < _SAME_MOMENT_S
        self._last_close = now
        if same_moment or age_s < _LEAST_S:
            return
        self._ages.append(age_s)
        if len(self._ages) == _AGREE and max(self._ages) - min(self._ages) <= _SPREAD_S:
            self._believe(min(self._ages), now)

    def _believe(self, timeout_s: float, now: float) -> None:
        if timeout_s >= self._configured.bind_timeout_s - _SPREAD_S:
            return
        self.learnt_timeout_s, self._learnt_at = timeout_s, now
        self._limits = self._configured.for_timeout(timeout_s)


@dataclass(slots=True)
class _Record:
    aborts: int = 0
    until: float = 0.0


class GangBackoff:
    """Aborts of gangs that have not started since; *chance* gives numbers from 0 to 1."""

    def __init__(self, limits: Timeouts, chance: Callable[[], float]) -> None:
        self._pause = Backoff(limits.backoff_s, limits.max_backoff_s)
        self._chance = chance
        self._records: LRUCache[GangKey, _Record] = LRUCache(_REMEMBERED)

    def aborted(self, gang: GangKey, now: float) -> float:
        """Count an abort and give the seconds the gang must wait."""
        record = self._records.setdefault(gang, _Record())
        # A gang that stayed away for long is a new attempt, not a stubborn one.
        if now - record.until > 2 * self._pause.longest_s:
            record.aborts = 0
        record.aborts += 1
        span = self._pause.delay_s(record.aborts) * (1 + _JITTER * self._chance())
        record.until = now + span
        return span

    def lasts(self, gang: GangKey, now: float) -> bool:
        """Return whether the gang must still wait."""
        record = self._records.get(gang)
        return record is not None and now < record.until

    def started(self, gang: GangKey) -> None:
        """Forget the aborts of a gang that has started, or is another one by now."""
        self._records.pop(gang, None)


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
        """Return the gangs whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[1]

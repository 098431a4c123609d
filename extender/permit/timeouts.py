"""Timeouts of waiting binds, configured or learnt, the backoff of gangs, and alarms.

kube-scheduler has one timeout for a bind call. It is split into the time to wait, to verify and to
commit, and a margin. The clock starts with the first call of a gang, for all its calls.

The request does not state the httpTimeout of kube-scheduler. But kube-scheduler closes the
connection exactly then, so calls that end at the same age again and again reveal it. A restart of
kube-scheduler closes all connections at once, at ages without a meaning. So closes at the same
moment are one observation, and only three equal ones are used. A learnt timeout expires after a
while, so that a corrected configuration takes effect.
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
_LEARNT_FOR_S = 600.0
#: No configuration has less; a caller that closes sooner did not run into its timeout.
_LEAST_S = 1.0
_JITTER = 0.25
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Durations in seconds; together they are the httpTimeout of kube-scheduler's bind entry."""

    hold_s: float = 30.0
    verify_s: float = 2.0
    commit_s: float = 10.0
    margin_s: float = 3.0
    #: How fast a slow API server accepts bindings; a larger gang needs more time.
    binds_per_s: float = 250.0
    #: How long a gang may lack members before it is refused.
    grace_s: float = 2.0
    #: How long to wait after a failed read of the PodGroup.
    reread_s: float = 0.5
    #: How often a partial gang is checked.
    check_s: float = 2.0
    #: How long a partial gang is completed with members that need not wait.
    partial_s: float = 600.0
    #: After so long without the rest, the bound members are evicted instead; None: never.
    evict_partial_s: float | None = None
    max_waiting_binds: int = 10_000
    backoff_s: float = 10.0
    max_backoff_s: float = 120.0

    @classmethod
    def of(cls, settings: Settings) -> Timeouts:
        """Split the bind timeout of the settings."""
        return cls.within(
            settings.hold_s,
            settings.bind_timeout_s,
            max_waiting_binds=settings.max_holds,
            evict_partial_s=None if settings.dry_run else settings.evict_partial_s or None,
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
        """Return the httpTimeout for which these durations are made."""
        return self.hold_s + self.verify_s + self.commit_s + self.margin_s

    @property
    def answer_s(self) -> float:
        """Return how long after its arrival a call is answered at the latest."""
        return self.bind_timeout_s - self.margin_s

    def commit_needs_s(self, binds: int) -> float:
        """Return how long binding *binds* pods may take; the commit has at least commit_s."""
        return binds / self.binds_per_s

    def for_timeout(self, bind_timeout_s: float) -> Timeouts:
        """Shrink every duration in proportion to a caller's timeout of *bind_timeout_s*."""
        ratio = min(1.0, bind_timeout_s / self.bind_timeout_s)
        return replace(
            self,
            hold_s=self.hold_s * ratio,
            verify_s=self.verify_s * ratio,
            commit_s=self.commit_s * ratio,
            margin_s=self.margin_s * ratio,
        )


class LearnedTimeout:
    """The timeouts in force: the configured ones, or shorter ones that were learnt."""

    def __init__(self, configured: Timeouts) -> None:
        self._configured = configured
        #: The timeouts in force.
        self.current = configured
        self._ages: deque[float] = deque(maxlen=_AGREE)
        self._last_close = float("-inf")
        #: The observed httpTimeout of kube-scheduler, if it is shorter than configured.
        self.learnt_timeout_s: float | None = None
        self._learnt_at = 0.0

    def expire(self, now: float) -> None:
        """Forget a learnt timeout that is too old; called before anything is decided."""
        if self.learnt_until is not None and now >= self.learnt_until:
            self.forget()

    @property
    def learnt_until(self) -> float | None:
        """Return when the learnt timeout expires; None without any."""
        return None if self.learnt_timeout_s is None else self._learnt_at + _LEARNT_FOR_S

    def forget(self) -> None:
        """Return to the configured timeouts."""
        self.learnt_timeout_s, self.current = None, self._configured
        self._ages.clear()

    def peer_closed(self, age_s: float, now: float) -> None:
        """Record that the caller closed a call *age_s* after it arrived."""
        same_moment = now - self._last_close < _SAME_MOMENT_S
        self._last_close = now
        if same_moment or age_s < _LEAST_S:
            return
        self._ages.append(age_s)
        if len(self._ages) == _AGREE and max(self._ages) - min(self._ages) <= _SPREAD_S:
            self._adopt(min(self._ages), now)

    def _adopt(self, timeout_s: float, now: float) -> None:
        if timeout_s >= self._configured.bind_timeout_s - _SPREAD_S:
            return
        self.learnt_timeout_s, self._learnt_at = timeout_s, now
        self.current = self._configured.for_timeout(timeout_s)


@dataclass(slots=True)
class _Record:
    aborts: int = 0
    until: float = 0.0


class GangBackoff:
    """Aborts of gangs that have not started since; *chance* returns numbers from 0 to 1."""

    def __init__(
        self, current: Timeouts, chance: Callable[[], float], remembered: int = _REMEMBERED
    ) -> None:
        self._backoff = Backoff(current.backoff_s, current.max_backoff_s)
        self._chance = chance
        self._records: LRUCache[GangKey, _Record] = LRUCache(remembered)

    def aborted(self, gang: GangKey, now: float) -> float:
        """Count an abort and return the seconds that the gang must back off."""
        record = self._records.setdefault(gang, _Record())
        # A gang that stayed away for long begins anew.
        if now - record.until > 2 * self._backoff.longest_s:
            record.aborts = 0
        record.aborts += 1
        span = self._backoff.delay_s(record.aborts) * (1 + _JITTER * self._chance())
        record.until = now + span
        return span

    def is_active(self, gang: GangKey, now: float) -> bool:
        """Return whether the gang still backs off."""
        record = self._records.get(gang)
        return record is not None and now < record.until

    def reset(self, gang: GangKey) -> None:
        """Forget the aborts of a gang that has started, or was replaced."""
        self._records.pop(gang, None)


class Alarms:
    """When to check each gang; an alarm of a gang that is gone has no effect."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, GangKey]] = []

    @property
    def gangs(self) -> list[GangKey]:
        """The gangs of all alarms; a gang may have several."""
        return [gang for _, gang in self._heap]

    def set(self, when: float, gang: GangKey) -> None:
        """Check *gang* at *when*."""
        heappush(self._heap, (when, gang))

    @property
    def due(self) -> float | None:
        """Return the next alarm; it may be earlier than needed, never later."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Iterator[GangKey]:
        """Yield the gangs whose alarm is due, and remove the alarms."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[1]

"""Eviction backoff: pods whose eviction was refused, and gangs that have only just started.

The backoff of a pod grows with every refusal, so the search for other victims ends, however many
such pods there are. Where one budget forbids an eviction, all pods of that budget are protected.
All that ends as soon as the budget allows more. The backoff of a gang that was evicted and started
again grows too: queues that compete for the same capacity exchange it ever more slowly, instead
of wasting work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from cachetools import FIFOCache

from extender.durations import Backoff
from extender.model.budgets import BudgetIndex, selects
from extender.model.gang import GangKey
from extender.model.pod import SCHEDULED_SET, Pod, PodUid
from extender.model.snapshot import DisruptionBudget, Snapshot

K = TypeVar("K")
#: A gang is never protected longer than this after its start.
LONGEST_S = 600.0
#: The evictions of a gang are forgotten after this.
MEMORY_S = 3600.0
#: The refusals of a pod are forgotten this long after its last backoff.
FORGET_S = 600.0
_MAX_GANGS = 10_000
_MAX_PODS = 100_000
_MAX_BUDGETS = 10_000


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    until: float
    times: int
    #: The budgets that cover the pod, as they were at the refusal.
    budgets: tuple[DisruptionBudget, ...] = ()


@dataclass(frozen=True, slots=True)
class _Forbidden:
    index: BudgetIndex
    #: Why, by the numbers of the index.
    whys: list[str]
    #: When the first of them is over.
    until: float

    @classmethod
    def of(cls, refusals: list[_Refusal]) -> _Forbidden:
        return cls(
            BudgetIndex([each.budgets[0] for each in refusals]),
            [each.why for each in refusals],
            min((each.until for each in refusals), default=inf),
        )


@dataclass(frozen=True, slots=True)
class _Past:
    times: int
    at: float


class EvictionBackoff:
    """Stores refused and past evictions; the monotonic time comes in as an argument."""

    def __init__(self, *, min_run_s: float = 0.0, rerun_s: float = 60.0) -> None:
        self._min_run_s = min_run_s
        self._rerun = Backoff(rerun_s, LONGEST_S)
        self._refused: FIFOCache[PodUid, _Refusal] = FIFOCache(_MAX_PODS)
        #: The same for all pods of a budget, by its name.
        self._forbidden: FIFOCache[str, _Refusal] = FIFOCache(_MAX_BUDGETS)
        #: The index of those budgets.
        self._index: _Forbidden | None = None
        #: Evicted gangs, the last at the end.
        self._past: FIFOCache[GangKey, _Past] = FIFOCache(_MAX_GANGS)

    def add(
        self,
        pod: Pod,
        why: str,
        delay: Backoff,
        now: float,
        budgets: Iterable[DisruptionBudget] = (),
    ) -> None:
        """Protect a pod for its *delay*, or until one of *budgets* allows more."""
        earlier = self._refused.pop(pod.uid, None)
        about = tuple(covering(pod, budgets))
        self._refused[pod.uid] = _next(earlier, why, delay, now, about)

    def forbid(self, budget: DisruptionBudget, why: str, delay: Backoff, now: float) -> None:
        """Protect all pods of *budget* for its *delay*, or until it allows more."""
        earlier = self._forbidden.pop(_name(budget), None)
        if earlier is not None and now < earlier.until:
            self._forbidden[_name(budget)] = earlier  # one of many evictions sent at once
            return
        self._index = None
        self._forbidden[_name(budget)] = _next(earlier, why, delay, now, (budget,))

    def protects(self, pod: Pod, now: float) -> bool:
        """Return whether a refused eviction protects *pod* at *now*."""
        refusal = self._refused.get(pod.uid)
        if refusal is not None and now < refusal.until:
            return True
        return bool(self._forbidden) and bool(self._forbidding(pod, now))

    def gang_evicted(self, key: GangKey, now: float) -> None:
        """Record that a gang lost members to another gang."""
        earlier = self._past.pop(key, None)
        self._past[key] = _Past(earlier.times + 1 if earlier else 1, now)

    def protection_s(self, key: GangKey) -> float:
        """Return how long a gang runs before it can be a victim."""
        past = self._past.get(key)
        if past is None:
            return self._min_run_s
        return max(self._min_run_s, self._rerun.delay_s(past.times))

    def protected(
        self, snapshot: Snapshot, running_since: Callable[[GangKey], float | None], now: float
    ) -> dict[PodUid, str]:
        """Return the pods that must not be evicted at *now*, each with the reason."""
        self._forget(now)
        _end_by_budgets(self._refused, snapshot, now)
        if _end_by_budgets(self._forbidden, snapshot, now):
            self._index = None
        protected = {uid: each.why for uid, each in self._refused.items() if now < each.until}
        protected = self._forbidden_pods(snapshot, now) | protected
        for key in snapshot.gangs if self._min_run_s > 0 else tuple(self._past):
            since = running_since(key)
            if since is not None and key in snapshot.gangs:
                protected.update(self._young(snapshot, key, since))
        return protected

    def _young(self, snapshot: Snapshot, key: GangKey, since: float) -> dict[PodUid, str]:
        allowed = self.protection_s(key)
        # A start in the future means that the wall clock was set back.
        if not 0 <= snapshot.now - since < allowed:
            return {}
        why = f"{key} may run {allowed:g} s undisturbed after its start"
        gang = snapshot.gangs[key]
        return {pod.uid: why for pod in gang.pods if pod.status in SCHEDULED_SET}

    def _forbidding(self, pod: Pod, now: float) -> str:
        """Return why the first budget that refused protects *pod*; empty when none does."""
        known = self._index
        if known is None or now >= known.until:
            active = [each for each in self._forbidden.values() if now < each.until]
            known = self._index = _Forbidden.of(active)
        number = next(iter(known.index.selecting(pod)), None)
        if number is None:
            return ""
        if known.index.is_too_many(number):
            return f"{known.index.title(number)} allows no disruptions"
        return known.whys[number]

    def _forbidden_pods(self, snapshot: Snapshot, now: float) -> dict[PodUid, str]:
        """Return the scheduled pods of budgets that refused, each with the reason."""
        namespaces = {
            each.budgets[0].namespace for each in self._forbidden.values() if now < each.until
        }
        return {
            pod.uid: why
            for gang in (snapshot.gangs.values() if namespaces else ())
            if gang.group.namespace in namespaces
            for pod in gang.pods
            if pod.status in SCHEDULED_SET and (why := self._forbidding(pod, now))
        }

    def _forget(self, now: float) -> None:
        _drop_old(self._refused, now)
        if _drop_old(self._forbidden, now):
            self._index = None
        while self._past and next(iter(self._past.values())).at < now - MEMORY_S:
            self._past.popitem()


def covering(pod: Pod, budgets: Iterable[DisruptionBudget]) -> Iterable[DisruptionBudget]:
    """Return those of *budgets* that select *pod*."""
    return (
        each
        for each in budgets
        if each.namespace == pod.namespace and selects(each.selector, pod.labels)
    )


def _next(
    earlier: _Refusal | None,
    why: str,
    delay: Backoff,
    now: float,
    budgets: tuple[DisruptionBudget, ...],
) -> _Refusal:
    times = earlier.times + 1 if earlier else 1
    return _Refusal(why, now + delay.delay_s(times), times, budgets)


def _end_by_budgets(refusals: MutableMapping[K, _Refusal], snapshot: Snapshot, now: float) -> bool:
    """End refusals by budgets that allow more now, or are gone; return whether any ended."""
    active = [(key, each) for key, each in refusals.items() if each.budgets and now < each.until]
    if not active:
        return False
    allowed = {_name(budget): budget.allowed for budget in snapshot.budgets}
    over = [
        (key, each)
        for key, each in active
        if any(allowed.get(_name(b), b.allowed + 1) > b.allowed for b in each.budgets)
    ]
    for key, each in over:
        refusals[key] = replace(each, until=now)
    return bool(over)


def _drop_old(refusals: MutableMapping[K, _Refusal], now: float) -> bool:
    """Drop refusals that ended long ago; return whether any did."""
    old = [key for key, each in refusals.items() if each.until + FORGET_S <= now]
    for key in old:
        del refusals[key]
    return bool(old)


def _name(budget: DisruptionBudget) -> str:
    return f"{budget.namespace}/{budget.name}"

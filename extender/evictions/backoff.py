"""Who is left alone for a while, and why: whoever may not leave, and gangs that only just started.

A pod that may not leave is left alone longer each time it is found out: however many of its kind
there are, the search for others who may comes to an end. Where one budget forbids it, all pods that
budget covers are left alone with it, and all that is over as soon as the budget gives in. A gang
that was made to leave and has started again is left alone longer each time too: whatever makes
queues take turns at the same room, they do so ever more slowly, instead of wasting work.
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
#: What happened to a gang this long ago is forgotten.
MEMORY_S = 3600.0
#: So long after a pod was left alone for the last time it is forgotten that it ever was.
FORGET_S = 600.0
_GANGS = 10_000
_PODS = 100_000
_BUDGETS = 10_000


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    until: float
    times: int
    #: The budgets that cover the pod, as they were.
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
    """Remembers who may not leave and who had to; told the monotonic time, never asks for it."""

    def __init__(self, *, min_run_s: float = 0.0, rerun_s: float = 60.0) -> None:
        self._min_run_s = min_run_s
        self._rerun = Backoff(rerun_s, LONGEST_S)
        self._refused: FIFOCache[PodUid, _Refusal] = FIFOCache(_PODS)
        #: The same for everybody a budget covers, by its name.
        self._forbidden: FIFOCache[str, _Refusal] = FIFOCache(_BUDGETS)
        #: The budgets of those by what they select.
        self._index: _Forbidden | None = None
        #: Those made to leave last at the end.
        self._past: FIFOCache[GangKey, _Past] = FIFOCache(_GANGS)

    def add(
        self,
        pod: Pod,
        why: str,
        pause: Backoff,
        now: float,
        budgets: Iterable[DisruptionBudget] = (),
    ) -> None:
        """Leave a pod alone for the *pause* due to it, or until one of *budgets* gives in."""
        earlier = self._refused.pop(pod.uid, None)
        about = tuple(covering(pod, budgets))
        self._refused[pod.uid] = _next(earlier, why, pause, now, about)

    def forbid(self, budget: DisruptionBudget, why: str, pause: Backoff, now: float) -> None:
        """Leave all that *budget* covers alone, for the *pause* due to it or until it gives in."""
        earlier = self._forbidden.pop(_name(budget), None)
        if earlier is not None and now < earlier.until:
            self._forbidden[_name(budget)] = earlier  # one of many that were asked at once
            return
        self._index = None
        self._forbidden[_name(budget)] = _next(earlier, why, pause, now, (budget,))

    def protects(self, pod: Pod, now: float) -> bool:
        """Ask whether a pod is left alone at *now* because it may not leave."""
        refusal = self._refused.get(pod.uid)
        if refusal is not None and now < refusal.until:
            return True
        return bool(self._forbidden) and bool(self._forbidding(pod, now))

    def made_to_leave(self, key: GangKey, now: float) -> None:
        """Remember that a gang lost members to somebody else."""
        earlier = self._past.pop(key, None)
        self._past[key] = _Past(earlier.times + 1 if earlier else 1, now)

    def undisturbed_s(self, key: GangKey) -> float:
        """Tell how long a gang may run before it can be a victim."""
        past = self._past.get(key)
        if past is None:
            return self._min_run_s
        return max(self._min_run_s, self._rerun.delay_s(past.times))

    def protected(
        self, snapshot: Snapshot, running_since: Callable[[GangKey], float | None], now: float
    ) -> dict[PodUid, str]:
        """Name the pods to leave alone at *now*, each with the reason."""
        self._forget(now)
        _look_at_budgets(self._refused, snapshot, now)
        if _look_at_budgets(self._forbidden, snapshot, now):
            self._index = None
        protected = {uid: each.why for uid, each in self._refused.items() if now < each.until}
        protected = self._forbidden_ones(snapshot, now) | protected
        for key in snapshot.gangs if self._min_run_s > 0 else tuple(self._past):
            since = running_since(key)
            if since is not None and key in snapshot.gangs:
                protected.update(self._young(snapshot, key, since))
        return protected

    def _young(self, snapshot: Snapshot, key: GangKey, since: float) -> dict[PodUid, str]:
        allowed = self.undisturbed_s(key)
        # A start in the future means that the clock on the wall was set back.
        if not 0 <= snapshot.now - since < allowed:
            return {}
        why = f"{key} may run {allowed:g} s undisturbed after its start"
        gang = snapshot.gangs[key]
        return {pod.uid: why for pod in gang.pods if pod.status in SCHEDULED_SET}

    def _forbidding(self, pod: Pod, now: float) -> str:
        """Say why a budget, the first that was forbidden of those there are, keeps *pod*."""
        known = self._index
        if known is None or now >= known.until:
            active = [each for each in self._forbidden.values() if now < each.until]
            known = self._index = _Forbidden.of(active)
        number = next(iter(known.index.selecting(pod)), None)
        if number is None:
            return ""
        if known.index.is_crowd(number):
            return f"{known.index.title(number)} allows nobody to leave"
        return known.whys[number]

    def _forbidden_ones(self, snapshot: Snapshot, now: float) -> dict[PodUid, str]:
        """Name the pods on nodes that forbidden budgets cover, each with the reason."""
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
    """Give those of *budgets* that have a say about *pod*."""
    return (
        each
        for each in budgets
        if each.namespace == pod.namespace and selects(each.selector, pod.labels)
    )


def _next(
    earlier: _Refusal | None,
    why: str,
    pause: Backoff,
    now: float,
    budgets: tuple[DisruptionBudget, ...],
) -> _Refusal:
    times = earlier.times + 1 if earlier else 1
    return _Refusal(why, now + pause.delay_s(times), times, budgets)


def _look_at_budgets(refusals: MutableMapping[K, _Refusal], snapshot: Snapshot, now: float) -> bool:
    """End what rests on a budget that allows more by now, or is gone; ask whether any ended."""
    held = [(key, each) for key, each in refusals.items() if each.budgets and now < each.until]
    if not held:
        return False
    allowed = {_name(budget): budget.allowed for budget in snapshot.budgets}
    over = [
        (key, each)
        for key, each in held
        if any(allowed.get(_name(b), b.allowed + 1) > b.allowed for b in each.budgets)
    ]
    for key, each in over:
        refusals[key] = replace(each, until=now)
    return bool(over)


def _drop_old(refusals: MutableMapping[K, _Refusal], now: float) -> bool:
    """Forget what is long over; ask whether anything was."""
    old = [key for key, each in refusals.items() if each.until + FORGET_S <= now]
    for key in old:
        del refusals[key]
    return bool(old)


def _name(budget: DisruptionBudget) -> str:
    return f"{budget.namespace}/{budget.name}"

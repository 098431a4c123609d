"""Who is left alone for a while, and why: whoever may not leave, and gangs that only just started.

A pod that may not leave is left alone longer each time it is found out: however many of its kind
there are, the search for others who may comes to an end. When a budget that covers it gives in, it
is over at once. A gang that was made to leave and has started again is left alone longer each time
too: whatever makes queues take turns at the same room, they do so ever more slowly, instead of
wasting work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from cachetools import FIFOCache

from extender.model.gang import GangKey
from extender.model.pod import SEATED_SET, Pod, PodUid
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.plan.plugins.pdb import selects
from extender.timing.pause import Pause

#: A gang is never protected longer than this after its start.
LONGEST_S = 600.0
#: What happened to a gang this long ago is forgotten.
MEMORY_S = 3600.0
#: So long after a pod was left alone for the last time it is forgotten that it ever was.
FORGET_S = 600.0
_GANGS = 10_000
_PODS = 100_000


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    until: float
    times: int
    #: What the budgets that cover the pod allowed, by name.
    allowed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Past:
    times: int
    at: float


class Reprieves:
    """Remembers who may not leave and who had to; told the monotonic time, never asks for it."""

    def __init__(self, *, min_run_s: float = 0.0, rerun_s: float = 60.0) -> None:
        self._min_run_s = min_run_s
        self._rerun = Pause(rerun_s, LONGEST_S)
        self._refused: FIFOCache[PodUid, _Refusal] = FIFOCache(_PODS)
        #: Those made to leave last at the end.
        self._past: FIFOCache[GangKey, _Past] = FIFOCache(_GANGS)

    def grant(
        self,
        pod: Pod,
        why: str,
        pause: Pause,
        now: float,
        budgets: Iterable[DisruptionBudget] = (),
    ) -> None:
        """Leave a pod alone for the *pause* due to it, or until one of *budgets* gives in."""
        earlier = self._refused.pop(pod.uid, None)
        times = earlier.times + 1 if earlier else 1
        allowed = {_name(each): each.allowed for each in covering(pod, budgets)}
        self._refused[pod.uid] = _Refusal(why, now + pause.after(times), times, allowed)

    def spares(self, uid: PodUid, now: float) -> bool:
        """Ask whether a pod is left alone at *now* because it may not leave."""
        refusal = self._refused.get(uid)
        return refusal is not None and now < refusal.until

    def made_to_leave(self, key: GangKey, now: float) -> None:
        """Remember that a gang lost members to somebody else."""
        earlier = self._past.pop(key, None)
        self._past[key] = _Past(earlier.times + 1 if earlier else 1, now)

    def undisturbed_s(self, key: GangKey) -> float:
        """Tell how long a gang may run before it can be a victim."""
        past = self._past.get(key)
        if past is None:
            return self._min_run_s
        return max(self._min_run_s, self._rerun.after(past.times))

    def protected(
        self, snapshot: Snapshot, running_since: Callable[[GangKey], float | None], now: float
    ) -> dict[PodUid, str]:
        """Name the pods to leave alone at *now*, each with the reason."""
        self._forget(now)
        self._look_at_budgets(snapshot, now)
        protected = {uid: each.why for uid, each in self._refused.items() if now < each.until}
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
        return {pod.uid: why for pod in gang.pods if pod.status in SEATED_SET}

    def _look_at_budgets(self, snapshot: Snapshot, now: float) -> None:
        """End what rests on a budget that allows more by now, or is gone."""
        held = [(uid, each) for uid, each in self._refused.items() if each.allowed]
        if not held:
            return
        allowed = {_name(budget): budget.allowed for budget in snapshot.budgets}
        for uid, each in held:
            if any(allowed.get(name, before + 1) > before for name, before in each.allowed.items()):
                self._refused[uid] = replace(each, until=now, allowed={})

    def _forget(self, now: float) -> None:
        for uid in [uid for uid, each in self._refused.items() if each.until + FORGET_S <= now]:
            del self._refused[uid]
        while self._past and next(iter(self._past.values())).at < now - MEMORY_S:
            self._past.popitem()


def covering(pod: Pod, budgets: Iterable[DisruptionBudget]) -> Iterable[DisruptionBudget]:
    """Give those of *budgets* that have a say about *pod*."""
    return (
        each
        for each in budgets
        if each.namespace == pod.namespace and selects(each.selector, pod.labels)
    )


def _name(budget: DisruptionBudget) -> str:
    return f"{budget.namespace}/{budget.name}"

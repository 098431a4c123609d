"""Who is left alone for a while, and why: what a budget forbade, and gangs that only just started.

A gang that was made to leave and has started again is left alone longer each time: whatever
makes queues take turns at the same room, they do so ever more slowly, instead of wasting work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cachetools import FIFOCache

from extender.model.gang import GangKey
from extender.model.pod import SEATED_SET, PodUid
from extender.model.snapshot import Snapshot
from extender.timing.pause import Pause

#: A gang is never protected longer than this after its start.
LONGEST_S = 600.0
#: What happened to a gang this long ago is forgotten.
MEMORY_S = 3600.0
_GANGS = 10_000


@dataclass(frozen=True, slots=True)
class _Reprieve:
    why: str
    until: float


@dataclass(frozen=True, slots=True)
class _Past:
    times: int
    at: float


class Reprieves:
    """Remembers what was granted and who had to leave; told the time, never asks for it."""

    def __init__(self, *, min_run_s: float = 0.0, rerun_s: float = 60.0) -> None:
        self._min_run_s = min_run_s
        self._rerun = Pause(rerun_s, LONGEST_S)
        self._granted: dict[PodUid, _Reprieve] = {}
        #: Those made to leave last at the end.
        self._past: FIFOCache[GangKey, _Past] = FIFOCache(_GANGS)

    def grant(self, uid: PodUid, why: str, until: float) -> None:
        """Leave a pod alone until then."""
        self._granted[uid] = _Reprieve(why, until)

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
        self, snapshot: Snapshot, running_since: Callable[[GangKey], float | None]
    ) -> dict[PodUid, str]:
        """Name the pods to leave alone now, each with the reason."""
        self._forget(snapshot.now)
        protected = {uid: granted.why for uid, granted in self._granted.items()}
        for key in snapshot.gangs if self._min_run_s > 0 else tuple(self._past):
            since = running_since(key)
            if since is not None and key in snapshot.gangs:
                protected.update(self._young(snapshot, key, since))
        return protected

    def _young(self, snapshot: Snapshot, key: GangKey, since: float) -> dict[PodUid, str]:
        allowed = self.undisturbed_s(key)
        if snapshot.now - since >= allowed:
            return {}
        why = f"{key} may run {allowed:g} s undisturbed after its start"
        gang = snapshot.gangs[key]
        return {pod.uid: why for pod in gang.pods if pod.status in SEATED_SET}

    def _forget(self, now: float) -> None:
        for uid in [uid for uid, each in self._granted.items() if each.until <= now]:
            del self._granted[uid]
        while self._past and next(iter(self._past.values())).at < now - MEMORY_S:
            self._past.popitem()

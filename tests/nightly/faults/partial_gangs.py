"""The rules about partial gangs: one to minMember - 1 bound pods for longer than the limit.

A gang counts from its first bound pod until it has none. It needs the lowest minMember of that time
and shortly before, since a PodGroup may grow while bindings are sent; without a PodGroup there is
no gang. Members that ended or were deleted by others in that time count as bound; the gang is
listed as `apart` then. So do succeeded members while they exist, since the last members of a gang
may be created when the first have succeeded. Members that the scheduler evicted do not count.

Evictions from a whole gang have a stricter rule: only the minMember and the deletions of the last
seconds count. A gang that others made partial is not whole, and may lose more members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.nightly.faults import record as seen

from .breaches import Bounds, Breach
from .cluster_state import Pod, World
from .excluded_spans import Spans
from .record import Change, PodLeaving, Record

RULE = "gang in part"
BY_US = "gang torn by the scheduler"


@dataclass
class _Life:
    """A gang since its first bind."""

    began_at: float
    partial_since: float | None = None
    was_whole: bool = False
    #: Since when it is partial because the scheduler evicted a member of the whole gang.
    evicted_at: float | None = None


@dataclass
class Wholeness:
    """Checks every gang after each of its changes."""

    bounds: Bounds
    spans: Spans
    breaches: list[Breach] = field(default_factory=list)
    #: Gangs that are partial because others deleted members.
    apart: set[str] = field(default_factory=set)
    started: int = 0
    longest_s: float = 0.0

    def judge(self, record: Record) -> None:
        world, lives = World(), dict[str, _Life]()
        now = record.began_at
        for change in record.changes():
            world.take(change)
            now = max(now, change.at)
            for gang in _touched(change, world):
                self._check(gang, now, world, lives)
                if gang in lives and isinstance(change, PodLeaving):
                    self._check_eviction(gang, world.pods[change.uid], now, lives[gang], world)
        for gang, life in lives.items():
            self._close(gang, life, record.ended_at, world)

    def _check(self, gang: str, now: float, world: World, lives: dict[str, _Life]) -> None:
        members = world.gangs[gang]
        standing = sum(pod.stands for pod in members)
        life = lives.get(gang)
        if not standing:
            if life is not None:
                self._close(gang, life, now, world)
                del lives[gang]
            return
        if life is None:
            life = lives[gang] = _Life(now)
        since = self._since(life)
        need = self._need(gang, since, world)
        left = sum(_has_left(pod, since) for pod in members)
        if standing < need <= standing + left:
            self.apart.add(gang)
        if standing + left >= need:
            self._close(gang, life, now, world)
            life.evicted_at = None
        elif life.partial_since is None:
            life.partial_since = now
        if standing >= need:
            self.started += not life.was_whole and need > 1
            life.was_whole = True

    def _check_eviction(
        self, gang: str, victim: Pod, now: float, life: _Life, world: World
    ) -> None:
        if life.evicted_at is not None or not (victim.by_scheduler and victim.has_room):
            return
        members, since = world.gangs[gang], self.spans.back_from(now, self.bounds.lag_s)
        words = world.groups[gang].since(since)
        lowest = min(group.minimum if group else 0 for group in words)
        highest = max(group.minimum if group else 0 for group in words)
        standing = sum(pod.stands for pod in members)
        was_whole = standing + 1 + sum(pod.is_done for pod in members) >= highest
        if was_whole and standing + sum(_has_left(pod, since) for pod in members) < lowest:
            life.evicted_at = now
            if life.partial_since is None:
                life.partial_since = now

    def _since(self, life: _Life) -> float:
        """Return the time since which minimums and deletions count."""
        at = life.began_at if life.evicted_at is None else life.evicted_at
        return self.spans.back_from(at, self.bounds.lag_s)

    def _need(self, gang: str, since: float, world: World) -> int:
        words = world.groups[gang].since(since)
        # Without a PodGroup at the beginning, its first version counts.
        known = words[1:] if words[0] is None and len(words) > 1 else words
        return min(group.minimum if group else 0 for group in known)

    def _close(self, gang: str, life: _Life, now: float, world: World) -> None:
        if life.partial_since is None:
            return
        lasted = self.spans.counted_s(life.partial_since, now)
        need = self._need(gang, self._since(life), world)
        if not life.was_whole:
            self.longest_s = max(self.longest_s, lasted)
        if lasted > self.bounds.whole_s + need * self.bounds.each_binding_s:
            standing = sum(pod.stands for pod in world.gangs[gang])
            words = f"in part for {lasted:.1f} s, needs {need}, {standing} stand at the end of that"
            rule = BY_US if life.was_whole or life.evicted_at is not None else RULE
            self.breaches.append(Breach(rule=rule, whose=gang, words=words, at=life.partial_since))
        life.partial_since = None


def _touched(change: Change, world: World) -> Iterator[str]:
    if isinstance(change, seen.GroupSet | seen.GroupGone):
        yield change.gang
    elif isinstance(change, seen.PodCreated | seen.PodBound | PodLeaving | seen.PodEnded):
        gang = world.pods[change.uid].made.gang
        if gang:
            yield gang


def _has_left(pod: Pod, since: float) -> bool:
    """Return whether it counts as bound: it has succeeded, or others deleted it."""
    if pod.is_done:
        return True
    if pod.done_until is not None and pod.done_until >= since:
        return True
    left_at = pod.leaving_at if pod.leaving_at is not None else pod.ended_at
    if left_at is None or (pod.by_scheduler and pod.leaving_at is not None):
        return False
    return left_at >= since

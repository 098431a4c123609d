"""No gang stands in part: between one and minMember - 1 of its pods, for longer than the window.

A gang counts from its first pod on a node until none is left there. What it needs is the least that
its PodGroup asked for in that time and shortly before: a PodGroup that grows while bindings are on
their way makes nobody guilty, and without a PodGroup there is no gang. Members that ended or were
deleted by others in that time count as if they stood, since the gang would be whole with them; it
is told apart then. So do those that succeeded, as long as they can be seen: the last members of a
gang may come when its first are done. Those whom the scheduler itself sent away do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from . import record as seen
from .breaches import Bounds, Breach
from .record import Change, Record
from .spans import Spans
from .world import Pod, World

RULE = "gang in part"
BY_US = "gang torn by the scheduler"


@dataclass
class _Life:
    """A gang, since its first pod got a node."""

    began_at: float
    partial_since: float | None = None
    was_whole: bool = False


@dataclass
class Wholeness:
    """Looks at every gang after every change of it."""

    bounds: Bounds
    spans: Spans
    breaches: list[Breach] = field(default_factory=list)
    #: Gangs that would have stood in part but for what others did to them.
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
                self._look(gang, now, world, lives)
        for gang, life in lives.items():
            self._close(gang, life, record.ended_at, world)

    def _look(self, gang: str, now: float, world: World, lives: dict[str, _Life]) -> None:
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
        need = self._need(gang, life, world)
        left = sum(self._has_left(pod, life) for pod in members)
        if standing < need <= standing + left:
            self.apart.add(gang)
        if standing + left >= need:
            self._close(gang, life, now, world)
        elif life.partial_since is None:
            life.partial_since = now
        if standing >= need:
            self.started += not life.was_whole and need > 1
            life.was_whole = True

    def _need(self, gang: str, life: _Life, world: World) -> int:
        since = self.spans.back_from(life.began_at, self.bounds.lag_s)
        words = world.groups[gang].since(since)
        # What was not there yet when it began is no word of the time before.
        known = words[1:] if words[0] is None and len(words) > 1 else words
        return min(group.minimum if group else 0 for group in known)

    def _has_left(self, pod: Pod, life: _Life) -> bool:
        if pod.is_done:
            return True
        left_at = pod.leaving_at if pod.leaving_at is not None else pod.ended_at
        if left_at is None or (pod.by_scheduler and pod.leaving_at is not None):
            return False
        return left_at >= self.spans.back_from(life.began_at, self.bounds.lag_s)

    def _close(self, gang: str, life: _Life, now: float, world: World) -> None:
        if life.partial_since is None:
            return
        lasted = self.spans.counted_s(life.partial_since, now)
        need = self._need(gang, life, world)
        if not life.was_whole:
            self.longest_s = max(self.longest_s, lasted)
        if lasted > self.bounds.whole_s + need * self.bounds.each_binding_s:
            standing = sum(pod.stands for pod in world.gangs[gang])
            words = f"in part for {lasted:.1f} s, needs {need}, {standing} stand at the end of that"
            rule = BY_US if life.was_whole else RULE
            self.breaches.append(Breach(rule=rule, whose=gang, words=words, at=life.partial_since))
        life.partial_since = None


def _touched(change: Change, world: World) -> Iterator[str]:
    if isinstance(change, seen.GroupSet | seen.GroupGone):
        yield change.gang
    elif isinstance(change, seen.PodCreated | seen.PodBound | seen.PodLeaving | seen.PodEnded):
        gang = world.pods[change.uid].made.gang
        if gang:
            yield gang

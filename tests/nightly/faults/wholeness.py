"""No gang stands in part: between one and minMember - 1 of its pods, for longer than the window.

A gang counts from its first pod on a node until none is left there. What it needs is the least that
its PodGroup asked for in that time and shortly before: a PodGroup that grows while bindings are on
their way makes nobody guilty, and without a PodGroup there is no gang. Members that ended or were
deleted by others in that time count as if they stood, since the gang would be whole with them; it
is told apart then. So do those that succeeded, as long as they can be seen: the last members of a
gang may come when its first are done. Those whom the scheduler itself sent away do not.

Of whom the scheduler sends away from a gang that stands whole more is asked: then nothing counts
but what its PodGroup said within the last moments, and who left within them. An edit or a deletion
of long ago is no leave to tear it. A gang that others have torn is not whole, and may lose more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.nightly.faults import record as seen

from .breaches import Bounds, Breach
from .record import Change, PodLeaving, Record
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
    #: Since when it is in part because the scheduler sent somebody away while it stood whole.
    torn_at: float | None = None


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
                if gang in lives and isinstance(change, PodLeaving):
                    self._look_for_a_tear(gang, world.pods[change.uid], now, lives[gang], world)
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
        since = self._since(life)
        need = self._need(gang, since, world)
        left = sum(_has_left(pod, since) for pod in members)
        if standing < need <= standing + left:
            self.apart.add(gang)
        if standing + left >= need:
            self._close(gang, life, now, world)
            life.torn_at = None
        elif life.partial_since is None:
            life.partial_since = now
        if standing >= need:
            self.started += not life.was_whole and need > 1
            life.was_whole = True

    def _look_for_a_tear(
        self, gang: str, victim: Pod, now: float, life: _Life, world: World
    ) -> None:
        if life.torn_at is not None or not (victim.by_scheduler and victim.has_room):
            return
        members, since = world.gangs[gang], self.spans.back_from(now, self.bounds.lag_s)
        words = world.groups[gang].since(since)
        least = min(group.minimum if group else 0 for group in words)
        most = max(group.minimum if group else 0 for group in words)
        standing = sum(pod.stands for pod in members)
        was_whole = standing + 1 + sum(pod.is_done for pod in members) >= most
        if was_whole and standing + sum(_has_left(pod, since) for pod in members) < least:
            life.torn_at = now
            if life.partial_since is None:
                life.partial_since = now

    def _since(self, life: _Life) -> float:
        """Give from when on words and farewells count."""
        at = life.began_at if life.torn_at is None else life.torn_at
        return self.spans.back_from(at, self.bounds.lag_s)

    def _need(self, gang: str, since: float, world: World) -> int:
        words = world.groups[gang].since(since)
        # What was not there yet when it began is no word of the time before.
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
            rule = BY_US if life.was_whole or life.torn_at is not None else RULE
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
    """Whether it counts as if it stood: it is done, or others sent it away."""
    if pod.is_done:
        return True
    if pod.done_until is not None and pod.done_until >= since:
        return True
    left_at = pod.leaving_at if pod.leaving_at is not None else pod.ended_at
    if left_at is None or (pod.by_scheduler and pod.leaving_at is not None):
        return False
    return left_at >= since

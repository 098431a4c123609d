"""Dispatch with everything around it recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from extender.cache.gang_history import PendingEvictions
from extender.evictions.backoff import EvictionBackoff
from extender.evictions.runner import EvictionRunner
from extender.metrics import Metrics
from extender.model.gang import Gang, GangKey
from extender.model.pod import SCHEDULED_SET, Pod, PodUid, Status
from extender.model.snapshot import Snapshot
from extender.planner.plan import Eviction, Plan
from extender.sim.clock import VirtualClock
from extender.status.history import GangHistory
from tests.doubles import RecordingAnnouncer, RecordingEvictor
from tests.scene import gang, snapshot

NEEDY = gang("needy", 2, status=Status.PENDING, queue="right")
OLD = gang("old", 2)


@dataclass
class Bench:
    """Carries out what a test wants, as if a plan had said so."""

    dry_run: bool = False
    min_run_s: float = 0.0
    evictor: RecordingEvictor = field(default_factory=RecordingEvictor)
    announcer: RecordingAnnouncer = field(default_factory=RecordingAnnouncer)
    journal: GangHistory = field(default_factory=GangHistory)
    metrics: Metrics = field(default_factory=Metrics)
    clock: VirtualClock = field(default_factory=VirtualClock)
    pokes: int = 0
    #: Of every gang, how it is while a plan is carried out, if not as the plan has seen it.
    meanwhile: Mapping[GangKey, Gang] = field(default_factory=dict)
    #: Who is on the way to a node just then.
    sent: frozenset[PodUid] = frozenset()

    def __post_init__(self) -> None:
        self._seen: Mapping[GangKey, Gang] = {}
        self.goodbyes = PendingEvictions(self)
        self.dispatch = EvictionRunner(
            evictor=self.evictor,
            events=self.announcer,
            journal=self.journal,
            metrics=self.metrics,
            clock=self.clock,
            backoff=EvictionBackoff(min_run_s=self.min_run_s, rerun_s=60),
            pending=self.goodbyes,
            dry_run=self.dry_run,
        )
        self.dispatch.on_objection(self._poke)

    def _poke(self) -> None:
        self.pokes += 1

    def pods_of(self, key: GangKey) -> Sequence[Pod]:
        return {**self._seen, **self.meanwhile}[key].pods

    def on_nodes(self, key: GangKey) -> Set[PodUid]:
        return self.sent | {each.uid for each in self.pods_of(key) if each.status in SCHEDULED_SET}

    def carry_out(self, *gangs: Gang, wanted: list[Eviction], **seen: Any) -> Snapshot:
        now = snapshot(*gangs, now=self.clock.now(), **seen)
        self._seen = now.gangs
        self.dispatch.send(now, Plan(evictions=tuple(wanted)))
        return now

    def going(self, gang: Gang) -> list[str]:
        """Name the members of a gang on whom nobody counts any more."""
        pods = {each.uid: each for each in gang.pods}
        return sorted(each.name for each in self.goodbyes.pods(gang.key, pods))

    def counted(self, action: str, outcome: str) -> float:
        return self.metrics.evictions.labels(action, outcome)._value.get()

    def protected(self, *gangs: Gang, **facts: Any) -> set[str]:
        """Name the pods that are left alone now."""
        seen = snapshot(*gangs, now=self.clock.now(), **facts)
        return {uid.removeprefix("a-") for uid in self.dispatch.protect(seen).protected}

    def stories(self, key: str, word: str) -> list[str]:
        """Give what was told of a gang under one word."""
        return [line.text for line in self.journal.story(GangKey(key)) if line.word == word]


def without(victim: Gang, gone: Iterable[str]) -> Gang:
    """Give a gang of which some members are gone."""
    left = [pod for pod in victim.pods if pod.name not in set(gone)]
    return gang(victim.group.name, left, min_member=victim.group.min_member)

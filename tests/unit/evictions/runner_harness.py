"""An `EvictionRunner` with doubles around it that record everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
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
from extender.ports import EvictOrder, EvictOutcome
from extender.sim.clock import VirtualClock
from extender.status.history import GangHistory
from tests.doubles import RecordingAnnouncer, RecordingEvictor
from tests.scene import gang, snapshot
from tests.series import value

NEEDY = gang("needy", 2, status=Status.PENDING, queue="right")
OLD = gang("old", 2)


@dataclass
class RunnerHarness:
    """Sends the evictions a test wants, as if a plan contained them."""

    dry_run: bool = False
    min_run_s: float = 0.0
    evictor: RecordingEvictor = field(default_factory=RecordingEvictor)
    announcer: RecordingAnnouncer = field(default_factory=RecordingAnnouncer)
    history: GangHistory = field(default_factory=GangHistory)
    metrics: Metrics = field(default_factory=Metrics)
    clock: VirtualClock = field(default_factory=VirtualClock)
    plan_requests: int = 0
    #: The current state of gangs that differ from the snapshot of the plan.
    current: Mapping[GangKey, Gang] = field(default_factory=dict)
    #: Pods with a bind in flight.
    sent: frozenset[PodUid] = frozenset()

    def __post_init__(self) -> None:
        self._seen: Mapping[GangKey, Gang] = {}
        self.pending = PendingEvictions(self)
        self.runner = EvictionRunner(
            evictor=self,
            events=self.announcer,
            history=self.history,
            metrics=self.metrics,
            clock=self.clock,
            backoff=EvictionBackoff(min_run_s=self.min_run_s, rerun_s=60),
            pending=self.pending,
            dry_run=self.dry_run,
        )
        self.runner.on_objection(self._count_plan_request)

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Let the present evictor evict."""
        return self.evictor.evict(orders)

    def _count_plan_request(self) -> None:
        self.plan_requests += 1

    def pods_of(self, key: GangKey) -> Sequence[Pod]:
        return {**self._seen, **self.current}[key].pods

    def on_nodes(self, key: GangKey) -> Set[PodUid]:
        return self.sent | {each.uid for each in self.pods_of(key) if each.status in SCHEDULED_SET}

    def run(self, *gangs: Gang, wanted: list[Eviction], **seen: Any) -> Snapshot:
        now = snapshot(*gangs, now=self.clock.now(), **seen)
        self._seen = now.gangs
        self.runner.send(now, Plan(evictions=tuple(wanted)))
        return now

    def leaving_members(self, gang: Gang) -> list[str]:
        """Return the names of the members that count as leaving."""
        pods = {each.uid: each for each in gang.pods}
        return sorted(each.name for each in self.pending.pods(gang.key, pods))

    def counted(self, action: str, outcome: str) -> float:
        return value(self.metrics, "evictions_total", action=action, outcome=outcome)

    def protected(self, *gangs: Gang, **facts: Any) -> set[str]:
        """Return the names of the protected pods."""
        seen = snapshot(*gangs, now=self.clock.now(), **facts)
        return {uid.removeprefix("a-") for uid in self.runner.protect(seen).protected}

    def history_texts(self, key: str, word: str) -> list[str]:
        """Return the texts of a gang's history lines with this word."""
        return [line.text for line in self.history.entries(GangKey(key)) if line.word == word]


def without(victim: Gang, gone: Iterable[str]) -> Gang:
    """Return the gang without some of its members."""
    left = [pod for pod in victim.pods if pod.name not in set(gone)]
    return gang(victim.group.name, left, min_member=victim.group.min_member)

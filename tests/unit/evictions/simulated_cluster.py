"""A cluster of nodes and jobs in virtual time: evicted pods are recreated, as by job controllers.

The planner and the `EvictionRunner` are real; the API server, kube-scheduler and the kubelets are
simulated in a few lines each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np

from extender.cache.gang_history import PendingEvictions
from extender.cache.pods import STUCK_S
from extender.evictions.runner import EvictionRunner
from extender.metrics import Metrics
from extender.model.gang import VOLCANO, Gang, GangKey, Phase, PodGroup
from extender.model.pod import OCCUPYING_SET, SCHEDULED_SET, Pod, PodUid, Shape, Status
from extender.model.queue import Queue
from extender.model.resources import Resources
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.planner.planner import make_plan
from extender.ports import EvictOrder, EvictOutcome, EvictResult
from extender.sim.clock import VirtualClock
from extender.status.history import GangHistory
from tests.builders import NOW
from tests.doubles import RecordingAnnouncer, settled
from tests.scene import node_table

#: How long a pod takes to stop.
GRACE_S = 3.0


@dataclass(frozen=True)
class Job:
    """A gang that runs for ever."""

    name: str
    queue: str
    members: int
    min_member: int | None = None
    cpu: int = 1
    priority: int = 0
    created: float = NOW

    @property
    def key(self) -> GangKey:
        return GangKey(f"a/{self.name}")


@dataclass
class SimulatedCluster:
    """Nodes, queues and jobs; `run_a_cycle` is what the extender does."""

    cpus: Sequence[int]
    queues: Sequence[Queue]
    budgets: Sequence[DisruptionBudget] = ()
    jobs: dict[str, Job] = field(default_factory=dict)
    pods: dict[PodUid, Pod] = field(default_factory=dict)
    stopping: dict[PodUid, float] = field(default_factory=dict)
    clock: VirtualClock = field(default_factory=VirtualClock)
    #: (when, gang) of every eviction.
    evicted: list[tuple[float, str]] = field(default_factory=list)
    #: Jobs whose pods never terminate because of a finalizer.
    finalized: set[str] = field(default_factory=set)
    #: The API server accepts no more evictions than this.
    takes: int | None = None

    def __post_init__(self) -> None:
        self._phases: dict[str, Phase] = {}
        self._owner: dict[PodUid, str] = {}
        self._made = 0
        self._evicted_at: dict[PodUid, float] = {}
        self._shapes: dict[int, Shape] = {}
        self.restart()

    def restart(self) -> None:
        """Restart the extender without its memory."""
        self.history = GangHistory()
        self.runner = EvictionRunner(
            evictor=self,
            events=RecordingAnnouncer(),
            history=self.history,
            metrics=Metrics(),
            clock=self.clock,
            pending=PendingEvictions(self),
        )

    def pods_of(self, key: GangKey) -> Sequence[Pod]:
        pods = self.pods.items()
        return [pod for uid, pod in pods if self.jobs[self._owner[uid]].key == key]

    def on_nodes(self, key: GangKey) -> Set[PodUid]:
        return {pod.uid for pod in self.pods_of(key) if pod.status in SCHEDULED_SET}

    def submit(self, *jobs: Job) -> None:
        for job in jobs:
            self.jobs[job.name] = replace(job, created=self.clock.now())

    def cancel(self, name: str) -> None:
        del self.jobs[name]
        for uid in [uid for uid, owner in self._owner.items() if owner == name]:
            self.pods.pop(uid, None)

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Simulate the API server: an evicted pod begins to terminate."""
        return [self._evict(order) for order in orders]

    def _evict(self, order: EvictOrder) -> Future[EvictOutcome]:
        if self.takes is not None and len(self.evicted) >= self.takes:
            return Future()
        owner = self._owner[order.uid]
        self.pods[order.uid] = replace(self.pods[order.uid], status=Status.RELEASING)
        if owner not in self.finalized:
            self.stopping[order.uid] = self.clock.now() + GRACE_S
        self._evicted_at[order.uid] = self.clock.now()
        self.evicted.append((self.clock.now() - NOW, owner))
        return settled(EvictOutcome(EvictResult.LEAVING))

    def pass_seconds(self, seconds: int, every: int = 1) -> None:
        """Advance the time, with a cycle every so many seconds."""
        for _ in range(seconds // every):
            self.run_a_cycle()
            self.clock.advance(every)

    def run_a_cycle(self) -> None:
        self._replace_stopped_pods()
        snapshot = self.runner.protect(self.snapshot())
        plan = make_plan(snapshot)
        for placement in plan.placements.values():
            for uid, node in placement.placements.items():
                self.pods[uid] = replace(self.pods[uid], status=Status.RUNNING, node=node)
        self._phases = {key: verdict.phase for key, verdict in plan.verdicts.items()}
        self.history.note(snapshot, plan)
        self.runner.send(snapshot, plan)
        self._check_no_gang_is_partial()

    def running(self) -> Counter[str]:
        """Count the running members of every job."""
        return Counter(
            self._owner[uid] for uid, pod in self.pods.items() if pod.status is Status.RUNNING
        )

    def used(self, queue: str) -> int:
        """Count the cpus that run in a queue."""
        jobs = {name: job for name, job in self.jobs.items() if job.queue == queue}
        return sum(jobs[name].cpu * n for name, n in self.running().items() if name in jobs)

    def snapshot(self) -> Snapshot:
        table = node_table(self.cpus)
        given_up = self.clock.now() - GRACE_S - STUCK_S
        stuck = frozenset(
            uid for uid, at in self._evicted_at.items() if at <= given_up and uid in self.pods
        )
        for pod in self.pods.values():
            if pod.status in OCCUPYING_SET:
                row = table.facts.index[pod.node]
                need = np.array([pod.requests.amount(name) for name in table.dimensions])
                table.used[row] += need
                is_leaving = pod.status is Status.RELEASING and pod.uid not in stuck
                table.releasing[row] += need if is_leaving else 0
        gangs = {gang.key: gang for gang in self._gangs()}
        return Snapshot(
            generation=int(self.clock.now() - NOW) + 1,
            now=self.clock.now(),
            nodes=table,
            gangs=dict(sorted(gangs.items())),
            queues={queue.name: queue for queue in self.queues},
            budgets=tuple(self.budgets),
            stuck=stuck,
        )

    def _gangs(self) -> Iterator[Gang]:
        members: dict[str, list[Pod]] = {name: [] for name in self.jobs}
        for uid, pod in sorted(self.pods.items()):
            members[self._owner[uid]].append(pod)
        for name, job in self.jobs.items():
            yield Gang(
                group=PodGroup(
                    namespace="a",
                    name=name,
                    uid=f"uid-group-{name}",
                    min_member=job.min_member or job.members,
                    created=job.created,
                    phase=self._phases.get(job.key, Phase.PENDING),
                    dialect=VOLCANO,
                ),
                pods=tuple(members[name]),
                queue=job.queue,
                priority=job.priority,
            )

    def _replace_stopped_pods(self) -> None:
        for uid, until in list(self.stopping.items()):
            if until <= self.clock.now():
                del self.stopping[uid]
                self.pods.pop(uid, None)
        alive = Counter(
            self._owner[uid]
            for uid, pod in self.pods.items()
            if uid not in self._evicted_at or uid in self.stopping
        )
        for name, job in self.jobs.items():
            for _ in range(job.members - alive[name]):
                self._make_pod(job)

    def _make_pod(self, job: Job) -> None:
        self._made += 1
        uid = PodUid(f"{job.name}-{self._made:06d}")
        shape = self._shapes.setdefault(
            job.cpu, Shape(requests=Resources({"cpu": job.cpu * 1000, "pods": 1}))
        )
        self.pods[uid] = Pod(
            uid=uid,
            namespace="a",
            name=uid,
            shape=shape,
            priority=job.priority,
            created=self.clock.now(),
            labels={"job": job.name},
        )
        self._owner[uid] = job.name

    def _check_no_gang_is_partial(self) -> None:
        for name, count in self.running().items():
            job = self.jobs[name]
            needed = job.min_member or job.members
            assert count >= needed, f"{name} runs with {count} of {needed} members"

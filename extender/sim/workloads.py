"""The controllers of the simulated jobs: create gangs, recreate lost pods and end the work.

A gang works while at least its minimum of members is on nodes. If it falls below, its work since
the start is lost, and it starts again when the minimum is back, as a training job without
checkpoints does. When it has worked for its duration, its pods and its PodGroup are deleted; a job
without a duration works until `end`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from extender.cache.changes import Change, Delete, Kind, SeenPod
from extender.model.gang import VOLCANO, GangKey, Membership, PodGroup
from extender.model.pod import Pod, PodUid, Shape, Status
from extender.sim.api_server import ApiServer
from extender.sim.clock import VirtualClock

#: The time a controller takes to recreate a lost pod.
RECREATE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: *size* pods of one shape, at least *min_member* of them at once."""

    namespace: str
    name: str
    queue: str
    size: int
    min_member: int
    shape: Shape
    #: Seconds of work once the minimum is on nodes; None until `end` is called.
    lasts_s: float | None = None
    #: The duration its PodGroup declares, and the deadline of its pods; 0 for none.
    declared_s: float = 0.0
    deadline_s: float = 0.0
    #: Seconds after the start of the run.
    arrives_s: float = 0.0
    priority: int = 0
    priority_class: str = ""
    #: Without a PodGroup: each pod is single.
    is_plain: bool = False

    @property
    def key(self) -> GangKey:
        """Return `namespace/name`."""
        return GangKey(f"{self.namespace}/{self.name}")


@dataclass(slots=True)
class JobRun:
    """The course of a job."""

    job: Job
    #: All in monotonic seconds; None for what has not happened.
    created_at: float
    first_started_at: float | None = None
    ended_at: float | None = None
    #: The start of the current work; None while it does not work.
    working_since: float | None = None
    #: (from, to, is lost) of each past period of work.
    stretches: list[tuple[float, float, bool]] = field(default_factory=list)
    #: Members that were evicted (by the extender or kube-scheduler), and lost with a node.
    evicted: int = 0
    lost: int = 0
    #: Pod seconds of completed work, and of wasted time.
    done_s: float = 0.0
    wasted_s: float = 0.0
    #: Pod seconds that are not decided yet, and the time until which they are counted.
    open_s: float = 0.0
    counted_at: float = 0.0
    pods: dict[PodUid, str] = field(default_factory=dict)
    created_pods: int = 0
    #: The number of the period of work; callbacks of an earlier period are ignored.
    number: int = 0

    @property
    def on_nodes(self) -> int:
        """Return the number of members on nodes."""
        return sum(1 for node in self.pods.values() if node)

    def waste(self) -> None:
        """Count the undecided time as wasted."""
        self.wasted_s, self.open_s = self.wasted_s + self.open_s, 0.0


class Workloads:
    """Own all jobs."""

    def __init__(self, time: VirtualClock, api: ApiServer, scheduler_name: str) -> None:
        self._time = time
        self._api = api
        self._scheduler_name = scheduler_name
        self.runs: list[JobRun] = []
        #: How many jobs of each name were created; the uid of a pod is never used again.
        self._created: Counter[GangKey] = Counter()
        self._by_pod: dict[PodUid, JobRun] = {}
        #: Called when a pod starts (+1) or stops (-1) using its node.
        self.on_placed: Callable[[JobRun, int], None] = lambda run, step: None
        #: Called when the state of a run changes.
        self.on_change: Callable[[JobRun], None] = lambda run: None

    def submit(self, job: Job) -> None:
        """Create *job* at its arrival time."""
        self._time.call_later(job.arrives_s, partial(self.create, job))

    def create(self, *jobs: Job) -> None:
        """Create the jobs now, and their pods in turn: one of each job, then the next of each."""
        runs = [self._create_group(job) for job in jobs]
        for number in range(max(job.size for job in jobs)):
            for run in runs:
                if number < run.job.size:
                    self._create_pod(run)

    def end(self, key: GangKey) -> None:
        """Delete a job with all its pods, whatever it has done."""
        for run in self.present:
            if run.job.key == key:
                self._delete(run)

    def forget_all(self) -> None:
        """Delete all jobs, waiting ones first, so that none starts for a moment."""
        for run in sorted(self.present, key=lambda run: run.working_since is not None):
            self._delete(run)
        self.runs.clear()

    @property
    def present(self) -> list[JobRun]:
        """Return the runs of the jobs that have not ended."""
        return [run for run in self.runs if run.ended_at is None]

    def evicted(self, uid: PodUid) -> None:
        """Count an eviction, before the pod is deleted."""
        run = self._by_pod.get(uid)
        if run is not None:
            run.evicted += 1

    def lose_node(self, name: str) -> None:
        """Remove a node with all its pods."""
        if name not in self._api.nodes:
            return
        self._api.delete_node(name)
        for uid, run in list(self._by_pod.items()):
            if run.pods.get(uid) == name:
                run.lost += 1
                self._api.delete_pod(uid)

    def count_until_now(self) -> None:
        """Count pods that are still on nodes; work that goes on stays undecided."""
        for run in self.runs:
            self._count(run)
            if run.working_since is None:
                run.waste()

    def _create_group(self, job: Job) -> JobRun:
        run = JobRun(job, self._time.monotonic())
        self.runs.append(run)
        self._created[job.key] += 1
        if not job.is_plain:
            self._api.put(
                PodGroup(
                    namespace=job.namespace,
                    name=job.name,
                    min_member=job.min_member,
                    queue=job.queue,
                    dialect=VOLCANO,
                    priority_class=job.priority_class,
                    created=self._time.now(),
                    uid=f"group-{job.key}{self._repetition(job)}",
                    lasts_s=job.declared_s,
                )
            )
        self.on_change(run)
        return run

    def _repetition(self, job: Job) -> str:
        """Return the end of uids: no object of a job has the uid of one of an earlier job."""
        again = self._created[job.key]
        return f"/{again}" if again > 1 else ""

    def _create_pod(self, run: JobRun) -> None:
        job, number = run.job, run.created_pods
        run.created_pods += 1
        name = f"{job.name}-{number}"
        uid = PodUid(f"{job.namespace}/{name}{self._repetition(job)}")
        pod = Pod(
            uid=uid,
            namespace=job.namespace,
            name=name,
            shape=job.shape,
            priority=job.priority,
            priority_class=job.priority_class,
            created=self._time.now(),
            scheduler=self._scheduler_name,
            lasts_s=job.declared_s if job.is_plain else 0.0,
            deadline_s=job.deadline_s,
        )
        member = (
            Membership(key=GangKey(f"{job.namespace}/pod:{name}"), queue=job.queue)
            if job.is_plain
            else Membership(key=job.key, named=True)
        )
        run.pods[uid] = ""
        self._by_pod[uid] = run
        self._api.put(SeenPod(pod, member))

    # ── pod events ────────────────────────────────────────────────────────────────────────

    def handle(self, change: Change) -> None:
        """Handle a change of a pod."""
        if isinstance(change, Delete):
            if change.kind is Kind.POD:
                self._pod_deleted(PodUid(change.key))
        elif isinstance(change.item, SeenPod):
            pod = change.item.pod
            if pod.node and pod.status is Status.RUNNING:
                self._pod_bound(pod)

    def _pod_bound(self, pod: Pod) -> None:
        run = self._by_pod.get(pod.uid)
        if run is None or run.pods[pod.uid]:
            return
        self._count(run)
        run.pods[pod.uid] = pod.node
        self.on_placed(run, +1)
        if run.working_since is None and run.on_nodes >= run.job.min_member:
            self._begin(run)

    def _count(self, run: JobRun) -> None:
        """Count the time of its pods on nodes, before their number changes."""
        now = self._time.monotonic()
        if now > run.counted_at:
            run.open_s += (now - run.counted_at) * run.on_nodes
            run.counted_at = now

    def _begin(self, run: JobRun) -> None:
        now = self._time.monotonic()
        run.working_since = now
        run.waste()  # they waited for the other members
        run.number += 1
        if run.first_started_at is None:
            run.first_started_at = now
        if run.job.lasts_s is not None:
            self._time.call_later(run.job.lasts_s, partial(self._finish, run, run.number))
        self.on_change(run)

    def _pod_deleted(self, uid: PodUid) -> None:
        run = self._by_pod.pop(uid, None)
        if run is None:
            return
        self._count(run)
        had_node = run.pods.pop(uid)
        if had_node:
            self._interrupt(run)
            self.on_placed(run, -1)
        self._time.call_later(RECREATE_S, partial(self._recreate_pod, run))

    def _interrupt(self, run: JobRun) -> None:
        """Count the work as lost, if fewer members than the minimum are left."""
        if run.working_since is None or run.on_nodes >= run.job.min_member:
            return
        now = self._time.monotonic()
        run.waste()
        run.stretches.append((run.working_since, now, True))
        run.working_since = None
        run.number += 1
        self.on_change(run)

    def _recreate_pod(self, run: JobRun) -> None:
        if run.ended_at is None:
            self._create_pod(run)

    def _finish(self, run: JobRun, number: int) -> None:
        if run.number != number or run.working_since is None:
            return
        self._count(run)
        run.done_s, run.open_s = run.done_s + run.open_s, 0.0
        run.stretches.append((run.working_since, self._time.monotonic(), False))
        self._delete(run)

    def _delete(self, run: JobRun) -> None:
        run.ended_at, run.working_since = self._time.monotonic(), None
        run.number += 1
        for uid in list(run.pods):
            # Forgotten first, so that the deleted pod is not recreated.
            del self._by_pod[uid]
            if run.pods.pop(uid):
                self.on_placed(run, -1)
            self._api.delete_pod(uid)
        if not run.job.is_plain:
            self._api.delete_group(run.job.key)
        self.on_change(run)

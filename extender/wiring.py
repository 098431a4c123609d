"""The only module that knows everyone: puts the parts together, starts and stops them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from extender.cache.assignment import QueuePolicy
from extender.cache.changes import Kind
from extender.cache.cluster import Cluster
from extender.cycle import Cycle, Published
from extender.evictions.dispatch import Dispatch
from extender.evictions.reprieves import Reprieves
from extender.gate import Gate
from extender.holds.barrier import Barrier
from extender.holds.looptimer import LoopTimer
from extender.holds.machine.book import Book
from extender.holds.machine.limits import Limits
from extender.holds.mirror import MirrorFacts, Promises, listen
from extender.holds.ports import TakesBack
from extender.kube.act.bind import PipelinedBinder
from extender.kube.act.events import ApiAnnouncer
from extender.kube.act.evict import ApiEvictor
from extender.kube.act.groups import LiveGroups
from extender.kube.act.status import ApiStatusWriter
from extender.kube.act.undo import CautiousUndo
from extender.kube.act.wake import PipelinedWaker
from extender.kube.api.client import Access
from extender.kube.api.pipeline import Pipeline
from extender.kube.decode import dialects, objects, pods, watched
from extender.kube.decode.codec import Codec
from extender.kube.watch.watches import Watches
from extender.metrics import Metrics
from extender.model.gang import PodGroup
from extender.model.membership import Membership
from extender.model.pod import Pod, Status
from extender.plan.planner import make_plan
from extender.policyfile import PolicyFile
from extender.ports import Announcer, Binder, Clock, Evictor, GroupReader, StatusWriter, Waker
from extender.promises.arrivals import Arrivals
from extender.reporting.holdnews import HoldNews
from extender.reporting.journal import Journal
from extender.reporting.reporter import Reporter
from extender.settings import Settings
from extender.sim.acting import SimAnnouncer, SimEvictor, SimStatus, SimUndo
from extender.sim.cluster import Object, SimCluster
from extender.web.app import create_app
from extender.web.dashboard import Dashboard
from extender.web.hooks import Hooks, PodReader
from extender.web.ops import Ops
from extender.web.probes import Probes
from extender.web.series import PlanSeries, WatchSeries


class SystemClock:
    """The real time."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class Source(Protocol):
    """What tells the mirror of changes."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


class StoppableEvictor(Evictor, Protocol):
    """An evictor with threads of its own."""

    def stop(self) -> None:
        """End."""


class StoppableStatus(StatusWriter, Protocol):
    """A status writer with threads of its own."""

    def stop(self) -> None:
        """End."""


class RunningAnnouncer(Announcer, Protocol):
    """An announcer with a thread of its own."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """How one kind of cluster, real or simulated, is heard and acted upon."""

    source: Source
    binder: Binder
    groups: GroupReader
    waker: Waker
    evictor: StoppableEvictor
    undo: TakesBack
    status: StoppableStatus
    announcer: RunningAnnouncer
    #: Breaks the connections that live in the event loop.
    aclose: Callable[[], Awaitable[object]]


class Runtime:
    """One extender, put together."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        cluster: Cluster,
        metrics: Metrics,
        doors: Doors,
    ) -> None:
        policies = PolicyFile(settings.config)
        published = Published()
        journal = Journal()
        arrivals = Arrivals(
            cluster,
            clock,
            grace_s=settings.arrival_grace_s,
            still_incomplete=lambda gang: self._barrier.still_incomplete(gang),
        )
        gate = Gate(
            cluster,
            arrivals,
            published,
            lost_its_node=lambda gang: self._cycle.give_back(gang),
            prefer=settings.prefer,
        )
        self._doors = doors
        self._commit_s = limits_of(settings).commit_s
        self._reporter = Reporter(
            writer=doors.status,
            announcer=doors.announcer,
            journal=journal,
            metrics=metrics,
            clock=clock,
        )
        self._cycle = Cycle(
            cluster=cluster,
            published=published,
            gate=gate,
            arrivals=arrivals,
            make_plan=lambda snapshot: make_plan(
                snapshot,
                policies.current(),
                around=lambda action: metrics.action_seconds.labels(action).time(),
            ),
            waker=doors.waker,
            dispatch=Dispatch(
                evictor=doors.evictor,
                announcer=doors.announcer,
                journal=journal,
                metrics=metrics,
                clock=clock,
                poke=lambda: self._cycle.poke(),
                reprieves=Reprieves(min_run_s=settings.min_run_s),
                dry_run=settings.dry_run,
            ),
            reporter=self._reporter,
            clock=clock,
            metrics=metrics,
            readiness=lambda: cluster.readiness() or self._closed(),
            scheduler_idle_s=lambda: self.hooks.idle_s(),
            ticket_s=settings.ticket_s,
        )
        self._barrier = Barrier(
            Book(MirrorFacts(cluster, gate.passers), limits_of(settings), chance=random.random),
            binder=doors.binder,
            groups=doors.groups,
            inflight=Promises(cluster, gate.passers, clock),
            undo=doors.undo,
            timer=LoopTimer(loop),
            clock=clock,
            observer=HoldNews(metrics, cluster, doors.announcer, clock),
        )
        listen(cluster, gate.passers, self._barrier)

        def readiness() -> list[str]:
            return cluster.readiness() or self._closed() or published.readiness()

        self.hooks = Hooks(
            gate=gate,
            barrier=self._barrier,
            read_pod=pod_reader(settings, cluster),
            readiness=readiness,
            clock=clock,
            metrics=metrics,
        )
        metrics.holds.set_function(lambda: self._barrier.holds)
        metrics.policy_refused.set_function(lambda: bool(policies.problem))
        metrics.registry.register(PlanSeries(lambda: journal.last))
        metrics.registry.register(WatchSeries(lambda: cluster.freshness.silence(clock.monotonic())))

        def notes() -> list[str]:
            learnt_s = self._barrier.learnt_timeout_s
            return [f"policy: {policies.problem}"] * bool(policies.problem) + [
                f"binds: kube-scheduler gives up after {seconds:.0f} s; set httpTimeout of its bind"
                f" entry to {settings.bind_timeout_s:g}s"
                for seconds in ([learnt_s] if learnt_s is not None else [])
            ]

        self.pages = create_app(
            Dashboard(), Probes(readiness, metrics, notes), Ops(journal, policies.current)
        )

    @property
    def holds(self) -> int:
        """Count the binds that wait or are under way."""
        return self._barrier.holds

    def start(self) -> None:
        """Listen to the cluster, plan, and tell."""
        self._doors.source.start()
        self._doors.announcer.start()
        self._reporter.start()
        self._cycle.start()

    def drain(self) -> None:
        """Refuse what waits at the barrier, and whatever comes."""
        self._barrier.shut_down()

    async def finish(self) -> None:
        """Wait for what was sent to the API server, then end every thread and connection."""
        sent = asyncio.wrap_future(self._barrier.shut_down())
        await asyncio.wait({sent}, timeout=self._commit_s)
        self.stop()
        await self._doors.aclose()

    def _closed(self) -> list[str]:
        closed = self._barrier.closed
        return [f"binds: {closed}"] if closed else []

    def stop(self) -> None:
        """End every thread."""
        self._cycle.stop()
        self._doors.source.stop()
        self._reporter.stop()
        self._doors.announcer.stop()
        self._doors.evictor.stop()
        self._doors.status.stop()


def build(settings: Settings, loop: asyncio.AbstractEventLoop) -> Runtime:
    """Put an extender together for the cluster of the kubeconfig or the pod."""
    clock = SystemClock()
    access = Access.load(settings.kubeconfig or None)
    cluster = Cluster(clock, queue_policy(settings))
    metrics = Metrics()
    pipeline = Pipeline(access, loop)
    # Connections of its own: a thousand wake-ups must not stand in front of a bind.
    wake_ups = Pipeline(access, loop, size=4)
    evictor = ApiEvictor(access)
    doors = Doors(
        source=Watches(access, cluster, clock, schedulers=frozenset(settings.scheduler_name)),
        binder=PipelinedBinder(pipeline, budget_s=limits_of(settings).commit_s),
        groups=LiveGroups(pipeline),
        waker=PipelinedWaker(wake_ups, per_s=500, burst=1000),
        evictor=evictor,
        undo=CautiousUndo(pipeline, evictor),
        status=ApiStatusWriter(access),
        announcer=ApiAnnouncer(access, metrics),
        aclose=lambda: asyncio.gather(pipeline.aclose(), wake_ups.aclose()),
    )
    return Runtime(settings, loop, clock, cluster, metrics, doors)


def embed(settings: Settings, loop: asyncio.AbstractEventLoop, simulated: SimCluster) -> Runtime:
    """Put an extender together for a simulated cluster."""
    clock = SystemClock()
    cluster = Cluster(clock, queue_policy(settings))
    evictor = SimEvictor(simulated)
    doors = Doors(
        source=_Hearsay(simulated, cluster, frozenset(settings.scheduler_name)),
        binder=simulated,
        groups=simulated,
        waker=simulated,
        evictor=evictor,
        undo=SimUndo(evictor),
        status=SimStatus(simulated),
        announcer=SimAnnouncer(),
        aclose=lambda: asyncio.sleep(0),
    )
    return Runtime(settings, loop, clock, cluster, Metrics(), doors)


def queue_policy(settings: Settings) -> QueuePolicy:
    """Say where gangs go that name no queue."""
    return QueuePolicy(
        default_queue=settings.default_queue, namespaces_are_queues=settings.namespaces_are_queues
    )


def limits_of(settings: Settings) -> Limits:
    """Split the time kube-scheduler gives a bind."""
    return Limits.within(
        settings.hold_s,
        settings.bind_timeout_s,
        max_holds=settings.max_holds,
        take_back_s=None if settings.dry_run else settings.take_back_s or None,
    )


def pod_reader(settings: Settings, cluster: Cluster) -> PodReader:
    """Read the pod inside a hook call just as the watch reads it, unless the watch has."""
    schedulers = frozenset(settings.scheduler_name)

    def read(raw: bytes) -> tuple[Pod, Membership]:
        # What decides about a pod that waits does not change; reading it again is dear.
        seen = cluster.seen(pods.uid(raw))
        if seen is not None and seen[0].status is Status.PENDING and not seen[0].gated:
            return seen
        return pods.to_pod(pods.pod(raw), schedulers=schedulers)

    return read


def read_group(thing: Object) -> PodGroup:
    """Read a PodGroup of the simulated cluster as if it came from the API server."""
    return dialects.to_group(msgspec.convert(thing, dialects.RawGroup), dialects.VOLCANO)


class _Hearsay:
    """Feeds the mirror with what a simulated cluster tells, decoded like everything else."""

    def __init__(self, simulated: SimCluster, cluster: Cluster, schedulers: frozenset[str]) -> None:
        self._simulated = simulated
        self._cluster = cluster
        self._codecs: dict[str, Codec[Any]] = {
            "Node": Codec(Kind.NODE, objects.RawNode, objects.to_node),
            "Pod": watched.pods(schedulers),
            "PodGroup": watched.groups(dialects.VOLCANO),
            "Queue": watched.queues(dialects.VOLCANO),
        }

    def start(self) -> None:
        """Begin."""
        self._simulated.listen(self._hear)

    def stop(self) -> None:
        """A simulated cluster ends with its process."""

    def _hear(self, verb: str, thing: Object) -> None:
        line = self._codecs[thing["kind"]].line(
            msgspec.json.encode({"type": verb, "object": thing})
        )
        if line.change is not None:
            self._cluster.apply(line.change)

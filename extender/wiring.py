"""The only module that imports all parts: constructs, connects, starts and stops them.

A part that a later one needs comes first: eviction and reporting before `core`, which constructs
and connects the parts that decide. What `core` gives is used by functions that run later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from extender.cache.cluster import Cluster
from extender.clock import LoopCalls, LoopTimer, PeriodicTask
from extender.core import Core
from extender.evictions.backoff import EvictionBackoff
from extender.evictions.runner import EvictionRunner
from extender.findings.audit import Audit, with_missing_rights
from extender.forecast.durations import DurationHistory, DurationLearner
from extender.forecast.forecaster import Forecaster
from extender.hooks.handlers import Hooks
from extender.kube.decode import pods
from extender.leader.election import LeaderElection
from extender.leader.lease import CHECK_S as TERM_CHECK_S
from extender.leader.term_lifecycle import TermLifecycle
from extender.metrics import Metrics
from extender.permit.messages import Cause
from extender.permit.timeouts import Timeouts
from extender.policy_file import PolicyFile
from extender.ports import Clock, ClusterPorts, Fencing
from extender.replay.recorder import Recorder
from extender.reservations.ledger import LOOK_S as RESERVATIONS_CHECK_S
from extender.reservations.probe import LOOK_S as PROBE_S, SchedulerProbe
from extender.settings import Settings
from extender.status.findings import Findings
from extender.status.history import GangHistory
from extender.status.notes import BindNotes, SchedulerNotes
from extender.status.reporter import Reporter
from extender.tls.server import PortCertificates
from extender.web.app import create_app
from extender.web.dashboard.context import AppContext
from extender.whatif.page import whatif_runner


class Runtime:
    """One extender; *connect* returns the ports of its cluster, real or simulated."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        connect: Callable[[Cluster, Metrics, Fencing], ClusterPorts],
        certificates: Sequence[PortCertificates] = (),
    ) -> None:
        metrics, history = Metrics(), GangHistory()
        scheduler_names = frozenset(settings.scheduler_name)
        exempt = frozenset(settings.exempt_namespace)
        policies, timeouts = PolicyFile(settings.config), Timeouts.of(settings)

        # The cache, and whether this replica may act on it.
        timer = LoopTimer(loop)
        cluster = Cluster.of(settings, clock)
        self._leadership = leadership = LeaderElection(settings, clock, timer, metrics)
        self.ports = ports = connect(cluster, metrics, leadership.fencing)
        leadership.run(ports.leases, ports.labels, is_warm=lambda: not cluster.why_not_ready())

        def why_not_plan() -> list[str]:
            return (
                cluster.why_not_ready() or leadership.why_not_ready() or core.permit.why_not_ready()
            )

        def why_not_answer() -> list[str]:
            return why_not_plan() or core.published.why_not_ready()

        # What a plan asks for, and what is reported of it.
        dispatch = EvictionRunner(
            evictor=ports.evictor,
            events=ports.events,
            history=history,
            metrics=metrics,
            clock=clock,
            backoff=EvictionBackoff(min_run_s=settings.min_run_s),
            pending=cluster.pending_evictions,
            dry_run=settings.dry_run,
        )
        findings = Findings(Audit(policies.findings), ports.events, clock)
        self._reporter = Reporter(
            writer=ports.status,
            events=ports.events,
            history=history,
            findings=findings,
            metrics=metrics,
            clock=clock,
        )
        bind_notes = BindNotes(metrics, cluster, ports.events, clock, settings.bind_timeout_s)
        scheduler_notes = SchedulerNotes(cluster.liveness, metrics, clock)
        cluster.liveness.on_change(scheduler_notes.liveness_changed)
        wake = scheduler_notes.counted(ports.waker)

        # Reservations, the answers of the hooks, and planning.
        self._loop_calls = LoopCalls(timer)
        self._recorder = recorder = Recorder.of(settings, metrics)
        self.core = core = Core(
            settings,
            cluster,
            clock=clock,
            timer=timer,
            timeouts=timeouts,
            chance=random.random,
            wake=wake,
            binder=ports.binder,
            groups=ports.groups,
            undo=ports.undo,
            observer=bind_notes,
            make_plan=recorder.planner(policies.current, metrics.time_action),
            dispatch=dispatch,
            reporter=self._reporter,
            metrics=metrics,
            why_not_plan=why_not_plan,
            meanwhile=policies.current,
            in_loop=self._loop_calls,
            closed=Cause.LEASE_LOST if leadership.is_shared else None,
        )
        core.ledger.on_expired(bind_notes.reservation_released)
        self.hooks = Hooks(
            gate=core.gate,
            permit=core.permit,
            read_pod=pods.reader(scheduler_names, cluster.seen, cluster.membership, exempt=exempt),
            why_not_ready=why_not_answer,
            clock=clock,
            metrics=metrics,
            standby=leadership.why_not_ready,
        )
        dispatch.on_objection(core.planning.request_cycle)
        cluster.partial_gangs.forget()  # a term begins here, with a lease or without
        self._lifecycle = TermLifecycle(
            leadership,
            core.permit,
            resetting=(
                core.arrivals,
                core.ledger,
                core.published,
                history,
                cluster.liveness,
                cluster.partial_gangs,
            ),
            plan_soon=core.planning.request_cycle,
            timeout_s=timeouts.answer_s,
        )

        # Metrics and pages.
        for each in certificates:
            each.show_in(metrics)
        self._periodic_tasks = [
            PeriodicTask(timer, core.ledger.check_due, every_s=RESERVATIONS_CHECK_S),
            PeriodicTask(
                timer, SchedulerProbe(cluster, wake, why_not_answer).probe, every_s=PROBE_S
            ),
            PeriodicTask(timer, leadership.check_term, every_s=TERM_CHECK_S),
            *(PeriodicTask(timer, each.reload, every_s=each.reload_s) for each in certificates),
        ]
        metrics.waiting_binds.set_function(lambda: core.permit.waiting_binds)
        past_durations = DurationHistory()
        cluster.watch_pods(DurationLearner(cluster, past_durations).seen)
        self.pages = create_app(
            AppContext(
                history=history,
                findings=lambda: with_missing_rights(findings.current, ports.refused()),
                policies=policies,
                metrics=metrics,
                why_not_ready=why_not_answer,
                warmth=cluster.why_not_ready,
                standby=leadership.why_not_ready,
                notes=lambda: [
                    *(*policies.notes(), *bind_notes.notes(), *scheduler_notes.notes()),
                    *ports.notes(),
                    *(each.problem for each in certificates if each.problem),
                ],
                silence=lambda: cluster.freshness.silence(clock.monotonic()),
                reservations=lambda gang: (cluster.reservations.of_gang(gang), clock.monotonic()),
                forecaster=Forecaster(policies.current, past_durations),
                suppose=whatif_runner(settings, past_durations),
            )
        )

    def start(self) -> None:
        """Start watching the cluster, planning and reporting."""
        self.ports.start()
        self._reporter.start()
        for each in self._periodic_tasks:
            each.start()
        self._leadership.start()
        self.core.planning.start()

    def drain(self) -> None:
        """Refuse waiting binds and all further ones."""
        self._lifecycle.drain()

    async def finish(self) -> None:
        """Wait for requests in flight to the API server, then end every thread and connection."""
        await self._lifecycle.close()
        self.stop()
        await self.ports.aclose()

    def stop(self) -> None:
        """End every thread."""
        for each in self._periodic_tasks:
            each.stop()
        self._loop_calls.end()
        for part in (self.core.planning, self._recorder, self._reporter, self.ports):
            part.stop()

"""The only module that knows everyone: puts the parts together, starts and stops them.

Read from top to bottom, as the data flows: what is heard, what is promised and answered, what is
planned and carried out, what is told. Who comes early and has something to tell to who comes late
has a listener.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from extender.audit.everything import Audit
from extender.cache.assignment import QueuePolicy
from extender.cache.cluster import Cluster
from extender.cycle import Cycle, Published
from extender.evictions.dispatch import Dispatch
from extender.evictions.reprieves import Reprieves
from extender.gate import Gate
from extender.holds.barrier import Barrier
from extender.holds.looptimer import Errands, LoopTimer, Rounds
from extender.holds.machine.book import Book
from extender.holds.machine.cause import Cause
from extender.holds.machine.limits import Limits
from extender.holds.mirror import MirrorFacts, listen
from extender.kube.decode import pods
from extender.leadership.leadership import Leadership
from extender.leadership.succession import LOOK_S as TERM_LOOK_S
from extender.metrics import Metrics
from extender.plan.decision import NO_PLAN
from extender.plan.planner import make_plan
from extender.policyfile import PolicyFile
from extender.ports import Clock, ClusterPorts, Mandate, WakeOrder
from extender.promises.arrivals import Arrivals
from extender.promises.ledger import LOOK_S, Ledger
from extender.promises.tickets import Tickets
from extender.reporting.findings import Findings
from extender.reporting.holdnews import HoldNews
from extender.reporting.journal import Journal
from extender.reporting.reporter import Reporter
from extender.settings import Settings
from extender.tls import rotation
from extender.tls.rotation import Certificates
from extender.web.app import create_app
from extender.web.hooks import Hooks


class Runtime:
    """One extender, put together; *reach* gives the cluster, real or simulated, to hear and act."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        reach: Callable[[Cluster, Metrics, Mandate], ClusterPorts],
        certificates: Sequence[Certificates] = (),
    ) -> None:
        metrics, journal, published = Metrics(), Journal(), Published()
        policies = PolicyFile(settings.config)
        limits = Limits.of(settings)
        self._commit_s = limits.commit_s

        # What is heard, and whether we may act upon it.
        timer = LoopTimer(loop)
        cluster = Cluster(
            clock,
            QueuePolicy.of(settings),
            stuck_s=settings.stuck_s,
            budgets_are_gangs=settings.budgets_are_gangs,
        )
        self._leadership = leadership = Leadership(settings, clock, timer, metrics)
        self._ports = ports = reach(cluster, metrics, leadership.mandate)
        leadership.stand(ports.leases, is_warm=lambda: not cluster.readiness())

        # What is promised and answered.
        def wake(orders: list[WakeOrder]) -> None:
            metrics.wakes.inc(len(orders))
            ports.waker.wake(orders)

        ledger = Ledger(cluster, clock, wake=wake, ticket_s=settings.ticket_s)
        self._rounds = Rounds(timer, ledger.look_after, every_s=LOOK_S)
        arrivals = Arrivals(cluster, ledger, clock, grace_s=settings.arrival_grace_s)
        gate = Gate(
            cluster, ledger, arrivals, published, settings.prefer, settings.exempt_namespace
        )
        news = HoldNews(metrics, cluster, ports.announcer, clock, settings.bind_timeout_s)
        self._barrier = barrier = Barrier(
            Book(
                MirrorFacts(cluster, ledger),
                limits,
                chance=random.random,
                closed=Cause.LEASE_LOST if leadership.is_shared else None,
            ),
            binder=ports.binder,
            groups=ports.groups,
            inflight=ledger,
            undo=ports.undo,
            timer=timer,
            clock=clock,
            observer=news,
        )
        listen(cluster, ledger, barrier)
        ledger.on_given_back(news.ticket_given_back)
        arrivals.on_incomplete(barrier.still_incomplete)

        def may_plan() -> list[str]:
            closed = barrier.closed
            return (
                cluster.readiness()
                or leadership.readiness()
                or ([f"binds: {closed}"] if closed else [])
            )

        def may_answer() -> list[str]:
            return may_plan() or published.readiness()

        self.hooks = Hooks(
            gate=gate,
            barrier=barrier,
            read_pod=pods.reader(
                frozenset(settings.scheduler_name),
                cluster.seen,
                cluster.membership,
                exempt=frozenset(settings.exempt_namespace),
            ),
            readiness=may_answer,
            clock=clock,
            metrics=metrics,
            standby=leadership.readiness,
        )

        # What is planned and carried out.
        dispatch = Dispatch(
            evictor=ports.evictor,
            announcer=ports.announcer,
            journal=journal,
            metrics=metrics,
            clock=clock,
            reprieves=Reprieves(min_run_s=settings.min_run_s),
            dry_run=settings.dry_run,
        )
        audit = Audit()
        findings = Findings(
            lambda seen: (*audit(seen), *policies.findings()), ports.announcer, clock
        )
        self._reporter = Reporter(
            writer=ports.status,
            announcer=ports.announcer,
            journal=journal,
            findings=findings,
            metrics=metrics,
            clock=clock,
        )
        self._errands = Errands(timer)
        self._cycle = Cycle(
            cluster=cluster,
            published=published,
            promises=Tickets(cluster, ledger, arrivals, clock, self._errands),
            make_plan=lambda snapshot: make_plan(
                snapshot, policies.current(), around=metrics.time_action
            ),
            dispatch=dispatch,
            reporter=self._reporter,
            clock=clock,
            metrics=metrics,
            readiness=may_plan,
        )
        dispatch.on_objection(self._cycle.poke)

        # What belongs to a term: promises, holds and the plan.
        def forget() -> None:
            arrivals.forget()
            ledger.forget()
            published.plan = NO_PLAN

        def begun() -> None:
            forget()  # what a pass that was under way has promised since
            if not self._is_draining:
                barrier.open()
            self._cycle.poke()

        def ended() -> None:
            if not self._is_draining:
                barrier.lose_lease()
            forget()

        self._is_draining = False
        self._terms = Rounds(timer, leadership.look, every_s=TERM_LOOK_S)
        leadership.on_change(begun=begun, ended=ended)

        # What is told to those who look.
        for each in certificates:
            each.show_in(metrics)
        self._looks = [Rounds(timer, each.look, every_s=rotation.LOOK_S) for each in certificates]
        metrics.holds.set_function(lambda: barrier.holds)
        self.pages = create_app(
            journal=journal,
            findings=lambda: findings.current,
            policies=policies,
            metrics=metrics,
            readiness=may_answer,
            warmth=cluster.readiness,
            standby=leadership.readiness,
            notes=lambda: [*news.notes(), *(each.problem for each in certificates if each.problem)],
            silence=lambda: cluster.freshness.silence(clock.monotonic()),
        )

    @property
    def holds(self) -> int:
        """Count the binds that wait or are under way."""
        return self._barrier.holds

    def start(self) -> None:
        """Listen to the cluster, plan, and tell."""
        self._ports.start()
        self._reporter.start()
        for each in (self._rounds, *self._looks):
            each.start()
        if self._leadership.is_shared:
            self._terms.start()
            self._leadership.start()
        self._cycle.start()

    def drain(self) -> None:
        """Refuse what waits at the barrier, and whatever comes."""
        self._is_draining = True
        self._barrier.shut_down()
        self._leadership.drain()

    async def finish(self) -> None:
        """Wait for what was sent to the API server, then end every thread and connection.

        The lease goes back before the threads end: nothing is sent by now, and somebody waits.
        """
        sent = asyncio.wrap_future(self._barrier.shut_down())
        await asyncio.wait({sent}, timeout=self._commit_s)
        await asyncio.to_thread(self._leadership.resign)
        self.stop()
        await self._ports.aclose()

    def stop(self) -> None:
        """End every thread."""
        for each in (self._rounds, self._terms, *self._looks):
            each.stop()
        self._errands.end()
        self._cycle.stop()
        self._reporter.stop()
        self._ports.stop()

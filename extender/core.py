"""Constructs the parts that decide, and connects them: reservations, gate, permit and planning.

`wiring` adds what a real extender has around them (leadership, status, pages), `sim` runs them in
virtual time. Listeners are called in the order in which they are registered: a pod event reaches
the ledger before the permit runner, which asks the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from extender.cache.cluster import Cluster
from extender.clock import LoopTimer
from extender.evictions.preemption import Preemption
from extender.hooks.gate import Gate
from extender.metrics import Metrics
from extender.model.gang import GangKey
from extender.model.pod import Pod, PodUid
from extender.model.snapshot import Snapshot
from extender.permit.facts import CacheFacts
from extender.permit.machine import StateMachine
from extender.permit.messages import Cause
from extender.permit.runner import Observer, PermitRunner
from extender.permit.timeouts import Timeouts
from extender.planner.plan import Plan
from extender.planning_loop import CycleReporter, EvictionDispatch, PlanningLoop, PublishedPlan
from extender.ports import Binder, Clock, GroupReader, PartialGangEvictor, WakeOrder
from extender.reservations.apply_plan import InLoop, PlanApplier, at_once
from extender.reservations.arrivals import ArrivingGangs
from extender.reservations.ledger import Ledger
from extender.settings import Settings


class Core:
    """The deciding parts of one extender."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        *,
        clock: Clock,
        timer: LoopTimer,
        timeouts: Timeouts,
        chance: Callable[[], float],
        wake: Callable[[Sequence[WakeOrder]], None],
        binder: Binder,
        groups: GroupReader,
        undo: PartialGangEvictor,
        observer: Observer,
        make_plan: Callable[[Snapshot], Plan],
        dispatch: EvictionDispatch,
        reporter: CycleReporter,
        metrics: Metrics,
        why_not_plan: Callable[[], list[str]] = list,
        meanwhile: Callable[[], object] = lambda: None,
        in_loop: InLoop = at_once,
        closed: Cause | None = None,
    ) -> None:
        """Binds are refused as *closed* until the permit runner is opened."""
        self.cluster = cluster
        self.published = published = PublishedPlan()
        self.ledger = ledger = Ledger(
            cluster, clock, wake=wake, reservation_s=settings.reservation_s
        )
        self.arrivals = ArrivingGangs(cluster, ledger, clock, grace_s=settings.arrival_grace_s)
        exempt = frozenset(settings.exempt_namespace)
        preemption = Preemption(cluster, published, ledger.check_queue, clock.monotonic)
        self.gate = Gate(
            cluster, ledger, self.arrivals, published, preemption, clock, settings.prefer, exempt
        )
        facts = CacheFacts(
            cluster, ledger, may_lose=preemption.may_lose, may_lose_all=preemption.may_lose_all
        )
        self.permit = PermitRunner(
            StateMachine(facts, timeouts, chance=chance, closed=closed),
            binder=binder,
            groups=groups,
            ledger=ledger,
            undo=undo,
            timer=timer,
            clock=clock,
            observer=observer,
        )
        self.planning = PlanningLoop(
            cluster=cluster,
            published=published,
            applier=PlanApplier(cluster, ledger, self.arrivals, clock, in_loop),
            make_plan=make_plan,
            dispatch=dispatch,
            reporter=reporter,
            clock=clock,
            metrics=metrics,
            why_not_ready=why_not_plan,
            meanwhile=meanwhile,
        )
        cluster.watch_pods(cluster.show_liveness)
        connect(cluster, ledger, self.permit)
        cluster.pending_evictions.granted = preemption.may_leave
        cluster.on_change(self.planning.cluster_changed)
        cluster.liveness.on_change(lambda _: self.planning.request_cycle())
        self.arrivals.on_incomplete(self.permit.still_incomplete)


def connect(cluster: Cluster, ledger: Ledger, permit: PermitRunner) -> None:
    """Notify *ledger* and *permit* of changes in the cluster."""

    def on_pod(uid: PodUid, pod: Pod | None) -> None:
        ledger.pod_changed(uid, pod)
        gang: GangKey | None = cluster.gang_of(uid)
        permit.pod_changed(uid, gang)
        if pod is not None and pod.refusal and not pod.is_woken and gang is not None:
            permit.sibling_unschedulable(uid, gang)

    cluster.watch_pods(on_pod)
    ledger.on_released(permit.withdrawn)
    cluster.on_group(permit.group_changed)
    cluster.partial_gangs.on_found(permit.found_partial)
    permit.on_partial(cluster.bound_in_part)
    cluster.on_node(lambda name, _: permit.node_changed(name))

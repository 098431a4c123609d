"""Gate, planning loop and ledger with a small cluster. Tests run cycles and set the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.reservation_table import Reservation, Stage
from extender.evictions.preemption import Preemption
from extender.hooks.gate import Filtered, Gate
from extender.metrics import Metrics
from extender.model.gang import GangKey, Membership
from extender.model.pod import Pod
from extender.model.snapshot import Snapshot
from extender.planner.plan import DirectAdmission, Plan
from extender.planner.planner import make_plan
from extender.planning_loop import PlanningLoop, PublishedPlan
from extender.ports import WakeOrder
from extender.reservations.apply_plan import PlanApplier
from extender.reservations.arrivals import ArrivingGangs
from extender.reservations.ledger import Ledger
from extender.sim.clock import VirtualClock
from tests.builders import GANG, cache, member_of, node, pod, uid

NODES = ["n1", "n2"]
OPEN = Plan(direct_admission={"default": DirectAdmission()})
GRACE_S = 3.0


class World:
    """Two nodes of four cpus by default. No plan has been made until `turn`."""

    def __init__(
        self,
        *items: Any,
        nodes: list[str] = NODES,
        plan: Plan | None = None,
        prefer: str = "nothing",
    ) -> None:
        self.clock = VirtualClock()
        self.cluster = cache(*map(node, nodes), *items, clock=self.clock)
        self.table = self.cluster.reservations
        self.published = PublishedPlan()
        self.make_plan: Callable[[Snapshot], Plan] = make_plan
        self._meanwhile: Callable[[], object] = lambda: None
        #: Why no plan may be made.
        self.why_not_ready: list[str] = []
        #: kube-scheduler works through its queue all the time.
        self.is_busy = False
        self.woken: list[WakeOrder] = []
        self.wake: Callable[[list[WakeOrder]], None] = self.woken.extend
        self.incomplete: list[GangKey] = []
        self.passes: list[Plan] = []
        self.ledger = Ledger(
            self.cluster,
            self.clock,
            wake=lambda orders: self.wake(orders),
            reservation_s=20.0,
        )
        self.arrivals = ArrivingGangs(
            self.cluster,
            self.ledger,
            self.clock,
            grace_s=GRACE_S,
        )
        self.arrivals.on_incomplete(self.incomplete.append)
        monotonic = self.clock.monotonic
        self.preemption = Preemption(
            self.cluster, self.published, self.ledger.check_queue, monotonic
        )
        self.gate = Gate(
            self.cluster,
            self.ledger,
            self.arrivals,
            self.published,
            self.preemption,
            self.clock,
            prefer,
        )
        #: Called before every step that the planner's thread runs in the event loop.
        self.between: Callable[[], None] = lambda: None
        self.applier = PlanApplier(
            self.cluster, self.ledger, self.arrivals, self.clock, self._in_loop
        )
        self.cycle = PlanningLoop(
            cluster=self.cluster,
            published=self.published,
            applier=self.applier,
            make_plan=self._make_plan,
            dispatch=self,
            reporter=self,
            clock=self.clock,
            metrics=Metrics(),
            why_not_ready=lambda: self.why_not_ready,
        )
        self.cluster.watch_pods(self.cluster.show_liveness)
        self.cluster.watch_pods(self.ledger.pod_changed)
        self.cluster.on_change(self.cycle.cluster_changed)
        if plan is not None:
            self.publish(plan)

    def _make_plan(self, snapshot: Snapshot) -> Plan:
        plan = self.make_plan(snapshot)
        self._meanwhile()
        return plan

    def publish(self, plan: Plan) -> None:
        self.published.plan = plan
        self.ledger.use_plan(plan)

    def _in_loop(self, step: Callable[[], bool]) -> bool:
        self.between()
        return step()

    def protect(self, snapshot: Snapshot) -> Snapshot:
        return snapshot

    def send(self, snapshot: Snapshot, plan: Plan) -> None:
        self.passes.append(plan)

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        self.passes.append(plan)

    # What happens

    def see(self, *items: Any) -> None:
        for item in items:
            self.cluster.apply(Upsert(item))

    def lose_pod(self, name: str) -> None:
        self.cluster.apply(Delete(Kind.POD, uid(name)))

    def ask(
        self, name: str, gang: str = "train", offered: list[str] = NODES, **rest: Any
    ) -> Filtered:
        """Let kube-scheduler ask about a member."""
        return self.gate.filter(pod(name, **rest), member_of(gang), offered)

    def ask_single(
        self, name: str, offered: list[str] = NODES, queue: str = "", **rest: Any
    ) -> Filtered:
        """Let kube-scheduler ask about an ordinary pod."""
        membership = Membership(key=GangKey(f"a/pod:{name}"), queue=queue)
        return self.gate.filter(pod(name, **rest), membership, offered)

    def promise(self, name: str, on: str, gang: GangKey = GANG, **rest: Any) -> None:
        assert self.ledger.reserve(pod(name, **rest), gang, on, "default")

    def turn(
        self, after_s: float = 0.0, meanwhile: Callable[[], object] | None = None
    ) -> list[str]:
        """Run one planning cycle and return the pods it woke.

        What happens *meanwhile* is not in the plan.
        """
        self._meanwhile = meanwhile or (lambda: None)
        self.clock.advance(after_s)
        if self.is_busy:
            self.ledger.refused(uid("another"))
        self.woken.clear()
        self.cycle.run_once()
        return sorted(order.name for order in self.woken)

    def wait(self, seconds: float) -> list[str]:
        """Let time pass in the event loop without a planning cycle, and return the pods woken."""
        self.woken.clear()
        until = self.clock.seconds + seconds
        while self.clock.seconds < until:
            self.clock.advance(min(0.5, until - self.clock.seconds))
            if self.is_busy:
                self.ledger.refused(uid("another"))
            while self.ledger.check_due():
                pass
        return sorted(order.name for order in self.woken)

    # What is

    def of(self, name: str) -> Reservation:
        found = self.table.of(uid(name))
        assert found is not None
        return found

    def places(self, gang: GangKey = GANG) -> dict[str, str]:
        return {each.pod.name: each.node for each in self.table.of_gang(gang)}

    def stages(self, gang: GangKey = GANG) -> dict[str, Stage]:
        return {each.pod.name: each.stage for each in self.table.of_gang(gang)}

    def backs_off_for(self, gang: GangKey = GANG) -> float:
        return round(self.table.backs_off_for(gang), 3)

    @property
    def kept(self) -> list[Pod]:
        """Placeholders of members that are still to come."""
        return [each.pod for each in self.table.of_gang(GANG) if each.pod.is_placeholder]

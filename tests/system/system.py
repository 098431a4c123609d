"""The extender under test, assembled for a story. Only this module knows its parts.

It cycles events and calls to the parts (watch, filter, bind, cycles, time) and shows what they have
reserved. When the parts change, this file follows, and the stories stay as they are.

A planning cycle stops after its snapshot, after its plan, and before every step that it runs in the
event loop, so that anything may happen in between. Its slices are as small as possible: every
member of a gang is a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from extender.cache.changes import Change
from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Stage
from extender.clock import PeriodicTask
from extender.core import Core
from extender.hooks.gate import Filtered
from extender.liveness import SchedulerLiveness
from extender.metrics import Metrics
from extender.model.gang import GangKey, Membership
from extender.model.pod import Pod, PodUid, Shape
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import Liveness, Snapshot
from extender.permit.messages import CallId
from extender.permit.runner import Observer
from extender.permit.timeouts import Timeouts
from extender.planner import policy_parser
from extender.planner.plan import Eviction, Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from extender.ports import BindOrder, EvictOrder, WakeOrder
from extender.reservations import apply_plan
from extender.reservations.ledger import LOOK_S
from extender.reservations.probe import LOOK_S as PROBE_LOOK_S, SchedulerProbe
from extender.settings import Settings
from extender.sim.api_server import ApiServer
from extender.sim.clock import VirtualClock
from tests.doubles import RecordingObserver

from .stepwise import Stepwise

SCHEDULER = "gang-scheduler"
RESERVATION_S = 20.0
HOLD_S = 30.0
GRACE_S = 3.0

SNAPSHOT_TAKEN = "snapshot taken"


class SystemReservation(NamedTuple):
    """Capacity reserved on a node for a pod, or for a member still to come."""

    uid: PodUid
    gang: GangKey
    #: Empty while kube-scheduler is still choosing.
    node: str
    requests: Resources
    #: It has no bind yet that waits or is sent.
    is_tentative: bool
    #: Reserved for a member that does not exist yet.
    is_placeholder: bool


class System:
    """Cache, reservations, gate, planning loop and permit runner, wired as in the extender."""

    def __init__(
        self, time: VirtualClock, api: ApiServer, policy: Policy = policy_parser.DEFAULT
    ) -> None:
        self.metrics = Metrics()
        self._policy = policy
        self._time = time
        self._api = api
        liveness = SchedulerLiveness((SCHEDULER,), time, patience_s=RESERVATION_S)
        self._cluster = cluster = Cluster(time, liveness=liveness)
        cluster.partial_gangs.forget()  # a term begins
        core = Core(
            Settings(reservation_s=RESERVATION_S, arrival_grace_s=GRACE_S),
            cluster,
            clock=time,
            timer=time,
            timeouts=Timeouts.within(HOLD_S, HOLD_S + 15),
            chance=lambda: 0.5,
            wake=self._wake,
            binder=api,
            groups=api,
            undo=self,
            observer=self._observer(),
            make_plan=self._make_plan,
            dispatch=self,
            reporter=self,
            metrics=self.metrics,
            in_loop=self._in_loop,
        )
        self._published, self._gate, self._runner = core.published, core.gate, core.permit
        self._ledger, self._cycle = core.ledger, core.planning
        PeriodicTask(time, core.ledger.check_due, every_s=LOOK_S).start()
        PeriodicTask(
            time, SchedulerProbe(cluster, self._wake, list).probe, every_s=PROBE_LOOK_S
        ).start()
        self._running_cycle: Stepwise | None = None
        #: Planning cycles that were completed.
        self.cycles = 0

    def _observer(self) -> Observer:
        """Return the observers of the permit runner."""
        return RecordingObserver()

    # ── events ────────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> None:
        """Apply a change from the watch."""
        self._cluster.apply(change)

    def tick(self) -> None:
        """Let the planner's thread check whether a cycle is due, as it does periodically."""
        if self._running_cycle is None and self._cycle.is_due():
            self._run_cycle()
            self.cycles += 1

    def request_cycle(self) -> None:
        """Request a cycle, as the dispatcher of evictions does after an answer."""
        self._cycle.request_cycle()

    # ── calls of kube-scheduler ───────────────────────────────────────────────────────────

    def filter(
        self,
        pod: Pod,
        member: Membership,
        offered: Sequence[str],
        meanwhile: Callable[[], None] | None = None,
    ) -> Filtered:
        """Answer; *meanwhile* happens in the planner's thread.

        The event loop answers in one step, so everything that thread asks of it comes before.
        """
        if meanwhile is not None:
            meanwhile()
        self._gate.record_call(pod)
        answer = self._gate.filter(pod, member, offered)
        return Filtered(tuple(answer.nodes), answer.refused)

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        return self._gate.preempt(pod, member, victims)

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int:
        self._gate.record_bind(order.uid)
        return self._runner.bind(order, answer)

    def hang_up(self, call: int) -> None:
        self._runner.peer_gone(CallId(call))

    def _wake(self, orders: Sequence[WakeOrder]) -> None:
        for order in orders:
            self._cluster.liveness.pod_woken(order.uid, order.nomination)
        self._api.wake(orders)

    # ── the planner's thread, step by step ────────────────────────────────────────────────

    @property
    def is_planning(self) -> bool:
        return self._running_cycle is not None

    def begin_cycle(self) -> None:
        """Begin a planning cycle and stop at the checkpoint after its snapshot.

        The step before it only cleans up. A cycle that stopped there would see everything.
        """
        self._running_cycle = begun = Stepwise(self._run_cycle)
        while self._running_cycle is not None and begun.at != SNAPSHOT_TAKEN:
            self.continue_cycle()

    def continue_cycle(self) -> None:
        """Continue to the next checkpoint, if a cycle is running."""
        if self._running_cycle is not None and not self._running_cycle.go_on():
            self._running_cycle = None
            self.cycles += 1

    def finish_cycle(self) -> None:
        while self._running_cycle is not None:
            self.continue_cycle()

    def run_cycle(self) -> None:
        """Run a planning cycle, or finish the running one."""
        if self._running_cycle is None:
            self.begin_cycle()
        self.finish_cycle()

    def close(self) -> None:
        if self._running_cycle is not None:
            self._running_cycle.abandon()

    def _run_cycle(self) -> None:
        usual, apply_plan.SLICE = apply_plan.SLICE, 1
        try:
            self._cycle.run_once()
        finally:
            apply_plan.SLICE = usual

    def _make_plan(self, snapshot: Snapshot) -> Plan:
        self._stand_still(SNAPSHOT_TAKEN)
        plan = make_plan(snapshot, self._policy)
        self._stand_still("plan made")
        return plan

    def _in_loop(self, step: Callable[[], bool]) -> bool:
        self._stand_still("errand")
        return step()

    def _stand_still(self, name: str) -> None:
        if self._running_cycle is not None:
            self._running_cycle.checkpoint(name)

    # ── scheduler liveness ────────────────────────────────────────────────────────────────

    def mark_scheduler_live(self) -> None:
        """Receive a call of kube-scheduler about a pod deleted long ago."""
        self._cluster.liveness.hook_called(
            Pod(uid=PodUid("gone"), namespace="a", name="gone", shape=Shape(), scheduler=SCHEDULER)
        )

    def pod_woken(self, uid: PodUid, node: str) -> None:
        """Record a wake-up of a pod."""
        self._cluster.liveness.pod_woken(uid, node)

    def forget_scheduler(self) -> None:
        """Forget all calls, as after a restart of the extender or when a term begins."""
        self._cluster.liveness.forget()

    @property
    def liveness(self) -> Liveness:
        """Return the liveness of kube-scheduler."""
        return self._cluster.liveness.statuses()[SCHEDULER].liveness

    @property
    def overdue(self) -> int:
        """Count the pods that kube-scheduler should have called about."""
        return self._cluster.liveness.overdue(SCHEDULER)

    def reason(self, gang: GangKey) -> Reason:
        """Return the reason of a gang in the last plan."""
        return self._published().verdicts[gang].reason

    # ── reservations ──────────────────────────────────────────────────────────────────────

    def reservations(self) -> list[SystemReservation]:
        """Return all reservations."""
        return [
            SystemReservation(
                each.uid,
                each.gang,
                each.node,
                each.pod.requests,
                is_tentative=each.stage <= Stage.FILTERED,
                is_placeholder=each.pod.is_placeholder,
            )
            for gang in self._cluster.reservations.gangs()
            for each in self._cluster.reservations.of_gang(gang)
        ]

    # ── ports of the planning loop and the permit runner, mostly unused here ──────────────

    def protect(self, snapshot: Snapshot) -> Snapshot:
        return snapshot

    def send(self, snapshot: Snapshot, plan: Plan) -> None:
        self.evict(plan.evictions)

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        pass

    def evict_all(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        leaves(gang)
        self.evict(orders)

    def evict(self, victims: Sequence[Eviction | EvictOrder]) -> None:
        """Evicted pods are gone at once."""
        for victim in victims:
            if victim.uid in self._api.pods:
                self._api.delete_pod(victim.uid)

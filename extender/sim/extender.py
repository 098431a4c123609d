"""The extender in virtual time, wired as in production and called directly.

Its planner thread and its event loop are callbacks of one clock, so a run has one order of events
and the same seed gives the same run. Watches do not lag and the API server answers at once. Cycles
and calls take no time, but the interval between two cycles is that of production.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from extender.cache.changes import Change, Delete, Kind, kind_of
from extender.cache.cluster import Cluster
from extender.cache.queue_policy import QueuePolicy
from extender.core import Core
from extender.evictions.backoff import EvictionBackoff
from extender.evictions.runner import EvictionRunner
from extender.hooks.gate import Filtered
from extender.metrics import Metrics
from extender.model.gang import GangKey, Membership, Phase
from extender.model.pod import Pod
from extender.model.snapshot import Snapshot
from extender.permit.messages import CallId
from extender.permit.timeouts import Timeouts
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from extender.planning_loop import DEBOUNCE_S
from extender.ports import BindOrder, EventRecord
from extender.reservations.ledger import LOOK_S
from extender.settings import Settings
from extender.sim.api_server import ApiServer
from extender.sim.clock import VirtualClock
from extender.status.history import GangHistory

#: While a pod waits, time alone may change the plan: ageing, backfill reservations, backoffs.
RECHECK_S = 60.0


class DirectExtender:
    """Run cache, ledger, gate, planner and permit against one simulated API server."""

    def __init__(
        self,
        time: VirtualClock,
        api: ApiServer,
        policy: Policy,
        seed: int,
        settings: Settings,
        rest_s: float,
    ) -> None:
        self._rest_s = rest_s
        self._time, self._api = time, api
        metrics, history = Metrics(), GangHistory()
        # No scheduler name, so no liveness is tracked: this kube-scheduler never goes away.
        self._cluster = cluster = Cluster(time, QueuePolicy.of(settings))
        cluster.partial_gangs.forget()  # as when a lease begins
        self._history = history
        evictions = EvictionRunner(
            evictor=api,
            events=self,
            history=history,
            metrics=metrics,
            clock=time,
            backoff=EvictionBackoff(min_run_s=settings.min_run_s),
            pending=cluster.pending_evictions,
        )
        core = Core(
            settings,
            cluster,
            clock=time,
            timer=time,
            timeouts=Timeouts.of(settings),
            chance=Random(seed).random,  # noqa: S311
            wake=api.wake,
            binder=api,
            groups=api,
            undo=api,
            observer=self,
            make_plan=lambda snapshot: make_plan(snapshot, policy),
            dispatch=evictions,
            reporter=self,
            metrics=metrics,
        )
        self._ledger, self._gate = core.ledger, core.gate
        self._permit, self._planning = core.permit, core.planning
        evictions.on_objection(self.plan_soon)
        cluster.on_change(self.plan_soon)
        self._is_cycle_due = self._is_checking = False
        self._next_cycle_at = float("-inf")
        #: A change affects the admission of later pods, so a cycle runs even if no pod waits.
        self._is_required = False
        #: Something changed, and the cycle was deferred because no pod waits for it.
        self.is_deferred = False
        #: Returns whether no pod waits for a plan, so that a cycle would decide nothing.
        self.is_idle: Callable[[], bool] = lambda: False
        #: The number of cycles, and the gangs that were bound in part.
        self.cycles = 0
        self.partial: list[GangKey] = []
        #: Called with what a cycle saw and decided.
        self.on_cycle: Callable[[Snapshot, Plan], None] = lambda snapshot, plan: None

    # ── watch ─────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Make the first plan; call no hook before."""
        self._run_cycle()
        self._time.call_later(RECHECK_S, self._recheck)

    def apply(self, change: Change) -> None:
        """Apply a change that the watch delivers."""
        if _changes_admission(change):
            self._is_required = True
        self._cluster.apply(change)

    # ── called by kube-scheduler ──────────────────────────────────────────────────────────

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Answer as the filter hook does."""
        self._gate.record_call(pod)
        answer = self._gate.filter(pod, member, offered)
        self._watch_reservations()
        return answer

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Answer as the preempt hook does."""
        self._gate.record_call(pod)
        return self._gate.preempt(pod, member, victims)

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int:
        """Answer as the bind hook does."""
        self._gate.record_bind(order.uid)
        return self._permit.bind(order, answer)

    def hang_up(self, call: int) -> None:
        """Handle that kube-scheduler closed the connection of a bind."""
        self._permit.peer_gone(CallId(call))

    # ── the planner's thread ──────────────────────────────────────────────────────────────

    def plan_soon(self) -> None:
        """Schedule a cycle, after the delay that makes one cycle of a burst."""
        if not self._is_cycle_due:
            self._is_cycle_due = True
            wait_s = self._next_cycle_at - self._time.monotonic()
            self._time.call_later(max(DEBOUNCE_S, wait_s), self._run_or_defer)

    def _run_or_defer(self) -> None:
        """Run the cycle that is due, or defer it to `_recheck` when no pod needs it."""
        self._is_cycle_due = False
        self.is_deferred = self.is_idle() and not self._is_required
        if not self.is_deferred:
            self._run_cycle()

    def _run_cycle(self) -> None:
        self.is_deferred = self._is_required = False
        self._planning.run_once()
        self.cycles += 1
        self._next_cycle_at = self._time.monotonic() + self._rest_s
        self._watch_reservations()
        if self._planning.is_due():
            self.plan_soon()

    def _recheck(self) -> None:
        if self.is_deferred:
            self._run_cycle()
        elif self._api.has_unbound_pods:
            self.plan_soon()
        self._time.call_later(RECHECK_S, self._recheck)

    def _watch_reservations(self) -> None:
        """Check reservations as often as in production, as long as there are any."""
        if not self._is_checking and len(self._cluster.reservations):
            self._is_checking = True
            self._time.call_later(LOOK_S, self._check_reservations)

    def _check_reservations(self) -> None:
        self._is_checking = False
        while self._ledger.check_due():
            pass
        if self._cluster.reservations.is_backoff_over():
            self.plan_soon()
        self._watch_reservations()

    # ── ports ─────────────────────────────────────────────────────────────────────────────

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        """Write the phase of admitted gangs, as the status writer does."""
        self._history.note(snapshot, plan)
        for key, verdict in plan.verdicts.items():
            group = self._api.groups.get(key)
            if group and verdict.phase is Phase.INQUEUE and group.phase is Phase.PENDING:
                self._api.set_phase(key, group.uid, Phase.INQUEUE)
        self.on_cycle(snapshot, plan)

    def write(self, notice: EventRecord) -> None:
        """Discard the Event."""

    def released(self, cause: str, waited_s: float) -> None:
        """Ignore: answers are not counted."""

    def partial_commit(self, gang: GangKey) -> None:
        """Record the gang: with a healthy API server there is none."""
        self.partial.append(gang)

    def peer_closed(self, age_s: float) -> None:
        """Ignore: closed connections are not counted."""

    def learnt_timeout(self, seconds: float | None) -> None:
        """Ignore: timeouts are not shown."""


def _changes_admission(change: Change) -> bool:
    """Return whether filter, which uses the last plan, may admit other pods after *change*."""
    kind = change.kind if isinstance(change, Delete) else kind_of(change.item)
    return kind not in (Kind.POD, Kind.GROUP)

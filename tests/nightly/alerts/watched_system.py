"""The extender of a story with all its metrics: the real reporter, evictions and scrape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from prometheus_client import generate_latest

from extender.evictions.runner import EvictionRunner
from extender.findings.audit import Audit
from extender.forecast.forecaster import Forecaster
from extender.hooks.gate import Filtered
from extender.kube.metrics import PrometheusApiMetrics
from extender.model.gang import Membership
from extender.model.pod import Pod
from extender.model.snapshot import Snapshot
from extender.permit.runner import Observer
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.policy import Policy
from extender.policy_file import PolicyFile
from extender.ports import BindOrder, EvictOrder, EvictOutcome, EvictResult
from extender.sim.api_server import ApiServer
from extender.sim.clock import VirtualClock
from extender.status.findings import Findings
from extender.status.history import GangHistory
from extender.status.notes import BindNotes, SchedulerNotes
from extender.status.reporter import Reporter
from extender.web.app import create_app
from extender.web.dashboard.context import AppContext
from tests.doubles import RecordingAnnouncer, RecordingWriter, settled
from tests.system.system import HOLD_S, System


class WatchedSystem(System):
    """A `System` with a metrics page."""

    def __init__(
        self, time: VirtualClock, api: ApiServer, policy: Policy = policy_parser.DEFAULT
    ) -> None:
        self._events = RecordingAnnouncer()
        self._is_broken = False
        super().__init__(time, api, policy)
        history = GangHistory()
        findings = Findings(Audit(), self._events, time)
        self._evictions = EvictionRunner(
            evictor=_Evictor(api),
            events=self._events,
            history=history,
            metrics=self.metrics,
            clock=time,
            pending=self._cluster.pending_evictions,
        )
        self._evictions.on_objection(self.request_cycle)
        self._reporter = Reporter(
            writer=RecordingWriter(),
            events=self._events,
            history=history,
            findings=findings,
            metrics=self.metrics,
            clock=time,
        )
        self._api_metrics = PrometheusApiMetrics(self.metrics)
        notes = SchedulerNotes(self._cluster.liveness, self.metrics, time)
        self._cluster.liveness.on_change(notes.liveness_changed)
        policies = PolicyFile()
        create_app(
            AppContext(
                history=history,
                findings=lambda: findings.current,
                policies=policies,
                metrics=self.metrics,
                why_not_ready=self._published.why_not_ready,
                warmth=list,
                standby=list,
                notes=list,
                silence=dict,
                forecaster=Forecaster(policies.current),
            )
        )

    def _observer(self) -> Observer:
        # Called before the cache that it writes events from exists.
        return BindNotes(self.metrics, self._cluster, self._events, self._time, HOLD_S + 15)

    def scrape(self) -> str:
        """Return the text of `/metrics`."""
        return generate_latest(self.metrics.registry).decode()

    def break_cycles(self) -> None:
        """Let no cycle finish from now on, as a bug in it would."""
        self._is_broken = True

    # Events

    def tick(self) -> None:
        if not self._is_broken:
            super().tick()
        self._reporter.work()

    def filter(
        self,
        pod: Pod,
        member: Membership,
        offered: Sequence[str],
        meanwhile: Callable[[], None] | None = None,
    ) -> Filtered:
        answer = super().filter(pod, member, offered, meanwhile)
        self.metrics.hook_answers.labels("filter", "passed").inc()
        return answer

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int:
        def count(error: str) -> None:
            self._api_metrics.request_done("create", "pods/binding", 409 if error else 201, 0.02)
            self.metrics.hook_answers.labels("bind", "refused" if error else "bound").inc()
            answer(error)

        return super().bind(order, count)

    def protect(self, snapshot: Snapshot) -> Snapshot:
        return self._evictions.protect(snapshot)

    def send(self, snapshot: Snapshot, plan: Plan) -> None:
        self._evictions.send(snapshot, plan)

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        self._reporter.report(snapshot, plan)


class _Evictor:
    """Evicted pods are deleted at once."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        for order in orders:
            if order.uid in self._api.pods:
                self._api.delete_pod(order.uid)
        return [settled(EvictOutcome(EvictResult.LEAVING)) for _ in orders]

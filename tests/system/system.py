"""The extender under test, put together for a story: the only module here that knows its parts.

It says what the parts are asked and told (watch, filter, bind, passes, time) and what they have
promised. When the parts change, this file follows, and the stories stay as they are.

A pass of the planner stands still after the snapshot, after the plan, before every promise it
makes and before it is published, so that anything may happen in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from extender.cache.changes import Change
from extender.cache.cluster import Cluster
from extender.cache.inflight import Stage
from extender.cycle import Cycle, Published
from extender.gate import Filtered as Answer
from extender.gate import Gate
from extender.holds.barrier import Barrier
from extender.holds.machine.book import Book
from extender.holds.machine.events import CallId
from extender.holds.machine.limits import Limits
from extender.holds.mirror import MirrorFacts, Promises, listen
from extender.metrics import Metrics
from extender.model.gang import GangKey
from extender.model.membership import Membership
from extender.model.pod import Pod, PodUid
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.plan.decision import Eviction, Plan
from extender.plan.planner import make_plan
from extender.plan.policy import policies
from extender.plan.policy.options import Policy
from extender.ports import BindOrder, EvictOrder
from extender.promises.arrivals import Arrivals
from tests.holds.doubles import Notebook

from .api_server import ApiServer
from .scheduler import Filtered
from .stepwise import Stepwise
from .virtual_time import VirtualTime

TICKET_S = 20.0
HOLD_S = 30.0
GRACE_S = 3.0


class Promise(NamedTuple):
    """Room kept on a node for a pod, or for a member still to come."""

    uid: PodUid
    gang: GangKey
    node: str
    requests: Resources
    #: kube-scheduler was told, and has not come back with a bind that we hold or send.
    is_tentative: bool
    #: Kept for a member that does not exist yet.
    is_placeholder: bool


class System:
    """Cache, promises, gate, cycle and barrier, wired as the real ones are."""

    def __init__(
        self, time: VirtualTime, api: ApiServer, policy: Policy = policies.DEFAULT
    ) -> None:
        self._policy = policy
        self._time = time
        self._api = api
        self._cluster = cluster = Cluster(time)
        self._published = Published()
        self._arrivals = Arrivals(
            cluster,
            time,
            grace_s=GRACE_S,
            still_incomplete=lambda gang: self._barrier.still_incomplete(gang),
        )
        self._gate = Gate(
            cluster, self._arrivals, self._published, lambda gang: self._cycle.give_back(gang)
        )
        self._cycle = Cycle(
            cluster=cluster,
            published=self._published,
            gate=self._gate,
            arrivals=self._arrivals,
            make_plan=self._make_plan,
            waker=api,
            departures=self,
            reporter=self,
            clock=time,
            metrics=Metrics(),
            readiness=list,
            scheduler_idle_s=lambda: time.monotonic() - self._asked_at,
            ticket_s=TICKET_S,
        )
        self._barrier = Barrier(
            Book(
                MirrorFacts(cluster, self._gate.passers),
                Limits.within(HOLD_S, HOLD_S + 15),
                chance=lambda: 0.5,
            ),
            binder=api,
            groups=api,
            inflight=Promises(cluster, self._gate.passers, time),
            undo=self,
            timer=time,
            clock=time,
            observer=Notebook(),
        )
        listen(cluster, self._gate.passers, self._barrier)
        self._asked_at = float("-inf")
        self._pass: Stepwise | None = None
        self._meanwhile: Callable[[], None] | None = None
        #: Passes that were made to their end.
        self.passes = 0
        self.wishes_for_a_pass = 0
        self._stand_still_at_every_promise()
        self._stand_still_inside_a_refusal()

    # ── told ──────────────────────────────────────────────────────────────────────────────

    def hear(self, change: Change) -> None:
        """Take in what the watch brings."""
        self._cluster.apply(change)

    def tick(self) -> None:
        """Let the planner's thread look whether it is time for a pass, as it does by itself."""
        if self._pass is None and self._cycle.is_due():
            self._cycle.run_once()
            self.passes += 1

    def ask_for_a_pass(self) -> None:
        """Ask as the dispatcher of evictions does when an answer came."""
        self._cycle.poke()

    # ── asked by kube-scheduler ───────────────────────────────────────────────────────────

    def filter(
        self,
        pod: Pod,
        member: Membership,
        offered: Sequence[str],
        meanwhile: Callable[[], None] | None = None,
    ) -> Filtered:
        """Answer; *meanwhile* happens in other threads between looking and refusing."""
        self._asked_at = self._time.monotonic()
        self._meanwhile = meanwhile
        answer = self._gate.filter(pod, member, offered)
        self._meanwhile = None
        return Filtered(tuple(answer.nodes), answer.refused)

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int:
        return self._barrier.bind(order, answer)

    def hang_up(self, call: int) -> None:
        self._barrier.peer_gone(CallId(call))

    # ── the planner's thread, step by step ────────────────────────────────────────────────

    @property
    def is_planning(self) -> bool:
        return self._pass is not None

    def begin_pass(self) -> None:
        """Begin a pass and stop at its first checkpoint, when the snapshot was taken."""
        self._pass = Stepwise(self._cycle.run_once)
        self.continue_pass()

    def continue_pass(self) -> None:
        """Go on to the next checkpoint, if a pass is under way."""
        if self._pass is not None and not self._pass.go_on():
            self._pass = None
            self.passes += 1

    def finish_pass(self) -> None:
        while self._pass is not None:
            self.continue_pass()

    def make_pass(self) -> None:
        """Make a pass, or finish the one under way."""
        if self._pass is None:
            self.begin_pass()
        self.finish_pass()

    def close(self) -> None:
        if self._pass is not None:
            self._pass.abandon()

    def _make_plan(self, snapshot: Snapshot) -> Plan:
        self._stand_still("snapshot taken")
        plan = make_plan(snapshot, self._policy)
        self._stand_still("plan made")
        return plan

    def _stand_still(self, name: str) -> None:
        if self._pass is not None:
            self._pass.checkpoint(name)

    def _stand_still_at_every_promise(self) -> None:
        inflight, allowance = self._cluster.inflight, self._arrivals.allowance
        reserve, renew = inflight.reserve, allowance.renew

        def reserve_after_a_stop(*arguments: Any, **more: Any) -> bool:
            self._stand_still("promise")
            return reserve(*arguments, **more)

        def renew_after_a_stop(plan: Plan) -> None:
            self._stand_still("published")
            renew(plan)

        inflight.reserve = reserve_after_a_stop  # type: ignore[method-assign]
        allowance.renew = renew_after_a_stop  # type: ignore[method-assign]

    def _stand_still_inside_a_refusal(self) -> None:
        refuse = self._gate._refuse

        def refuse_after_a_stop(*arguments: Any) -> Answer:
            meanwhile, self._meanwhile = self._meanwhile, None
            if meanwhile is not None:
                meanwhile()
            return refuse(*arguments)

        self._gate._refuse = refuse_after_a_stop  # type: ignore[method-assign]

    # ── what it promised ──────────────────────────────────────────────────────────────────

    def promises(self) -> list[Promise]:
        """Give every promise there is."""
        return [
            Promise(
                each.uid,
                each.gang,
                each.node,
                each.pod.requests,
                is_tentative=each.stage <= Stage.PASSED,
                is_placeholder=each.pod.is_spare,
            )
            for each in self._cluster.inflight._by_uid.values()
        ]

    # ── ports of the cycle and the barrier that these stories need little of ──────────────

    def spare(self, snapshot: Snapshot) -> Snapshot:
        return snapshot

    def carry_out(self, snapshot: Snapshot, plan: Plan) -> None:
        self.evict(plan.evictions)

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        pass

    def take_back(self, gang: GangKey, orders: Sequence[EvictOrder]) -> None:
        self.evict(orders)

    def evict(self, victims: Sequence[Eviction | EvictOrder]) -> None:
        """Pods that are asked to leave are gone at once."""
        for victim in victims:
            if victim.uid in self._api.pods:
                self._api.delete_pod(victim.uid)

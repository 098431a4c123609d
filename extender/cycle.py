"""Wake, snapshot, plan, publish: one thread, one pass at a time.

A pass is woken by a change (after a short pause, so that a burst is one pass) and by a slow tick
that carries what only time changes: tickets that lapse, gangs whose backoff is over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from extender.cache.cluster import Cluster
from extender.gate import Gate
from extender.logs import event
from extender.metrics import Metrics
from extender.model.gang import Gang, GangKey
from extender.model.pod import Pod, PodUid
from extender.model.snapshot import Snapshot
from extender.plan.decision import NO_PLAN, Plan, Ticket
from extender.ports import Clock, WakeOrder, Waker

log = logging.getLogger(__name__)

#: A burst of changes becomes one pass.
DEBOUNCE_S = 0.02
TICK_S = 1.0
#: A woken pod that has not come to filter by then is woken again.
WAKE_AGAIN_S = 3.0
#: First pause of a gang whose ticket lapsed; see `Inflight.back_off`.
LAPSE_BACKOFF_S = 10.0


class Published:
    """The last plan, as one reference: readers never see half of one."""

    def __init__(self) -> None:
        self.plan: Plan = NO_PLAN

    def __call__(self) -> Plan:
        """Give the last plan."""
        return self.plan


class Cycle:
    """Runs passes until stopped."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        published: Published,
        gate: Gate,
        make_plan: Callable[[Snapshot], Plan],
        waker: Waker,
        clock: Clock,
        metrics: Metrics,
        readiness: Callable[[], list[str]],
        ticket_s: float,
    ) -> None:
        self._cluster = cluster
        self._published = published
        self._gate = gate
        self._make_plan = make_plan
        self._waker = waker
        self._clock = clock
        self._metrics = metrics
        self._readiness = readiness
        self._ticket_s = ticket_s
        self._started = clock.now()
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cycle", daemon=True)
        self._woken: dict[PodUid, float] = {}

    def start(self) -> None:
        """Begin."""
        self._cluster.on_change(self._changed.set)
        self._thread.start()

    def stop(self) -> None:
        """End after the pass under way."""
        self._stopping.set()
        self._changed.set()
        self._thread.join(timeout=10)

    def poke(self) -> None:
        """Ask for a pass soon."""
        self._changed.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait(TICK_S)
            self._stopping.wait(DEBOUNCE_S)
            self._changed.clear()
            if self._readiness():
                continue
            try:
                self.run_once()
            except Exception:
                # A pass that fails must not end planning; the next change brings another.
                log.exception("cycle failed")
                self._stopping.wait(TICK_S)

    def run_once(self) -> None:
        """Make one pass."""
        self._let_tickets_lapse()
        with self._metrics.cycle_seconds.labels("snapshot").time():
            snapshot = self._cluster.snapshot(self._clock.now())
        with self._metrics.cycle_seconds.labels("plan").time():
            plan = self._make_plan(snapshot)
        with self._metrics.cycle_seconds.labels("publish").time():
            self._publish(snapshot, plan)

    def _publish(self, snapshot: Snapshot, plan: Plan) -> None:
        orders: list[WakeOrder] = []
        for ticket in plan.tickets.values():
            orders += self._reserve(snapshot.gangs[ticket.gang], ticket)
        # Reservations stand before the plan that speaks of them: a filter call between the two
        # is refused once more instead of passing without one.
        self._published.plan = plan
        orders += self._still_asleep(snapshot)
        self._wake(orders)

    def _reserve(self, gang: Gang, ticket: Ticket) -> Iterable[WakeOrder]:
        pods = {pod.uid: pod for pod in gang.pods}
        lone = not gang.group.dialect
        for uid, node in ticket.placements.items():
            pod = pods[uid]
            if lone and uid not in self._gate.parked and pod.created > self._started:
                continue  # on its way to filter, where kube-scheduler chooses for it
            if self._cluster.inflight.reserve(pod, gang.key, node, self._clock.monotonic()):
                event(log, logging.DEBUG, "node reserved", gang=gang.key, pod=pod.key, node=node)
                if self._is_parked(pod):
                    yield WakeOrder(
                        uid=uid, namespace=pod.namespace, name=pod.name, gang=gang.key, node=node
                    )

    def _is_parked(self, pod: Pod) -> bool:
        """Ask whether kube-scheduler has put *pod* aside; it may have done so before our time."""
        return pod.uid in self._gate.parked or pod.created < self._started

    def _still_asleep(self, snapshot: Snapshot) -> Iterable[WakeOrder]:
        """Wake again whoever holds a reservation and did not come to use it."""
        late = self._clock.monotonic() - WAKE_AGAIN_S
        for reservation in self._cluster.inflight.unused_since(late):
            if self._woken.get(reservation.uid, 0.0) < late:
                yield WakeOrder(
                    uid=reservation.uid,
                    namespace=reservation.namespace,
                    name=reservation.name,
                    gang=reservation.gang,
                    node=reservation.node,
                )

    def _wake(self, orders: list[WakeOrder]) -> None:
        if not orders:
            return
        now = self._clock.monotonic()
        self._woken = {
            uid: at for uid, at in self._woken.items() if self._cluster.inflight.of(uid)
        } | {order.uid: now for order in orders}
        self._metrics.wakes.inc(len(orders))
        self._waker.wake(orders)

    def _let_tickets_lapse(self) -> None:
        for key in self._cluster.inflight.expire(self._clock.monotonic(), self._ticket_s):
            self.give_back(key)

    def give_back(self, key: GangKey) -> None:
        """Return the room reserved for a gang that could not use it, and let it wait a while."""
        self._cluster.inflight.give_back(key)
        self._cluster.inflight.back_off(key, self._clock.now() + LAPSE_BACKOFF_S)
        event(log, logging.INFO, "ticket given back", gang=key)
        self._changed.set()

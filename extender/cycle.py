"""Wake, snapshot, plan, publish, act: one thread, one pass at a time.

A pass is woken by a change (after a short pause, so that a burst is one pass) and by a slow tick
that carries what only time changes: tickets that lapse, gangs whose backoff is over.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from extender.cache.cluster import Cluster
from extender.cache.inflight import Reservation
from extender.cache.misfits import FITS_NOWHERE_S
from extender.gate import Gate
from extender.holds.machine.standing import fits_no_node
from extender.logs import event
from extender.metrics import Metrics
from extender.model.gang import Gang, GangKey
from extender.model.pod import Pod, PodUid
from extender.model.resources import NOTHING
from extender.model.snapshot import Snapshot
from extender.plan.decision import NO_PLAN, Plan, Standing, Ticket
from extender.ports import Clock, WakeOrder, Waker
from extender.promises.arrivals import Arrivals

log = logging.getLogger(__name__)

#: A burst of changes becomes one pass.
DEBOUNCE_S = 0.02
#: After a pass we rest for so many times its duration, because hooks share the interpreter with
#: it and let in by themselves whom nobody waits ahead of; but not for longer than this, unless
#: the pass itself took half of that.
REST = 40.0
LONGEST_REST_S = 0.25
LEAST_REST = 2.0
TICK_S = 1.0
#: Without any change we look again after this long, for what only time changes.
QUIET_S = 5.0
#: A woken pod that has not come to filter by then is woken again.
WAKE_AGAIN_S = 3.0
#: kube-scheduler that asked nothing for this long has nothing left to ask.
IDLE_S = 1.0
#: How much longer a ticket lasts while kube-scheduler is busy with others.
BUSY_FACTOR = 6
#: First pause of a gang whose ticket lapsed; see `Inflight.back_off`.
LAPSE_BACKOFF_S = 10.0
MAX_BACKOFF_S = 120.0
#: How often what is remembered of gone pods and gangs is dropped.
CLEAN_S = 30.0


class MakesRoom(Protocol):
    """Carries out evictions; belongs to this thread and never waits."""

    def protect(self, snapshot: Snapshot) -> Snapshot:
        """Give *snapshot* with the pods that must be left alone for now."""

    def carry_out(self, snapshot: Snapshot, plan: Plan) -> None:
        """Send the evictions of *plan* that are not on their way already."""


class Tells(Protocol):
    """Tells the cluster what was decided; never waits."""

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        """Take a pass in."""


class Published:
    """The last plan, as one reference: readers never see half of one."""

    def __init__(self) -> None:
        self.plan: Plan = NO_PLAN

    def __call__(self) -> Plan:
        """Give the last plan."""
        return self.plan

    def readiness(self) -> list[str]:
        """Say that there is none yet: then nobody knows which queues are open."""
        return ["the first plan is being made"] if self.plan is NO_PLAN else []


class Cycle:
    """Runs passes until stopped."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        published: Published,
        gate: Gate,
        arrivals: Arrivals,
        make_plan: Callable[[Snapshot], Plan],
        waker: Waker,
        dispatch: MakesRoom,
        reporter: Tells,
        clock: Clock,
        metrics: Metrics,
        readiness: Callable[[], list[str]],
        scheduler_idle_s: Callable[[], float],
        ticket_s: float,
    ) -> None:
        self._cluster = cluster
        self._published = published
        self._gate = gate
        self._arrivals = arrivals
        self._make_plan = make_plan
        self._waker = waker
        self._dispatch = dispatch
        self._reporter = reporter
        self._clock = clock
        self._metrics = metrics
        self._readiness = readiness
        self._scheduler_idle_s = scheduler_idle_s
        self._ticket_s = ticket_s
        self._started = clock.now()
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cycle", daemon=True)
        self._rest_until = float("-inf")
        self._woken: dict[PodUid, float] = {}
        self._lapses: dict[GangKey, int] = {}
        self._cleaned_at = 0.0
        self._passed_at = float("-inf")
        self._is_settled = False

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
            self._changed.wait(TICK_S if self._is_settled else DEBOUNCE_S)
            self._stopping.wait(max(DEBOUNCE_S, self._rest_until - self._clock.monotonic()))
            self._changed.clear()
            if self._readiness() or not self.is_due():
                continue
            self._settle_memory()
            started = self._clock.monotonic()
            try:
                self.run_once()
                self._rest_until = rest_until(started, self._clock.monotonic())
            except Exception:
                # A pass that fails must not end planning; the next change brings another.
                log.exception("cycle failed")
                self._stopping.wait(TICK_S)

    def _settle_memory(self) -> None:
        """Take what the first lists brought out of the garbage collector's sight, once.

        It lives as long as we do, and a full collection over 100,000 pods stops every thread,
        hooks included, for a tenth of a second and more.
        """
        if not self._is_settled:
            self._is_settled = True
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 50, 100)

    def is_due(self) -> bool:
        """Ask whether anything happened since the last pass, or time itself wants a look."""
        self._let_tickets_lapse()
        if self._cluster.inflight.is_backoff_over(self._clock.now()):
            return True
        moved = self._cluster.generation != self._published.plan.generation
        return moved or self._clock.monotonic() - self._passed_at > QUIET_S

    def run_once(self) -> None:
        """Make one pass."""
        self._let_tickets_lapse()
        self._passed_at = self._clock.monotonic()
        with self._metrics.cycle_seconds.labels("snapshot").time():
            claimed = self._arrivals.settle()
            self._wake([_order(each) for each in claimed if self._is_parked(each.pod)])
            snapshot = self._dispatch.protect(self._cluster.snapshot(self._clock.now()))
        with self._metrics.cycle_seconds.labels("plan").time():
            plan = self._make_plan(snapshot)
        with self._metrics.cycle_seconds.labels("publish").time():
            self._publish(snapshot, plan)
        with self._metrics.cycle_seconds.labels("report").time():
            self._dispatch.carry_out(snapshot, plan)
            self._reporter.report(snapshot, plan)

    def _publish(self, snapshot: Snapshot, plan: Plan) -> None:
        orders: list[WakeOrder] = []
        for ticket in plan.tickets.values():
            if self._still_fits(snapshot.gangs[ticket.gang], ticket):
                orders += self._reserve(snapshot.gangs[ticket.gang], ticket)
        # Reservations stand before the plan that speaks of them: a filter call between the two
        # is refused once more instead of passing without one.
        self._published.plan = plan
        self._arrivals.allowance.renew(plan)
        orders += self._still_asleep()
        self._wake(orders)
        if self._clock.monotonic() - self._cleaned_at > CLEAN_S:
            self._cleaned_at = self._clock.monotonic()
            self._forget(plan)

    def _still_fits(self, gang: Gang, ticket: Ticket) -> bool:
        """Ask whether nobody was let in meanwhile in the room, or the name, of this ticket."""
        if self._arrivals.is_arriving(gang.key):
            return False
        contested = self._arrivals.taken.intersection(ticket.placements.values())
        needs = dict.fromkeys(contested, NOTHING)
        for pod in gang.waiting if contested else ():
            node = ticket.placements.get(pod.uid)
            if node in needs:
                needs[node] += pod.requests
        for node, need in needs.items():
            room = self._cluster.room(node) or NOTHING
            if not need.fits_in(room - self._cluster.inflight.reserved_on(node)):
                self._changed.set()  # planned anew, with what was let in counted
                return False
        return True

    def _reserve(self, gang: Gang, ticket: Ticket) -> Iterable[WakeOrder]:
        pods = {pod.uid: pod for pod in gang.pods}
        lone = not gang.group.dialect and gang.group.min_member <= 1
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
        """Ask whether kube-scheduler has put *pod* aside, now or before our time.

        A pod it never looked at has no condition that says so; it comes by itself.
        """
        return pod.uid in self._gate.parked or bool(pod.refusal)

    def _still_asleep(self) -> Iterable[WakeOrder]:
        """Wake again whoever was woken for a reservation and did not come to use it."""
        late = self._clock.monotonic() - WAKE_AGAIN_S
        for reservation in self._cluster.inflight.unused_since(late):
            if self._woken.get(reservation.uid, late) < late and not self._is_busy():
                yield _order(reservation)

    def _wake(self, orders: list[WakeOrder]) -> None:
        if not orders:
            return
        now = self._clock.monotonic()
        self._woken = {
            uid: at for uid, at in self._woken.items() if self._cluster.inflight.of(uid)
        } | {order.uid: now for order in orders}
        self._metrics.wakes.inc(len(orders))
        self._waker.wake(orders)

    def _is_busy(self) -> bool:
        """Ask whether kube-scheduler is working through its queue: a pod's turn may yet come."""
        return self._scheduler_idle_s() < IDLE_S

    def _let_tickets_lapse(self) -> None:
        patience_s = self._ticket_s * (BUSY_FACTOR if self._is_busy() else 1)
        lapsed = self._cluster.inflight.expire(self._clock.monotonic(), patience_s)
        for each in lapsed:
            pod = self._cluster.pod(each.uid)
            if pod is not None and fits_no_node(pod):
                # Woken, and kube-scheduler did not even ask us: nothing it saw would do.
                self._cluster.misfits.note(each.shape, each.node, FITS_NOWHERE_S)
        for key in sorted({each.gang for each in lapsed}):
            self.give_back(key)

    def give_back(self, key: GangKey) -> None:
        """Return the room reserved for a gang that could not use it, and let it wait a while.

        Each time in a row it waits longer: room kept for a gang that never comes is room lost.
        """
        lapses = self._lapses[key] = self._lapses.get(key, 0) + 1
        pause_s = min(LAPSE_BACKOFF_S * 2 ** (lapses - 1), MAX_BACKOFF_S)
        self._cluster.inflight.give_back(key)
        self._cluster.inflight.back_off(key, self._clock.now() + pause_s)
        event(log, logging.INFO, "ticket given back", gang=key, pause_s=pause_s)
        self._changed.set()

    def _forget(self, plan: Plan) -> None:
        """Drop what was remembered of pods and gangs that need it no more."""
        if self._lapses:
            running = (Standing.RUNNING, None)
            self._lapses = {
                key: lapses
                for key, lapses in self._lapses.items()
                if (plan.verdicts[key].standing if key in plan.verdicts else None) not in running
            }
        for uid in tuple(self._gate.parked):
            pod = self._cluster.pod(uid)
            # A pod that filter saw before our watch did is not gone, only new.
            if (pod is None or pod.node) and self._gate.passers.get(uid) is None:
                self._gate.parked.discard(uid)


def rest_until(started: float, ended: float) -> float:
    """Say when the next pass may begin."""
    took = ended - started
    return ended + max(min(REST * took, LONGEST_REST_S), LEAST_REST * took)


def _order(place: Reservation) -> WakeOrder:
    return WakeOrder(
        uid=place.uid,
        namespace=place.namespace,
        name=place.name,
        gang=place.gang,
        node=place.node,
    )

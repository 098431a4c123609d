"""Wake, snapshot, plan, propose, act: one thread, one pass at a time.

A pass is woken by a change (after a short pause, so that a burst is one pass) and by a slow tick
that carries what only time changes: gangs whose backoff is over. What a pass decides is proposed
to the ledger of promises, which lives in the event loop and disposes.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from extender.cache.cluster import Cluster
from extender.errors import ShuttingDown
from extender.metrics import Metrics
from extender.model.snapshot import Snapshot
from extender.planner.plan import NO_PLAN, Plan
from extender.ports import Clock

log = logging.getLogger(__name__)
#: A burst of changes becomes one pass.
DEBOUNCE_S = 0.02
#: After a pass we rest for so many times what it computed, because hooks share the interpreter with
#: it and let in by themselves whom nobody waits ahead of; but not for longer than this, unless
#: the pass itself took half of that. Time in which it only waited is not counted: a process that
#: was frozen for half a minute would rest for a whole one.
REST = 40.0
LONGEST_REST_S = 0.25
#: And for so many times only while a gang that has just come can be let in by nothing but a plan,
#: because others wait for the room: it would else wait for most of our rest.
SHORT_REST = 4.0
LEAST_REST = 2.0
TICK_S = 1.0
#: Without any change we look again after this long, for what only time changes.
QUIET_S = 5.0


class Disposes(Protocol):
    """Takes what a pass proposes; judged and written down in the event loop."""

    def settle(self) -> None:
        """Put promises in order before a snapshot is taken."""

    def propose(self, snapshot: Snapshot, plan: Plan) -> bool:
        """Issue the tickets of *plan*; False when something has changed: plan anew."""


class MakesRoom(Protocol):
    """Carries out evictions; belongs to this thread and never waits."""

    def protect(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the pods that must be left alone for now."""

    def send(self, snapshot: Snapshot, plan: Plan) -> None:
        """Send the evictions of *plan* that are not on their way already."""


class Tells(Protocol):
    """Tells the cluster what was decided; never waits."""

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        """Take a pass in."""


class PublishedPlan:
    """The last plan, as one reference: readers never see half of one."""

    def __init__(self) -> None:
        self.plan: Plan = NO_PLAN
        #: Somebody waits for the next one, and for nothing else.
        self.awaited = threading.Event()

    def __call__(self) -> Plan:
        """Return the last plan."""
        return self.plan

    def hurry(self) -> None:
        """Ask for the next plan as soon as it can be had; callable from any thread."""
        if not self.awaited.is_set():
            self.awaited.set()

    def forget(self) -> None:
        """Show none any more: whoever leads plans anew."""
        self.plan = NO_PLAN

    def readiness(self) -> list[str]:
        """Return that there is none yet: then nobody knows which queues are open."""
        return ["the first plan is being made"] if self.plan is NO_PLAN else []


class PlanningLoop:
    """Runs passes until stopped."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        published: PublishedPlan,
        promises: Disposes,
        make_plan: Callable[[Snapshot], Plan],
        dispatch: MakesRoom,
        reporter: Tells,
        clock: Clock,
        metrics: Metrics,
        readiness: Callable[[], list[str]],
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """While nothing may be planned, as on a standby, *meanwhile* is called now and then."""
        self._cluster = cluster
        self._published = published
        self._promises = promises
        self._make_plan = make_plan
        self._dispatch = dispatch
        self._reporter = reporter
        self._clock = clock
        self._metrics = metrics
        self._readiness = readiness
        self._meanwhile = meanwhile
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cycle", daemon=True)
        self._rest_until = self._short_rest_until = float("-inf")
        self._passed_at = self._stood_by_at = float("-inf")
        #: Somebody asked for a pass though nothing changed.
        self._asked_for = False
        self._is_settled = False

    def start(self) -> None:
        """Begin."""
        self._cluster.on_change(self._changed.set)
        self._cluster.hearing.on_change(lambda _: self.request_cycle())
        self._thread.start()

    def stop(self) -> None:
        """End after the pass under way."""
        self._stopping.set()
        self._changed.set()
        self._published.awaited.set()
        self._thread.join(timeout=10)

    def request_cycle(self) -> None:
        """Ask for a pass soon, whether or not anything has changed."""
        self._asked_for = True
        self._changed.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait(TICK_S if self._is_settled else DEBOUNCE_S)
            self._rest()
            self._changed.clear()
            try:
                if self._readiness():
                    self._stand_by()
                    continue
                if not self.is_due():
                    continue
                self._settle_memory()
                computed = time.thread_time()
                self.run_once()
                computed, now = time.thread_time() - computed, self._clock.monotonic()
                self._rest_until = now + rest(computed)
                self._short_rest_until = now + rest(computed, SHORT_REST)
            except ShuttingDown:
                return
            except Exception:
                # A pass that fails must not end planning; the next change brings another.
                log.exception("cycle failed")
                self._stopping.wait(TICK_S)

    def _rest(self) -> None:
        self._stopping.wait(max(DEBOUNCE_S, self._short_rest_until - self._clock.monotonic()))
        self._published.awaited.wait(max(0.0, self._rest_until - self._clock.monotonic()))
        self._published.awaited.clear()

    def _stand_by(self) -> None:
        now = self._clock.monotonic()
        if now - self._stood_by_at >= TICK_S:
            self._stood_by_at = now
            self._cluster.tidy()
            self._meanwhile()

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
        """Return whether anything happened since the last pass, or time itself wants a look."""
        if self._asked_for or self._cluster.reservations.is_backoff_over():
            return True
        moved = self._cluster.generation != self._published.plan.generation
        return moved or self._clock.monotonic() - self._passed_at > QUIET_S

    def run_once(self) -> None:
        """Make one pass."""
        self._asked_for = False
        self._passed_at = self._clock.monotonic()
        with self._metrics.cycle_seconds.labels("snapshot").time():
            self._promises.settle()
            snapshot = self._dispatch.protect(self._cluster.snapshot(self._clock.now()))
        with self._metrics.cycle_seconds.labels("plan").time():
            plan = self._make_plan(snapshot)
        with self._metrics.cycle_seconds.labels("publish").time():
            # Promises stand before the plan that speaks of them: a filter call between the two
            # is refused once more instead of passing without one.
            if not self._promises.propose(snapshot, plan):
                self.request_cycle()
            self._published.plan = plan
        with self._metrics.cycle_seconds.labels("report").time():
            self._dispatch.send(snapshot, plan)
            self._reporter.report(snapshot, plan)
        self._metrics.last_cycle.set(self._clock.now())


def rest(computed_s: float, times: float = REST) -> float:
    """Say for how long nothing is planned after a pass."""
    return max(min(times * computed_s, LONGEST_REST_S), LEAST_REST * computed_s)

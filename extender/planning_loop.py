"""The planning loop: snapshot, plan, propose, report; one thread, one cycle at a time.

A cycle is started by a change (after a short delay, so that a burst is one cycle) and by a slow
tick for what only time changes, such as the end of a backoff. The result is proposed to the ledger
of reservations, which lives in the event loop and decides.
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
from extender.reservations.apply_plan import PlanApplier

log = logging.getLogger(__name__)
#: A burst of changes becomes one cycle.
DEBOUNCE_S = 0.02
#: After a cycle the loop rests for so many times its computing time. Hooks share the interpreter
#: with it, and they admit single pods without a plan. But it rests no longer than `LONGEST_REST_S`,
#: unless the cycle itself took half of that. Time in which it only waited does not count: a process
#: that was frozen for half a minute would otherwise rest for a whole one.
REST = 40.0
LONGEST_REST_S = 0.25
#: The shorter rest while a new gang can only be admitted by a plan, because others wait for the
#: capacity: it would otherwise wait for most of the rest.
SHORT_REST = 4.0
LEAST_REST = 2.0
TICK_S = 1.0
#: Without any change, a cycle runs after so long, for what only time changes.
QUIET_S = 5.0


class EvictionDispatch(Protocol):
    """Sends evictions, without waiting: `evictions.runner.EvictionRunner`."""

    def protect(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the pods that must not be evicted for now."""

    def send(self, snapshot: Snapshot, plan: Plan) -> None:
        """Send the evictions of *plan* that are not in flight already."""


class CycleReporter(Protocol):
    """Reports the result of a cycle, without waiting: `status.reporter.Reporter`."""

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        """Report one cycle."""


class PublishedPlan:
    """The last plan, as one reference: readers never see half of one."""

    def __init__(self) -> None:
        self.plan: Plan = NO_PLAN
        #: A gang waits for the next plan, and for nothing else.
        self.awaited = threading.Event()

    def __call__(self) -> Plan:
        """Return the last plan."""
        return self.plan

    def hurry(self) -> None:
        """Request the next plan as soon as possible; callable from any thread."""
        if not self.awaited.is_set():
            self.awaited.set()

    def forget(self) -> None:
        """Return to no plan: the next leader plans anew."""
        self.plan = NO_PLAN

    def why_not_ready(self) -> list[str]:
        """Return that there is no plan yet: until then it is not known which queues are open."""
        return ["the first plan is being made"] if self.plan is NO_PLAN else []


class PlanningLoop:
    """Runs cycles until stopped."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        published: PublishedPlan,
        applier: PlanApplier,
        make_plan: Callable[[Snapshot], Plan],
        dispatch: EvictionDispatch,
        reporter: CycleReporter,
        clock: Clock,
        metrics: Metrics,
        why_not_ready: Callable[[], list[str]],
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """While no cycle may run, as on a standby, *meanwhile* is called now and then."""
        self._cluster = cluster
        self._published = published
        self._applier = applier
        self._make_plan = make_plan
        self._dispatch = dispatch
        self._reporter = reporter
        self._clock = clock
        self._metrics = metrics
        self._why_not_ready = why_not_ready
        self._meanwhile = meanwhile
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cycle", daemon=True)
        self._rest_until = self._short_rest_until = float("-inf")
        self._cycled_at = self._idled_at = float("-inf")
        #: A cycle was requested though nothing changed.
        self._is_requested = False
        self._is_settled = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the cycle that runs."""
        self._stopping.set()
        self._changed.set()
        self._published.awaited.set()
        self._thread.join(timeout=10)

    def cluster_changed(self) -> None:
        """Called when the plan may change."""
        self._changed.set()

    def request_cycle(self) -> None:
        """Request a cycle soon, whether or not anything has changed."""
        self._is_requested = True
        self._changed.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait(TICK_S if self._is_settled else DEBOUNCE_S)
            self._rest()
            self._changed.clear()
            try:
                if self._why_not_ready():
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
                # A cycle that fails must not end planning; the next change starts another.
                log.exception("cycle failed")
                self._stopping.wait(TICK_S)

    def _rest(self) -> None:
        self._stopping.wait(max(DEBOUNCE_S, self._short_rest_until - self._clock.monotonic()))
        self._published.awaited.wait(max(0.0, self._rest_until - self._clock.monotonic()))
        self._published.awaited.clear()

    def _stand_by(self) -> None:
        now = self._clock.monotonic()
        if now - self._idled_at >= TICK_S:
            self._idled_at = now
            self._cluster.tidy()
            self._meanwhile()

    def _settle_memory(self) -> None:
        """Exclude the objects of the first lists from garbage collection, once.

        They live as long as the process. A full collection over 100,000 pods stops every thread,
        hooks included, for a tenth of a second and more.
        """
        if not self._is_settled:
            self._is_settled = True
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 50, 100)

    def is_due(self) -> bool:
        """Return whether anything happened since the last cycle, or enough time has passed."""
        if self._is_requested or self._cluster.reservations.is_backoff_over():
            return True
        moved = self._cluster.generation != self._published.plan.generation
        return moved or self._clock.monotonic() - self._cycled_at > QUIET_S

    def run_once(self) -> None:
        """Run one cycle."""
        self._is_requested = False
        self._cycled_at = self._clock.monotonic()
        with self._metrics.cycle_seconds.labels("snapshot").time():
            self._applier.settle()
            snapshot = self._dispatch.protect(self._cluster.snapshot(self._clock.now()))
        with self._metrics.cycle_seconds.labels("plan").time():
            plan = self._make_plan(snapshot)
        with self._metrics.cycle_seconds.labels("publish").time():
            # Reservations exist before the plan that refers to them: a filter call between the
            # two is refused once more instead of being admitted without one.
            if not self._applier.propose(snapshot, plan):
                self.request_cycle()
            self._published.plan = plan
        with self._metrics.cycle_seconds.labels("report").time():
            self._dispatch.send(snapshot, plan)
            self._reporter.report(snapshot, plan)
        self._metrics.last_cycle.set(self._clock.now())


def rest(computed_s: float, times: float = REST) -> float:
    """Return how many seconds the loop rests after a cycle."""
    return max(min(times * computed_s, LONGEST_REST_S), LEAST_REST * computed_s)

"""One simulated cluster: clock, API server, kube-scheduler and workloads, with an extender.

Everything is a callback of one clock, virtual or paced. After each callback the watch events are
delivered and the binds that are ready are sent. kube-scheduler starts its next scheduling cycle a
moment later.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from extender.model.pod import Pod
from extender.model.queue import DEFAULT_QUEUE, PriorityClass
from extender.model.resources import Resources, total
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.policy import Policy
from extender.planning_loop import LONGEST_REST_S
from extender.settings import Settings
from extender.sim import scenario as scenarios
from extender.sim.api_server import ApiServer
from extender.sim.clock import VirtualClock
from extender.sim.distributions import seconds
from extender.sim.extender import DirectExtender
from extender.sim.kube_scheduler import Extender, KubeScheduler, SchedulerOptions
from extender.sim.result import Result
from extender.sim.scenario import NO_INPUT, ExternalInput, Scenario
from extender.sim.workloads import JobRun, Workloads

#: The time of one scheduling cycle of kube-scheduler.
CYCLE_S = 0.002
#: How often kube-scheduler checks for backoffs that end, and flushes unschedulable pods.
BACKOFF_CHECK_S = 1.0
FLUSH_CHECK_S = 30.0
#: Like kube-scheduler, but without the retries of refused pods that change nothing.
OPTIONS = SchedulerOptions(sample=None, backs_off=True, retries_refused=False)


class ControlPlane:
    """The API server, kube-scheduler and the controllers of jobs, driven by one clock."""

    def __init__(
        self,
        time: VirtualClock,
        api: ApiServer,
        extender: Extender,
        options: SchedulerOptions = OPTIONS,
        scheduler_name: str = Settings().scheduler_name[0],
    ) -> None:
        self.time, self.api = time, api
        self.scheduler = KubeScheduler(time, api, extender, options, self._preempted)
        self.workloads = Workloads(time, api, scheduler_name)
        self._is_cycle_due = self._is_backoff_check_due = False

    def begin(self) -> None:
        """Start the periodic work."""
        self.time.call_later(FLUSH_CHECK_S, self._flush)
        self.settle()

    def settle(self) -> None:
        """Do everything that takes no time; call it after each callback of the clock."""
        scheduler = self.scheduler
        while True:
            self.deliver()
            if scheduler.has_freed_capacity:
                scheduler.wake_fitting()
            ready = scheduler.ready_to_bind
            if not ready:
                break
            for uid in ready:
                scheduler.send_bind(uid)
        if scheduler.active and not self._is_cycle_due:
            self._is_cycle_due = True
            self.time.call_later(CYCLE_S, self._schedule)
        if scheduler.backoff and not self._is_backoff_check_due:
            self._is_backoff_check_due = True
            self.time.call_later(BACKOFF_CHECK_S, self._end_backoffs)

    def deliver(self) -> None:
        """Deliver the events of the watches."""
        while self.api.to_scheduler:
            event = self.api.to_scheduler.popleft()
            self.scheduler.handle(event)
            self.workloads.handle(event.change)
        self.api.wakes.clear()

    def _schedule(self) -> None:
        self._is_cycle_due = False
        self.scheduler.schedule()

    def _end_backoffs(self) -> None:
        self._is_backoff_check_due = False
        self.scheduler.end_backoffs()

    def _flush(self) -> None:
        self.scheduler.tick()
        self.time.call_later(FLUSH_CHECK_S, self._flush)

    def _preempted(self, victim: Pod) -> None:
        self.workloads.evicted(victim.uid)
        self.api.delete_pod(victim.uid)


class SimulatedCluster(ControlPlane):
    """A cluster in virtual time that starts empty; `run` advances its time."""

    def __init__(
        self,
        policy: Policy = policy_parser.DEFAULT,
        seed: int = 0,
        options: SchedulerOptions = OPTIONS,
        settings: Settings | None = None,
        rest_s: float = LONGEST_REST_S,
    ) -> None:
        settings = settings or Settings()
        time = VirtualClock()
        api = ApiServer(time)
        self.extender = DirectExtender(time, api, policy, seed, settings, rest_s)
        super().__init__(time, api, self.extender, options, settings.scheduler_name[0])
        api.on_eviction = self.workloads.evicted
        # filter admits the pods that are in the active queue; a plan helps only refused pods.
        self.extender.is_idle = lambda: not (self.scheduler.unschedulable or self.scheduler.backoff)
        self._has_begun = False

    def begin(self) -> None:
        """Deliver all objects and make the first plan."""
        self._has_begun = True
        self.deliver()
        self.extender.start()
        super().begin()

    def run(self, until: float) -> None:
        """Advance until *until*, in monotonic seconds."""
        if not self._has_begun:
            self.begin()
        time = self.time
        self.settle()
        while (at := time.next_at) is not None and at <= until:
            time.step()
            self.settle()
        time.advance(max(0.0, until - time.monotonic()))

    def settle(self) -> None:
        """Do everything that takes no time."""
        super().settle()
        if self.extender.is_deferred and not self.extender.is_idle():
            self.extender.plan_soon()

    def deliver(self) -> None:
        """Deliver the events of all watches."""
        while self.api.to_extender or self.api.to_scheduler:
            while self.api.to_extender:
                self.extender.apply(self.api.to_extender.popleft().change)
            super().deliver()


#: How many times a run reports its progress.
_STEPS = 100


class Simulation:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, policy: Policy, given: ExternalInput = NO_INPUT) -> None:
        self.cluster = cluster = SimulatedCluster(
            policy, scenario.seed, rest_s=scenarios.pace_s(scenario)
        )
        nodes = scenarios.nodes_of(scenario, given)
        queues = scenarios.queues_of(scenario, given)
        for node in nodes.values():
            cluster.api.put(node)
        for queue in queues.values():
            cluster.api.put(queue)
        for priority in sorted({stream.priority for stream in scenario.arrivals} - {0}):
            cluster.api.put(PriorityClass(name=f"rank-{priority}", value=priority))
        for job in scenarios.jobs_of(scenario, given):
            cluster.workloads.submit(job)
        for failure in scenario.mishaps:
            at = seconds(failure.at, "at")
            if failure.lose:
                event = partial(cluster.workloads.lose_node, failure.lose)
            else:
                event = partial(cluster.api.put, nodes[failure.restore or ""])
            cluster.time.call_later(at, event)
        capacity = total(node.allocatable for node in nodes.values())
        names = sorted({DEFAULT_QUEUE, *queues})
        self.result = Result(
            cluster.time.monotonic(),
            scenarios.span_s(scenario),
            Resources(capacity),
            names,
            is_of_a_tree=policy.divides_a_tree,
        )
        cluster.workloads.on_placed = self._count_pod
        cluster.extender.on_cycle = self._count_cycle

    def run(self, progress: Callable[[float], None] = lambda part: None) -> Result:
        """Run the scenario; *progress* is called with the fraction that is done."""
        cluster, result = self.cluster, self.result
        with _rare_garbage_collection():
            for step in range(1, _STEPS + 1):
                cluster.run(result.beginning + result.span_s * step / _STEPS)
                progress(step / _STEPS)
        cluster.workloads.count_until_now()
        result.close(cluster.workloads.runs, cluster.extender.cycles)
        return result

    def _count_pod(self, run: JobRun, step: int) -> None:
        self.result.count_pod(run, step, self.cluster.time.monotonic())

    def _count_cycle(self, _: Snapshot, plan: Plan) -> None:
        self.result.count_cycle(plan, self.cluster.time.monotonic())


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Collect garbage cycles rarely: nearly all objects live until the end."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)

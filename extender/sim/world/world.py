"""One run: time, API server, kube-scheduler, extender and workloads, and the order of what happens.

Everything is a callback of one clock. After each of them watches are delivered, binds go out beside
each other, and kube-scheduler looks at its next pod a moment later.
"""

from __future__ import annotations

from extender.cycle import LONGEST_REST_S
from extender.model.pod import Pod
from extender.plan.policy import policies
from extender.plan.policy.options import Policy
from extender.settings import Settings
from extender.sim.world.api_server import ApiServer
from extender.sim.world.direct import DirectExtender
from extender.sim.world.kube_scheduler import KubeScheduler, Ways
from extender.sim.world.virtual_time import VirtualTime
from extender.sim.world.workloads import Workloads

#: What kube-scheduler takes for one pod.
CYCLE_S = 0.002
#: How often it looks whose pause is over, and who has slept too long.
PAUSES_S = 1.0
SLEEPERS_S = 30.0
#: As kube-scheduler is in what matters to us, without the questions that change nothing.
WAYS = Ways(sample=None, backs_off=True, looks_in_vain=False)


class World:
    """A cluster, empty at first; `run` lets time pass."""

    def __init__(
        self,
        policy: Policy = policies.DEFAULT,
        seed: int = 0,
        ways: Ways = WAYS,
        settings: Settings | None = None,
        rest_s: float = LONGEST_REST_S,
    ) -> None:
        settings = settings or Settings()
        self.time = VirtualTime()
        self.api = ApiServer(self.time)
        self.extender = DirectExtender(self.time, self.api, policy, seed, settings, rest_s)
        self.scheduler = KubeScheduler(self.time, self.api, self.extender, ways)
        self.workloads = Workloads(self.time, self.api, settings.scheduler_name[0])
        self.scheduler.let_preempt(self.extender, self._preempted)
        self.extender.on_eviction = self.workloads.evicted
        # Who is on the way to filter is let in there; a plan is for those who were sent away.
        self.extender.is_quiet = lambda: not (self.scheduler.parked or self.scheduler.backoff)
        self._has_turn = self._looks_at_pauses = False
        self._has_begun = False

    def begin(self) -> None:
        """Let everybody hear what there is, and make the first plan."""
        self._has_begun = True
        self._deliver()
        self.extender.start()
        self.time.call_later(SLEEPERS_S, self._look_for_sleepers)
        self._settle()

    def run(self, until: float) -> None:
        """Let time pass until *until*, in monotonic seconds."""
        if not self._has_begun:
            self.begin()
        time = self.time
        self._settle()
        while (at := time.next_at) is not None and at <= until:
            time.step()
            self._settle()
        time.pass_by(max(0.0, until - time.monotonic()))

    def _settle(self) -> None:
        """Let happen what takes no time."""
        scheduler = self.scheduler
        while True:
            self._deliver()
            if scheduler.has_new_room:
                scheduler.wake_who_fits()
            ready = scheduler.ready_to_bind
            if not ready:
                break
            for uid in ready:
                scheduler.send_bind(uid)
        if self.extender.is_deferred and not self.extender.is_quiet():
            self.extender.plan_soon()
        if scheduler.active and not self._has_turn:
            self._has_turn = True
            self.time.call_later(CYCLE_S, self._turn)
        if scheduler.backoff and not self._looks_at_pauses:
            self._looks_at_pauses = True
            self.time.call_later(PAUSES_S, self._look_at_pauses)

    def _deliver(self) -> None:
        api, to_extender, to_scheduler = self.api, self.api.to_extender, self.api.to_scheduler
        while to_extender or to_scheduler:
            while to_extender:
                self.extender.hear(to_extender.popleft().change)
            while to_scheduler:
                self.scheduler.hear(to_scheduler.popleft())
        api.wakes.clear()

    def _turn(self) -> None:
        self._has_turn = False
        self.scheduler.schedule()

    def _look_at_pauses(self) -> None:
        self._looks_at_pauses = False
        self.scheduler.end_pauses()

    def _look_for_sleepers(self) -> None:
        self.scheduler.tick()
        self.time.call_later(SLEEPERS_S, self._look_for_sleepers)

    def _preempted(self, victim: Pod) -> None:
        self.workloads.evicted(victim.uid)
        self.api.delete_pod(victim.uid)

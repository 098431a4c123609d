"""Everything that may happen to the whole system, in any order, checked by the referee.

After the last step the system runs fairly for three minutes of virtual time. Every gang that fits
must have started by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.model.queue import Namespace, NamespaceShare, Queue
from extender.model.resources import Resources
from extender.planner.policy_parser import DEFAULT
from extender.sim.api_server import OUTCOMES
from extender.sim.kube_scheduler import SchedulerOptions

from .world import GPU, TREE, World, amounts

STEPS = 30
#: How long everything runs on after the last step.
AFTERWARDS_S = 180.0
MOST_PODS = 12

#: Kinds of clusters: what queues there are, and which of them the pods may name.
QUEUES: dict[str, tuple[Queue, ...]] = {
    "one": (),
    "ceilings": (
        Queue(name="q1", capability=amounts(cpu=4)),
        Queue(name="q2", weight=3),
    ),
    "guarantees": (
        Queue(name="q1"),
        Queue(name="q2"),
        Queue(name="q3", guarantee=amounts(cpu=2)),
    ),
    "no gpu": (Queue(name="q1", capability=Resources({"cpu": 8000, GPU: 0})),),
    "shares": (Queue(name="q1"), Queue(name="q2")),
    "tree": (
        Queue(name="q1", parent="top"),
        Queue(name="q2", parent="top"),
        Queue(name="top", capability=amounts(cpu=4)),
    ),
}
#: And what namespaces may have of them; all pods are in `a`.
NAMESPACES: dict[str, tuple[Namespace, ...]] = {
    "shares": (
        Namespace(
            name="a", shares=(NamespaceShare(queue="q1", namespace="a", limit=amounts(cpu=3)),)
        ),
        Namespace(
            name="b", shares=(NamespaceShare(queue="q2", namespace="b", guarantee=amounts(cpu=2)),)
        ),
    ),
}
#: Gangs: minimum, surplus, cpus, and whether they need a GPU.
KINDS = ((1, 0, 4, 0), (2, 0, 2, 0), (2, 0, 4, 0), (3, 0, 1, 0), (4, 0, 1, 0), (2, 1, 1, 0),
         (2, 0, 1, 1))  # fmt: skip
#: Each story has three of them, so that they come often enough to meet.
TROUBLES = (
    "a_running_pod_changes",
    "an_urgent_gang_comes",
    "an_urgent_pod_comes",
    "request_cycle",
    "delete_gang",
    "delete_group",
    "delete_pod",
    "remove_a_node",
    "restart_the_scheduler",
    "set_the_wall_clock",
    "shrink_a_node",
    "slow_volumes",
    "taint_a_node",
    "volumes_nowhere",
)
#: Which watches deliver a change at once. The others deliver when a rule says so.
WATCHES = ("both", "extender", "scheduler", "neither")
INDEXES = range(6)
EITHER = (True, False)
SELDOM = (False,) * 7 + (True,)


def one_of(*choices: Iterable[object]) -> st.SearchStrategy[tuple[object, ...]]:
    """Draw one of each at the price of one draw."""
    return st.sampled_from(list(product(*choices)))


class SystemMachine(RuleBasedStateMachine):
    """What people, kube-scheduler, the API server, the planner and time do."""

    #: A key of `QUEUES`; otherwise it is drawn.
    queue_kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.queues: tuple[str, ...] = ("",)
        self.troubles: tuple[str, ...] = ()
        self.number = 0

    @initialize(
        cpus=st.sampled_from([(4,), (4, 4), (2, 2, 2), (4, 4, 4, 4), (10,)]),
        has_gpus=st.booleans(),
        kind=st.sampled_from(sorted(QUEUES)),
        ways=one_of((1, 2, 100), EITHER, EITHER),
        prompt=st.booleans(),
        troubles=st.sampled_from(list(combinations(TROUBLES, 3))),
    )
    def begin(self, cpus, has_gpus, kind, ways, prompt, troubles):
        self.world.close()
        self.troubles = troubles
        kind = self.queue_kind or kind
        sample, hints, clears = ways
        self.world = World(
            SchedulerOptions(sample=sample, hints=hints, clears_nominations=clears),
            TREE if kind == "tree" else DEFAULT,
        )
        for number, cpu in enumerate(cpus, start=1):
            self.world.create_node(f"n{number}", cpu, gpu=2 if has_gpus and number == 1 else 0)
        for thing in (*QUEUES[kind], *NAMESPACES.get(kind, ())):
            self.world.api.put(thing)
        named = tuple(queue.name for queue in QUEUES[kind] if queue.name not in ("q3", "top"))
        self.queues = named or ("",)
        self.world.deliver()
        self.world.run_cycle()
        self.world.advance(1.0)
        self.world.api.answers_at_once = prompt

    # People

    @rule(what=one_of(KINDS, INDEXES), watches=st.sampled_from(WATCHES))
    def create_gang(self, what, watches):
        (size, surplus, cpu, gpu), index = what
        if self.has_capacity_for(size + surplus):
            self.world.create_gang(
                self.name(), size + surplus, least=size, cpu=cpu, gpu=gpu, queue=self.queue(index)
            )
            self.deliver_to(watches)

    @rule(what=one_of((1, 1, 2), (1, 2), INDEXES, SELDOM), watches=st.sampled_from(WATCHES))
    def create_pods(self, what, watches):
        cpu, count, index, gpu = what
        for _ in range(count):
            if self.has_capacity_for(1):
                self.world.create_pod(self.name(), cpu=cpu, gpu=gpu, queue=self.queue(index))
        self.deliver_to(watches)

    @rule(index=st.sampled_from(INDEXES), watches=st.sampled_from(WATCHES))
    def create_a_gang_that_comes_in_pieces(self, index, watches):
        self.world.create_group(self.name(), index % 2 + 1, queue=self.queue(index))
        self.deliver_to(watches)

    @precondition(lambda self: self.world.api.groups)
    @rule(what=one_of(INDEXES, (1, 1, 4)), watches=st.sampled_from(WATCHES))
    def add_a_member(self, what, watches):
        index, cpu = what
        groups = sorted(self.world.api.groups)
        if self.has_capacity_for(1):
            gang = self.world.api.groups[groups[index % len(groups)]].name
            self.world.create_member(self.name(), gang, cpu=cpu)
            self.deliver_to(watches)

    @rule(what=one_of(INDEXES, range(3)), watches=st.sampled_from(WATCHES))
    def disturb(self, what, watches):
        index, trouble = what
        getattr(self, self.troubles[trouble % len(self.troubles)])(index)
        self.deliver_to(watches)

    def slow_volumes(self, index):
        for name in self.pick(self.waiting(), index):
            self.world.scheduler.prebind_s[name] = 25.0

    def volumes_nowhere(self, index):
        for name in self.pick(self.waiting(), index):
            self.world.scheduler.volumes[name] = frozenset()

    def delete_pod(self, index):
        for name in self.pick([seen.pod.name for seen in self.world.api.pods.values()], index):
            self.world.delete_pod(name)

    def delete_gang(self, index):
        for name in self.pick([each.name for each in self.world.api.groups.values()], index):
            self.world.delete_gang(name)

    def delete_group(self, index):
        for name in self.pick([each.name for each in self.world.api.groups.values()], index):
            self.world.delete_group(name)

    def taint_a_node(self, index):
        for name in self.pick(self.spare_nodes(), index):
            self.world.taint(name)

    def shrink_a_node(self, index):
        for name in self.pick(self.spare_nodes(), index):
            self.world.shrink(name, cpu=1)

    def remove_a_node(self, index):
        for name in self.pick(self.spare_nodes(), index):
            self.world.remove_node(name)

    def set_the_wall_clock(self, index):
        self.world.set_wall_clock((-3600.0, 3600.0)[index % 2])

    def restart_the_scheduler(self, index):
        self.world.restart_scheduler(index)

    def request_cycle(self, index):
        self.world.request_cycle()

    def an_urgent_pod_comes(self, index):
        if self.has_capacity_for(1):
            cpu, queue = (1, 2, 4)[index % 3], self.queue(index)
            self.world.create_pod(self.name(), cpu=cpu, queue=queue, priority=10)

    def an_urgent_gang_comes(self, index):
        if self.has_capacity_for(2):
            cpu, queue = (1, 2)[index % 2], self.queue(index)
            self.world.create_gang(self.name(), 2, cpu=cpu, queue=queue, priority=10)

    def a_running_pod_changes(self, index):
        running = [uid for uid, seen in self.world.api.pods.items() if seen.pod.node]
        for uid in self.pick(running, index):
            self.world.api.patch(uid, status_only=False)

    # The watches and the API server

    @precondition(lambda self: self.world.api.to_extender or self.world.api.to_scheduler)
    @rule(what=one_of(WATCHES[:3], (1, None)))
    def deliver_changes(self, what):
        self.deliver_to(*what)

    @precondition(lambda self: self.world.api.in_flight)
    @rule(what=one_of(INDEXES, ("answers",) * 5 + OUTCOMES[1:]))
    def api_answers(self, what):
        self.world.api_answers(*what)

    # kube-scheduler

    @precondition(lambda self: self.world.scheduler.active)
    @rule(what=one_of(INDEXES, (1, 1, 2, 4), (0, 0, 1)))
    def schedule(self, what):
        index, count, choice = what
        for _ in range(count):
            for uid in self.pick(self.world.scheduler.active, index):
                self.world.schedule_pod(self.world.scheduler.pods[uid].pod.name, choice)

    @precondition(lambda self: self.world.scheduler.active)
    @rule(index=st.sampled_from(INDEXES))
    def schedule_while_a_pass_goes_on(self, index):
        self.world.meanwhile = self.world.system.run_cycle
        self.schedule((index, 1, 0))
        self.world.meanwhile = None

    @precondition(lambda self: self.world.scheduler.ready_to_bind)
    @rule(index=st.sampled_from((None, None, *INDEXES)))
    def send_binds(self, index):
        if index is None:
            self.world.send_binds()
        else:
            self.world.send_bind(index)

    @precondition(lambda self: self.world.evictions)
    @rule(index=st.sampled_from(INDEXES))
    def evict(self, index):
        self.world.evict(index)

    # The planner

    @precondition(lambda self: not self.world.system.is_planning)
    @rule()
    def begin_cycle(self):
        self.world.begin_cycle()

    @precondition(lambda self: self.world.system.is_planning)
    @rule(steps=st.sampled_from((1, 1, 2, 3)))
    def continue_cycle(self, steps):
        for _ in range(steps):
            self.world.continue_cycle()

    @rule()
    def run_cycle(self):
        self.world.run_cycle()

    # Time

    @rule(what=one_of((0.5, 0.5, 1.5, 5.0, 24.0), EITHER))
    def time_passes(self, what):
        seconds, busy = what
        self.world.advance(seconds, busy=busy)

    # Words

    def name(self) -> str:
        self.number += 1
        return f"x{self.number}"

    def queue(self, index) -> str:
        return self.queues[index % len(self.queues)]

    def has_capacity_for(self, count) -> bool:
        return len(self.world.api.pods) + count <= MOST_PODS

    def deliver_to(self, watches, count=None):
        if watches in ("both", "extender"):
            self.world.deliver_to_extender(count)
        if watches in ("both", "scheduler"):
            self.world.deliver_to_scheduler(count)

    def waiting(self) -> list[str]:
        return [seen.pod.name for seen in self.world.api.pods.values() if not seen.pod.node]

    def spare_nodes(self) -> list[str]:
        """Return the nodes that may be changed, first those to which a pod is being bound."""
        busy = {assumed.node for assumed in self.world.scheduler.assumed.values()}
        names = sorted(self.world.api.nodes, key=lambda name: (name not in busy, name))
        return names if len(names) > 1 else []

    def pick(self, among, index):
        """Choose one, if there is any."""
        among = list(among)
        return among[index % len(among) :][:1] if among else []

    def teardown(self):
        try:
            if not self.world.referee.has_found_something:
                self.world.api.answers_at_once = True
                self.world.finish_cycle()
                self.world.run_out(AFTERWARDS_S)
                self.world.referee.check_everything_that_fits_has_started()
        finally:
            self.world.close()


def play(machine: type[SystemMachine], stories: int) -> None:
    """Play *stories* with random events."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=stories,
            stateful_step_count=STEPS,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )

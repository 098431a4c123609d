"""One story: time, the API server, kube-scheduler, the extender and the referee, in a few verbs.

Every verb is one step, and the referee looks after each of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from extender.cache.changes import SeenPod
from extender.hooks.gate import Filtered
from extender.model.gang import GangKey, Membership, PodGroup
from extender.model.node import Node, Taint
from extender.model.pod import Pod, PodUid, Shape
from extender.model.queue import Queue
from extender.model.resources import Resources
from extender.planner import policy_parser
from extender.planner.policy import Policy
from extender.ports import BindOrder
from extender.sim.api_server import ApiServer, Binding
from extender.sim.clock import VirtualClock
from extender.sim.kube_scheduler import KubeScheduler, SchedulerOptions

from .referee import Referee
from .system import SCHEDULER, System

GPU = "nvidia.com/gpu"
VOLCANO = "scheduling.volcano.sh"
#: The step of time: the planner's thread checks at least this often.
SLICE_S = 0.5
#: No watch delay, call to the API server or planning cycle takes longer than this.
LAG_S = 3.0
CALL_S = 4.0
CYCLE_S = 0.5


def amounts(cpu: int = 0, gpu: int = 0, memory: int = 0, pods: int = 0) -> Resources:
    """Whole cpus, GPUs and GiB."""
    found = {"cpu": cpu * 1000, "memory": memory << 30, "pods": pods, GPU: gpu}
    return Resources({name: amount for name, amount in found.items() if amount})


#: Queues as a tree, in which every ancestor's ceiling counts.
TREE = policy_parser.parse(
    """
    actions: "enqueue, allocate, backfill"
    tiers:
    - plugins: [{name: priority}, {name: gang}, {name: capacity, enableHierarchy: true}]
    - plugins: [{name: predicates}]
    """
)

#: Identical pods share their shape.
SHAPES = {
    (cpu, gpu): Shape(requests=amounts(cpu, gpu, memory=1, pods=1))
    for cpu in (1, 2, 4)
    for gpu in (0, 1)
}


class _Crashes(logging.Handler):
    """Receives exceptions that the parts only log."""

    def __init__(self, referee: Referee) -> None:
        super().__init__(logging.ERROR)
        self._referee = referee

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self._referee.crashed(f"{record.getMessage()}: {record.exc_info[1]!r}")


class World:
    """The whole system, empty at first."""

    def __init__(
        self,
        ways: SchedulerOptions | None = None,
        policy: Policy = policy_parser.DEFAULT,
        kind: type[System] = System,
        extender: Any = None,
    ) -> None:
        """*extender* answers kube-scheduler in place of the system."""
        self.time = VirtualClock()
        self.api = ApiServer(self.time)
        self.system = kind(self.time, self.api, policy)
        self.scheduler = KubeScheduler(
            self.time, self.api, extender or self, ways, self._will_evict
        )
        #: Pods that kube-scheduler evicts in the background, and since when.
        self.evictions: list[tuple[PodUid, float]] = []
        self.referee = Referee(self.time, self.api, self.scheduler, self.system)
        self.api.on_bindings = self.referee.sent
        # Most stories need a live scheduler. Those about its liveness begin by forgetting it.
        self.system.mark_scheduler_live()
        self._crashes = _Crashes(self.referee)
        logging.getLogger("extender").addHandler(self._crashes)
        self._cycle_began = 0.0
        #: Happens in another thread while the next question is being answered with a refusal.
        self.meanwhile: Callable[[], None] | None = None
        #: Answers of filter: (pod name, nodes).
        self.answers: list[tuple[str, tuple[str, ...]]] = []
        self.refusals: dict[str, str] = {}

    def close(self) -> None:
        logging.getLogger("extender").removeHandler(self._crashes)
        self.system.close()

    # ── the extender, as kube-scheduler calls it ──────────────────────────────────────────

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        before = [each for each in self.system.reservations() if each.gang == member.key]
        meanwhile, self.meanwhile = self.meanwhile, None
        answer = self.system.filter(pod, member, offered, meanwhile)
        self.answers.append((pod.name, tuple(answer.nodes)))
        self.refusals[pod.name] = next(iter(answer.refused.values()), "")
        self.referee.filtered(pod, member, offered, () if meanwhile else before, answer)
        return answer

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        kept = self.system.preempt(pod, member, victims)
        self.referee.note(f"{pod.name} asks for {dict(victims)} and may have {dict(kept)}")
        return kept

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int:
        def answered(error: str) -> None:
            self.referee.answered(order, error)
            answer(error)

        return self.system.bind(order, answered)

    def hang_up(self, call: int) -> None:
        self.system.hang_up(call)

    # ── what people do ────────────────────────────────────────────────────────────────────

    def create_node(self, name: str, cpu: int = 4, gpu: int = 0) -> None:
        self._put(Node(name=name, allocatable=amounts(cpu, gpu, memory=64, pods=110)))

    def create_queue(self, name: str, **facts: Any) -> None:
        self._put(Queue(name=name, **facts))

    def create_group(self, name: str, min_member: int, queue: str = "") -> None:
        created = self.time.now()
        self._put(
            PodGroup(
                namespace="a",
                name=name,
                min_member=min_member,
                queue=queue,
                dialect=VOLCANO,
                created=created,
                uid=f"{name}-{self.time.monotonic()}",
            )
        )

    def create_member(self, name: str, gang: str, cpu: int = 1, gpu: int = 0, **facts: Any) -> None:
        self._create_pod(name, Membership(key=key(gang), named=True), cpu, gpu, facts)

    def create_gang(
        self, name: str, size: int, *, least: int = 0, queue: str = "", **kind: Any
    ) -> None:
        """Create a PodGroup and all of its pods, name-0 and on."""
        self.create_group(name, least or size, queue)
        for number in range(size):
            self.create_member(f"{name}-{number}", name, **kind)

    def create_pod(
        self, name: str, queue: str = "", cpu: int = 1, gpu: int = 0, **facts: Any
    ) -> None:
        """Create an ordinary pod."""
        self._create_pod(name, Membership(key=key(f"pod:{name}"), queue=queue), cpu, gpu, facts)

    def _create_pod(
        self, name: str, member: Membership, cpu: int, gpu: int, facts: dict[str, Any]
    ) -> None:
        pod = Pod(
            uid=uid(name),
            namespace="a",
            name=name,
            shape=SHAPES[cpu, gpu],
            created=self.time.now(),
            **{"scheduler": SCHEDULER, **facts},
        )
        self._put(SeenPod(pod, member))

    def _put(self, item: Node | Queue | PodGroup | SeenPod) -> None:
        self.referee.note(f"written: {_line(item)}")
        self.api.put(item)
        self.referee.check()

    def delete_pod(self, name: str) -> None:
        self.referee.note(f"deleted: {name}")
        gone = self.api.pods[uid(name)]
        self.referee.disturbed(gone.membership.key)
        self.api.delete_pod(gone.pod.uid)
        self.referee.check()

    def delete_gang(self, name: str) -> None:
        """Delete a PodGroup and its pods."""
        for each in self.api.pods_of(key(name)):
            self.delete_pod(each.pod.name)
        self.delete_group(name)

    def delete_group(self, name: str) -> None:
        if key(name) in self.api.groups:
            self.referee.note(f"deleted: group {name}")
            self.referee.disturbed(key(name))
            self.api.delete_group(key(name))
            self.referee.check()

    def taint(self, name: str) -> None:
        self._put(replace(self.api.nodes[name], taints=(Taint("maintenance"),)))

    def shrink(self, name: str, cpu: int) -> None:
        gpu = self.api.nodes[name].allocatable.amount(GPU)
        self._put(replace(self.api.nodes[name], allocatable=amounts(cpu, gpu, 64, 110)))

    def remove_node(self, name: str) -> None:
        self.referee.note(f"deleted: node {name}")
        self.api.delete_node(name)
        self.referee.check()

    def set_wall_clock(self, by_s: float) -> None:
        self.referee.note(f"the wall clock is set by {by_s} s")
        self.time.wall_is_off_by += by_s
        self.referee.check()

    # ── what is delivered ─────────────────────────────────────────────────────────────────

    def deliver_to_extender(self, count: int | None = None) -> None:
        """Deliver the next *count* lines of the extender's watch, or all."""
        if not self.api.to_extender:
            return
        while self.api.to_extender and count != 0:
            change = self.api.to_extender.popleft().change
            self.referee.received(change)
            self.system.apply(change)
            self.time.advance()
            count = None if count is None else count - 1
        self.referee.check()

    def deliver_to_scheduler(self, count: int | None = None) -> None:
        if not self.api.to_scheduler:
            return
        while self.api.to_scheduler and count != 0:
            self.scheduler.handle(self.api.to_scheduler.popleft())
            count = None if count is None else count - 1
        self.referee.check()

    def deliver(self) -> None:
        self.deliver_to_extender()
        self.deliver_to_scheduler()

    def api_answers(self, index: int = 0, mood: str = "answers") -> None:
        call = self.api.in_flight[index % len(self.api.in_flight)]
        if mood != "answers" and isinstance(call, Binding):
            seen = self.api.pods.get(call.order.uid)
            if seen is not None:
                self.referee.disturbed(seen.membership.key)
        self.referee.note(f"the API server {mood}")
        self.api.answer(call, mood)
        self.referee.check()

    # ── what kube-scheduler does ──────────────────────────────────────────────────────────

    def schedule(self, choice: int = 0) -> bool:
        """Let kube-scheduler try one pod."""
        if self.scheduler.active:
            self.referee.note(f"kube-scheduler's queue: {self.scheduler.active}")
        if not self.scheduler.schedule(choice):
            return False
        self.referee.check()
        return True

    def schedule_pod(self, name: str, choice: int = 0) -> None:
        """Let it try this pod before the others of its queue."""
        self.scheduler.active.remove(uid(name))
        self.scheduler.active.insert(0, uid(name))
        self.schedule(choice)

    def schedule_all(self) -> None:
        """Let it try all pods in its queue, and receive its own writes."""
        while self.schedule():
            self.deliver_to_scheduler()

    def send_bind(self, index: int = 0) -> None:
        ready = self.scheduler.ready_to_bind
        self.scheduler.send_bind(ready[index % len(ready)])
        self.referee.check()

    def send_binds(self) -> None:
        while self.scheduler.ready_to_bind:
            self.send_bind()

    def _will_evict(self, pod: Pod) -> None:
        self.evictions.append((pod.uid, self.time.monotonic()))

    def evict(self, index: int = 0) -> None:
        """Let one of kube-scheduler's evictions happen."""
        gone, _ = self.evictions.pop(index % len(self.evictions))
        if gone in self.api.pods:
            self.referee.note(f"kube-scheduler evicts {gone}")
            self.api.delete_pod(gone)
            self.referee.check()

    def restart_scheduler(self, turn: int = 0) -> None:
        self.referee.note("kube-scheduler restarts")
        self.scheduler.restart(turn)
        self.referee.check()

    # ── the planner ───────────────────────────────────────────────────────────────────────

    def begin_cycle(self) -> None:
        self.referee.note("a cycle begins")
        self._cycle_began = self.time.monotonic()
        self.system.begin_cycle()
        self.referee.check()

    def continue_cycle(self) -> None:
        self.system.continue_cycle()
        self.referee.check()

    def finish_cycle(self) -> None:
        while self.system.is_planning:
            self.continue_cycle()

    def run_cycle(self) -> None:
        if not self.system.is_planning:
            self.begin_cycle()
        self.finish_cycle()

    def request_cycle(self) -> None:
        self.referee.cycle_requested()
        self.system.request_cycle()
        self.referee.check()

    # ── time ──────────────────────────────────────────────────────────────────────────────

    def advance(self, seconds: float, *, busy: bool = True) -> None:
        """Let time pass; while *busy*, everything that can happen by itself does.

        Otherwise kube-scheduler stands still, and watches and calls take as long as they may.
        """
        until = self.time.monotonic() + seconds
        if busy:
            self.go_on()
        while (left := until - self.time.monotonic()) > 1e-9:
            self._slice(min(SLICE_S, left), busy)

    def run_out(self, seconds: float) -> None:
        """Let everything run for so long, or until no pod waits and nothing is reserved."""
        until = self.time.monotonic() + seconds
        while self.time.monotonic() < until and not self.is_at_rest:
            self.advance(5.0)

    @property
    def is_at_rest(self) -> bool:
        waits = any(not seen.pod.node for seen in self.api.pods.values())
        return not (waits or self.system.reservations() or self.api.in_flight)

    def _slice(self, seconds: float, busy: bool) -> None:
        self.time.advance(seconds)
        self._enforce_delays()
        self.scheduler.tick()
        self.system.tick()
        self.referee.check()
        if busy:
            self.go_on()

    def _enforce_delays(self) -> None:
        now = self.time.monotonic()
        if self.system.is_planning and now - self._cycle_began > CYCLE_S:
            self.finish_cycle()
        self.api.time_out()
        if self.api.stalled:
            return
        while self.api.to_extender and now - self.api.to_extender[0].at > LAG_S:
            self.deliver_to_extender(1)
        while self.api.to_scheduler and now - self.api.to_scheduler[0].at > LAG_S:
            self.deliver_to_scheduler(1)
        for call in [each for each in self.api.in_flight if now - each.at > CALL_S]:
            self.api.answer(call)
        while self.evictions and now - self.evictions[0][1] > CALL_S:
            self.evict()

    def go_on(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(50):
            if not self._one_round():
                return

    def _one_round(self) -> bool:
        did = False
        if not self.api.stalled:
            waiting = (self.api.to_extender, self.api.to_scheduler, self.api.in_flight)
            did = any((*waiting, self.evictions))
            self.deliver()
            while self.api.in_flight:
                self.api_answers()
            while self.evictions:
                self.evict()
        # Bind calls do not wait, so they come before the next pod.
        did |= bool(self.scheduler.ready_to_bind)
        self.send_binds()
        did |= self.schedule()
        if did:
            # A change causes a cycle at once. The slow tick is only for effects of time.
            self.system.tick()
            self.referee.check()
        return did

    # ── asked ─────────────────────────────────────────────────────────────────────────────

    def places(self, gang: str) -> dict[str, str]:
        """Return the reservations of a gang: pod name -> node; placeholders by their uid."""
        names = {each.pod.uid: each.pod.name for each in self.api.pods.values()}
        return {
            names.get(each.uid, each.uid): each.node
            for each in self.system.reservations()
            if each.gang == key(gang)
        }

    def running(self, prefix: str = "") -> dict[str, str]:
        """Return the bound pods whose name begins so, with their nodes."""
        return {
            seen.pod.name: seen.pod.node
            for seen in self.api.pods.values()
            if seen.pod.node and seen.pod.name.startswith(prefix)
        }

    def woken(self) -> set[str]:
        return {order.name for _, order in self.api.wakes}


@contextmanager
def worlds() -> Iterator[Callable[..., World]]:
    """Return a factory of worlds, which are closed at the end."""
    made: list[World] = []

    def make(
        ways: SchedulerOptions | None = None, policy: Policy = policy_parser.DEFAULT, **nodes: int
    ) -> World:
        """Return a world with nodes of so many cpus, after the first cycle."""
        made.append(World(ways, policy))
        for name, cpu in nodes.items():
            made[-1].create_node(name, cpu)
        made[-1].deliver()
        made[-1].run_cycle()
        made[-1].advance(1)
        return made[-1]

    try:
        yield make
    finally:
        for world in made:
            world.close()


def key(name: str) -> GangKey:
    return GangKey(f"a/{name}")


def uid(name: str) -> PodUid:
    return PodUid(f"uid-{name}")


def _line(item: Node | Queue | PodGroup | SeenPod) -> str:
    if isinstance(item, SeenPod):
        return f"pod {item.pod.name} of {item.membership.key} {dict(item.pod.requests)}"
    if isinstance(item, PodGroup):
        return f"PodGroup {item.name}: {item.min_member}, queue {item.queue!r}"
    if isinstance(item, Node):
        return f"node {item.name} {dict(item.allocatable)} {[each.key for each in item.taints]}"
    return f"queue {item.name}"

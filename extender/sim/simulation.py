"""Runs one scenario under one policy, from its beginning to its end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from extender.model.queue import DEFAULT_QUEUE, PriorityClass
from extender.model.resources import Resources, total
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.policy.options import Policy
from extender.sim import scenario as scenarios
from extender.sim.chance import seconds
from extender.sim.outcome import Outcome
from extender.sim.scenario import NOTHING_GIVEN, Given, Scenario
from extender.sim.world.workloads import Run
from extender.sim.world.world import World

#: How often whoever watches is told how far it is.
_STEPS = 100


class Simulation:
    """One run."""

    def __init__(self, scenario: Scenario, policy: Policy, given: Given = NOTHING_GIVEN) -> None:
        self._span_s = scenarios.span_s(scenario)
        self.world = world = World(policy, scenario.seed, rest_s=scenarios.pace_s(scenario))
        self.beginning = world.time.monotonic()
        self._nodes = scenarios.nodes_of(scenario, given)
        queues = scenarios.queues_of(scenario, given)
        for node in self._nodes.values():
            world.api.put(node)
        for queue in queues.values():
            world.api.put(queue)
        for rank in sorted({stream.priority for stream in scenario.arrivals} - {0}):
            world.api.put(PriorityClass(name=f"rank-{rank}", value=rank))
        for job in scenarios.jobs_of(scenario, given):
            world.workloads.submit(job)
        for mishap in scenario.mishaps:
            at = seconds(mishap.at, "at")
            happens = partial(self._lose, mishap.lose) if mishap.lose else None
            happens = happens or partial(self._restore, mishap.restore or "")
            world.time.call_later(at, happens)
        has = total(node.allocatable for node in self._nodes.values())
        names = sorted({DEFAULT_QUEUE, *queues})
        self.outcome = Outcome(
            self._span_s, Resources(has), names, is_of_a_tree=policy.is_of_a_tree
        )
        world.workloads.on_room = self._room
        world.extender.on_pass = self._planned

    def run(self, told: Callable[[float], None] = lambda part: None) -> Outcome:
        """Let it happen; *told* hears which part of it is over."""
        with _little_garbage():
            for step in range(1, _STEPS + 1):
                self.world.run(self.beginning + self._span_s * step / _STEPS)
                told(step / _STEPS)
        self.world.workloads.count_until_now()
        self.outcome.close(self.world.workloads.runs, self.world.extender.passes)
        return self.outcome

    def _at(self) -> float:
        return self.world.time.monotonic() - self.beginning

    def _room(self, run: Run, step: int) -> None:
        self.outcome.room(run, step, self._at())

    def _planned(self, snapshot: Snapshot, plan: Plan) -> None:
        self.outcome.planned(plan, self._at())

    def _lose(self, name: str) -> None:
        self.world.workloads.lose_node(name)

    def _restore(self, name: str) -> None:
        self.world.api.put(self._nodes[name])


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Look for cycles of garbage seldom: nearly all there is lives until the end."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)

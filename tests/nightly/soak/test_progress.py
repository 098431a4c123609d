"""I7: gangs that each fit alone all start, in any order of their bind calls.

This is the worst case: every pod has a reservation, so only permit prevents that gangs which do not
fit together block each other.
"""

from __future__ import annotations

from random import Random

import pytest

from extender.model.gang import GangKey
from extender.model.pod import PodUid, Status
from extender.permit.messages import Answer, BackOff, Bind, Instruction, Verify
from extender.permit.timeouts import Timeouts
from tests.unit.permit.world import MachineDriver, World

SLOTS = 6
SIZES = (4, 5, 6, 3)
RETRY_S = 1.0
RUN_S = 60.0


class GreedyScheduler:
    """Gives free slots to pods in random order; gangs run for a while and end."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World()
        self.world.add_node("n-1")
        for number, size in enumerate(SIZES):
            gang = GangKey(f"team/g-{number}")
            self.world.add_group(size, gang, uid=gang)
            for index in range(size):
                self.world.add_pod(f"{number}-{index}", gang)
        self.driver = MachineDriver(self.world, Timeouts(hold_s=5), self.random.random)
        self.placed: dict[PodUid, int] = {}
        self.not_before: dict[GangKey, float] = {}
        self.ends: dict[GangKey, float] = {}

    def run(self) -> float:
        """Return the time until every gang has run."""
        started = self.driver.now
        while len(self.ends) < len(SIZES):
            assert self.driver.now - started < 3600, "livelock"
            self.carry_out(self.driver.passes(RETRY_S))
            self.remove_finished_gangs()
            self.place_pods()
        return self.driver.now - started

    def place_pods(self) -> None:
        waiting = [uid for uid in self.world.pods if self.may_be_placed(uid)]
        self.random.shuffle(waiting)
        for uid in waiting:
            if len(self.placed) < SLOTS:
                self.world.flight.setdefault(uid, ("filtered", ""))
                instructions = self.driver.arrives(uid)
                self.placed[uid] = self.driver.last_call
                self.carry_out(instructions)

    def may_be_placed(self, uid: PodUid) -> bool:
        gang = self.world.gangs[uid]
        return uid not in self.placed and self.driver.now >= self.not_before.get(gang, 0.0)

    def carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Verify():
                    self.carry_out(self.driver.verified(instruction))
                case Bind(orders):
                    for order in orders:
                        self.carry_out(self.driver.settled(order.uid))
                        self.world.change_pod(order.uid, status=Status.RUNNING, node=order.node)
                        self.ends[self.world.gangs[order.uid]] = self.driver.now + RUN_S
                case BackOff(gang, span_s):
                    self.not_before[gang] = self.driver.now + span_s
                case Answer(id, error) if error:
                    self.placed = {uid: call for uid, call in self.placed.items() if call != id}

    def remove_finished_gangs(self) -> None:
        for gang, end in self.ends.items():
            if end <= self.driver.now:
                for pod in list(self.world.pods_of(gang)):
                    self.world.remove_pod(pod.uid)
                    self.placed.pop(pod.uid, None)


@pytest.mark.parametrize("seed", range(20))
def test_gangs_that_block_each_other_all_start(seed):
    assert GreedyScheduler(seed).run() < 3600

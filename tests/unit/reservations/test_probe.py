"""Probes of kube-scheduler: one pod at a time, and without a reservation."""

from __future__ import annotations

from typing import Any

import pytest

from extender.liveness import SchedulerLiveness
from extender.model.pod import WOKEN
from extender.model.reason import Reason
from extender.model.snapshot import Liveness
from extender.ports import WakeOrder
from extender.reservations.probe import SchedulerProbe
from tests.builders import pod_group, seen, shape, uid
from tests.unit.reservations.world import World

ITS_OWN = "0/2 nodes are available: 2 Insufficient cpu."
OURS = f"0/2 nodes are available: 2 {Reason.INSUFFICIENT_CAPACITY.sentence}."
BIG = shape(cpu=4)


class ProbeWorld(World):
    """A world with the liveness of the scheduler `mine`, to which all pods belong."""

    def __init__(self, *items: Any) -> None:
        super().__init__()
        self.cluster.liveness = tracker = SchedulerLiveness(("mine",), self.clock)
        self.ready: list[str] = []
        self.sent: list[WakeOrder] = []
        self.probe = SchedulerProbe(self.cluster, self.sent.extend, lambda: self.ready)
        self.see(*items)
        tracker.update()

    def run_cycles(self, seconds: float) -> None:
        """Let time pass, with planning cycles."""
        for _ in range(int(seconds * 2)):
            self.clock.advance(0.5)
            self.probe.probe()
            self.turn()

    @property
    def liveness(self) -> Liveness:
        return self.cluster.liveness.statuses()["mine"].liveness


def gang(name: str = "train", size: int = 2, **rest: Any) -> list[Any]:
    members = [seen(f"{name}-{n}", name, scheduler="mine", **rest) for n in range(size)]
    return [pod_group(name, size), *members]


def test_a_gang_of_a_scheduler_name_without_a_scheduler_never_gets_a_reservation() -> None:
    world = ProbeWorld(*gang())
    for _ in range(300):
        world.run_cycles(1)

        assert not world.cluster.reservations.of_gang(seen("train-0").membership.key)
    assert world.published().verdicts[seen("x").membership.key].reason is Reason.SCHEDULER_SILENT


def test_a_probe_nominates_no_node() -> None:
    world = ProbeWorld(*gang())
    world.run_cycles(10)

    assert {order.name for order in world.sent} == {"train-0", "train-1"}
    assert {order.node for order in world.sent} == {""}


def test_a_probe_marks_the_last_condition_so_that_kube_scheduler_writes_it_again() -> None:
    world = ProbeWorld(*gang(refusal=ITS_OWN, shape=BIG), seen("full", "", on="n1", shape=BIG))
    world.see(seen("fuller", "", on="n2", shape=BIG))
    world.run_cycles(1)
    assert [order.refusal for order in world.sent] == [ITS_OWN + WOKEN]

    world.see(seen("train-0", scheduler="mine", shape=BIG, refusal=ITS_OWN + WOKEN))
    world.see(seen("train-1", scheduler="mine", shape=BIG, refusal=ITS_OWN + WOKEN))
    world.run_cycles(10)

    assert {order.refusal for order in world.sent} == {ITS_OWN + WOKEN}


def test_the_mark_on_a_long_condition_stays_within_the_text_that_is_read() -> None:
    world = ProbeWorld(*gang(refusal=ITS_OWN + "x" * 300))
    world.run_cycles(1)

    assert len(world.sent[0].refusal) < 300
    assert world.sent[0].refusal.endswith(WOKEN)


def test_a_probe_nominates_a_node_for_a_moment_when_all_nodes_are_full() -> None:
    world = ProbeWorld(*gang(refusal=ITS_OWN, shape=BIG), seen("full", "", on="n1", shape=BIG))
    world.see(seen("fuller", "", on="n2", shape=BIG))
    world.run_cycles(1)

    (call,) = world.sent
    assert call.briefly
    assert world.cluster.node(call.node)


def test_the_gang_starts_at_once_after_the_first_filter_call() -> None:
    world = ProbeWorld(*gang())
    world.run_cycles(60)
    assert world.liveness is Liveness.SILENT

    world.gate.record_call(seen("train-0", scheduler="mine").pod)
    answer = world.ask("train-0", scheduler="mine")

    assert answer.nodes
    world.run_cycles(1)
    assert len(world.cluster.reservations.of_gang(seen("x").membership.key)) == 2


def test_a_pod_with_a_reservation_is_not_probed() -> None:
    world = ProbeWorld(*gang(refusal=OURS))
    world.gate.record_call(seen("train-0", scheduler="mine").pod)
    world.turn()
    assert world.cluster.reservations.of(uid("train-0"))
    world.clock.advance(30)
    for _ in range(10):
        world.clock.advance(0.5)
        world.probe.probe()

    assert world.sent == []


@pytest.mark.parametrize("why", ["standby: another leads", "pods: first list not complete"])
def test_a_replica_that_does_not_lead_or_see_the_cluster_sends_no_probe(why: str) -> None:
    world = ProbeWorld(*gang(refusal=OURS))
    world.ready = [why]
    world.run_cycles(100)

    assert world.sent == []
    assert world.liveness is Liveness.EXPECTED

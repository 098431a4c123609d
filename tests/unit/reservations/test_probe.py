"""Calling for kube-scheduler: one pod at a time, and without keeping any room."""

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


class Listening(World):
    """A world that listens for the scheduler `mine`, of which all pods are."""

    def __init__(self, *items: Any) -> None:
        super().__init__()
        self.cluster.liveness = hearing = SchedulerLiveness(("mine",), self.clock)
        self.ready: list[str] = []
        self.calls: list[WakeOrder] = []
        self._calls = SchedulerProbe(self.cluster, self.calls.extend, lambda: self.ready)
        self.see(*items)
        hearing.update()

    def listen(self, seconds: float) -> None:
        """Let time go by, with passes."""
        for _ in range(int(seconds * 2)):
            self.clock.advance(0.5)
            self._calls.probe()
            self.turn()

    @property
    def voice(self) -> Liveness:
        return self.cluster.liveness.statuses()["mine"].liveness


def gang(name: str = "train", size: int = 2, **rest: Any) -> list[Any]:
    members = [seen(f"{name}-{n}", name, scheduler="mine", **rest) for n in range(size)]
    return [pod_group(name, size), *members]


def test_a_gang_of_a_scheduler_name_without_a_scheduler_never_gets_a_reservation() -> None:
    world = Listening(*gang())
    for _ in range(300):
        world.listen(1)

        assert not world.cluster.reservations.of_gang(seen("train-0").membership.key)
    assert world.published().verdicts[seen("x").membership.key].reason is Reason.SCHEDULER_SILENT


def test_a_probe_nominates_no_node() -> None:
    world = Listening(*gang())
    world.listen(10)

    assert {order.name for order in world.calls} == {"train-0", "train-1"}
    assert {order.node for order in world.calls} == {""}


def test_a_probe_marks_the_last_condition_so_that_kube_scheduler_writes_it_again() -> None:
    world = Listening(*gang(refusal=ITS_OWN, shape=BIG), seen("full", "", on="n1", shape=BIG))
    world.see(seen("fuller", "", on="n2", shape=BIG))
    world.listen(1)
    assert [order.refusal for order in world.calls] == [ITS_OWN + WOKEN]

    world.see(seen("train-0", scheduler="mine", shape=BIG, refusal=ITS_OWN + WOKEN))
    world.see(seen("train-1", scheduler="mine", shape=BIG, refusal=ITS_OWN + WOKEN))
    world.listen(10)

    assert {order.refusal for order in world.calls} == {ITS_OWN + WOKEN}


def test_the_mark_on_a_long_condition_stays_within_the_text_that_is_read() -> None:
    world = Listening(*gang(refusal=ITS_OWN + "x" * 300))
    world.listen(1)

    assert len(world.calls[0].refusal) < 300
    assert world.calls[0].refusal.endswith(WOKEN)


def test_a_probe_nominates_a_node_for_a_moment_when_all_nodes_are_full() -> None:
    world = Listening(*gang(refusal=ITS_OWN, shape=BIG), seen("full", "", on="n1", shape=BIG))
    world.see(seen("fuller", "", on="n2", shape=BIG))
    world.listen(1)

    (call,) = world.calls
    assert call.briefly
    assert world.cluster.node(call.node)


def test_the_gang_starts_at_once_after_the_first_filter_call() -> None:
    world = Listening(*gang())
    world.listen(60)
    assert world.voice is Liveness.SILENT

    world.gate.record_call(seen("train-0", scheduler="mine").pod)
    answer = world.ask("train-0", scheduler="mine")

    assert answer.nodes
    world.listen(1)
    assert len(world.cluster.reservations.of_gang(seen("x").membership.key)) == 2


def test_a_pod_with_a_reservation_is_not_probed() -> None:
    world = Listening(*gang(refusal=OURS))
    world.gate.record_call(seen("train-0", scheduler="mine").pod)
    world.turn()
    assert world.cluster.reservations.of(uid("train-0"))
    world.clock.advance(30)
    for _ in range(10):
        world.clock.advance(0.5)
        world._calls.probe()

    assert world.calls == []


@pytest.mark.parametrize("why", ["standby: another leads", "pods: first list not complete"])
def test_a_replica_that_does_not_lead_or_see_the_cluster_sends_no_probe(why: str) -> None:
    world = Listening(*gang(refusal=OURS))
    world.ready = [why]
    world.listen(100)

    assert world.calls == []
    assert world.voice is Liveness.EXPECTED

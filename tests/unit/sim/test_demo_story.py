"""An act of the demo fails when what it claims did not happen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from extender.clock import SystemClock
from extender.demo import objects
from extender.demo.cluster import SimCluster
from extender.demo.story import Act, ActOutcome, ActRunner, PlacementLog
from extender.demo.workloads import DemoJob, DemoWorkloads


class FakeDemo:
    """A demo cluster without a scheduler."""

    def __init__(self) -> None:
        self.cluster = SimCluster(lambda thing: pytest.fail("there is no scheduler"), SystemClock())
        self._ticks = count(1)
        self.workloads = DemoWorkloads(self.cluster)
        self.placements = PlacementLog(self.cluster, monotonic=lambda: float(next(self._ticks)))

        self.planned: dict[str, Any] = {"gangs": [], "queues": [], "held": []}

    def plan(self) -> dict[str, Any]:
        return self.planned

    def set_policy(self, text: str) -> None: ...

    def bind(self, name: str) -> None:
        (pod,) = (each for each in self.cluster.all("Pod") if each["metadata"]["name"] == name)
        self.cluster.change(pod, lambda it: it["spec"].update(nodeName="node-0"))


def run_act(play: Callable[[ActRunner], None], demo: FakeDemo | None = None) -> ActOutcome:
    runner = ActRunner(demo or FakeDemo(), lambda sentence: None, speed=100)
    runner.patience_s = 0.0
    return runner.run(Act("act", "title", "promise", play))


def test_a_false_claim_fails_the_act() -> None:
    outcome = run_act(lambda on: (on.claim(True, "so it is"), on.claim(False, "all is well"))[0])

    assert outcome.claims == ["so it is"]
    assert outcome.broken == "not true: all is well"


def test_an_announced_start_that_does_not_come_fails_the_act() -> None:
    outcome = run_act(lambda on: on.wait_for_start("red", 8))

    assert outcome.broken == "timed out: red runs with 8 pods"


def test_an_act_removes_its_gangs() -> None:
    demo = FakeDemo()
    job = DemoJob(name="red", queue="lab", size=2, min_member=2, requests={"cpu": "1"})

    run_act(lambda on: on.workloads.submit(job), demo)

    assert demo.cluster.all("Pod") == demo.cluster.all("PodGroup") == []


def test_two_gangs_on_nodes_at_once_are_noticed() -> None:
    demo = FakeDemo()
    for gang in ("red", "blue"):
        demo.cluster.create(objects.pod(f"{gang}-0", gang))
    demo.bind("red-0")
    assert not demo.placements.were_together("red", "blue")

    demo.bind("blue-0")

    assert demo.placements.were_together("red", "blue")


def test_a_gang_that_lost_a_pod_is_noticed() -> None:
    demo = FakeDemo()
    for number in range(2):
        demo.cluster.create(objects.pod(f"red-{number}", "red"))
        demo.bind(f"red-{number}")
    assert demo.placements.fewest("red", 0.0, 2) == 2

    demo.cluster.delete("Pod", objects.NAMESPACE, "red-1")

    assert demo.placements.fewest("red", 0.0, 2) == 1
    assert demo.placements.on_nodes("red") == 1


@pytest.mark.parametrize(
    ("kept_for", "admitted", "is_all_kept"),
    [
        (["demo/giant"], [], True),
        ([], [], False),
        (["demo/s9"], ["s9"], False),
        (["demo/giant", "demo/s9"], [], False),
        (["demo/giant"], ["s9"], False),
    ],
)
def test_capacity_held_for_an_admitted_gang_is_not_reserved_for_giant(
    kept_for: list[str], admitted: list[str], is_all_kept: bool
) -> None:
    demo = FakeDemo()
    demo.planned["held"] = [{"for": each} for each in kept_for]
    demo.planned["gangs"] = [{"name": each, "reason": "Admitted"} for each in admitted]

    runner = ActRunner(demo, lambda sentence: None)

    assert runner.is_all_reserved_for("giant") == is_all_kept

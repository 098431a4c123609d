"""The story is held to its word: what an act claims is judged by what really happened."""

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


class Scene:
    """A cluster where nobody schedules."""

    def __init__(self) -> None:
        self.cluster = SimCluster(lambda thing: pytest.fail("nobody asks"), SystemClock())
        self._ticks = count(1)
        self.workloads = DemoWorkloads(self.cluster)
        self.placements = PlacementLog(self.cluster, monotonic=lambda: float(next(self._ticks)))

        self.planned: dict[str, Any] = {"gangs": [], "queues": [], "held": []}

    def plan(self) -> dict[str, Any]:
        return self.planned

    def set_policy(self, text: str) -> None: ...

    def seat(self, name: str) -> None:
        (pod,) = (each for each in self.cluster.all("Pod") if each["metadata"]["name"] == name)
        self.cluster.change(pod, lambda it: it["spec"].update(nodeName="node-0"))


def told(tell: Callable[[ActRunner], None], scene: Scene | None = None) -> ActOutcome:
    telling = ActRunner(scene or Scene(), lambda sentence: None, speed=100)
    telling.patience_s = 0.0
    return telling.run(Act("act", "title", "promise", tell))


def test_a_false_claim_fails_the_act() -> None:
    outcome = told(lambda on: (on.claim(True, "so it is"), on.claim(False, "all is well"))[0])

    assert outcome.claims == ["so it is"]
    assert outcome.broken == "not true: all is well"


def test_an_announced_start_that_does_not_come_fails_the_act() -> None:
    outcome = told(lambda on: on.wait_for_start("red", 8))

    assert outcome.broken == "timed out: red runs with 8 pods"


def test_an_act_removes_its_gangs() -> None:
    scene = Scene()
    wish = DemoJob(name="red", queue="lab", size=2, min_member=2, requests={"cpu": "1"})

    told(lambda on: on.workloads.submit(wish), scene)

    assert scene.cluster.all("Pod") == scene.cluster.all("PodGroup") == []


def test_two_gangs_on_nodes_at_once_are_noticed() -> None:
    scene = Scene()
    for gang in ("red", "blue"):
        scene.cluster.create(objects.pod(f"{gang}-0", gang))
    scene.seat("red-0")
    assert not scene.placements.were_together("red", "blue")

    scene.seat("blue-0")

    assert scene.placements.were_together("red", "blue")


def test_a_gang_that_lost_a_pod_is_noticed() -> None:
    scene = Scene()
    for number in range(2):
        scene.cluster.create(objects.pod(f"red-{number}", "red"))
        scene.seat(f"red-{number}")
    assert scene.placements.fewest("red", 0.0, 2) == 2

    scene.cluster.delete("Pod", objects.NAMESPACE, "red-1")

    assert scene.placements.fewest("red", 0.0, 2) == 1
    assert scene.placements.on_nodes("red") == 1


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
    scene = Scene()
    scene.planned["held"] = [{"for": each} for each in kept_for]
    scene.planned["gangs"] = [{"name": each, "reason": "Admitted"} for each in admitted]

    telling = ActRunner(scene, lambda sentence: None)

    assert telling.is_all_reserved_for("giant") == is_all_kept

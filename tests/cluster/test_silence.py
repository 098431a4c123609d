"""kube-schedulers that do not come: room is for those who do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from extender.kube.act.wake import WOKEN

from . import objects
from .api import Api
from .components import Scheduler
from .control_plane import ControlPlane
from .extender_process import Extender
from .stage import Pool
from .waiting import wait_for

Nodes = Callable[..., Pool]

LIVING, MORTAL, NOBODY = "silence-living", "silence-mortal", "silence-nobody"
OURS = [f"--scheduler-name={name}" for name in (LIVING, MORTAL, NOBODY)]
UNHEARD = "gang_extender_unheard_pods"
LAST_HOOK = "gang_extender_last_hook_timestamp_seconds"


@dataclass
class Scene:
    """One extender, asked by two kube-schedulers; a third name nobody serves."""

    api: Api
    extender: Extender
    mortal: Scheduler
    namespace: str
    pool: Pool

    def create_gang(self, name: str, size: int, scheduler: str, **rest: Any) -> None:
        group = {key: rest.pop(key) for key in ("queue",) if key in rest}
        least = rest.pop("minimum", size)
        self.api.create(objects.pod_group(name, self.namespace, least, **group))
        facts = {"node_selector": self.pool.selector, "scheduler": scheduler, "cpu": "1", **rest}
        self.api.create(*objects.pods(size, name, self.namespace, gang=name, **facts))

    def delete_gang(self, name: str) -> None:
        for pod in self.api.list("pods", self.namespace):
            if pod["metadata"]["name"].startswith(f"{name}-"):
                self.api.delete("pods", pod["metadata"]["name"], self.namespace, grace_seconds=0)

    def running(self, name: str) -> int:
        pods = self.api.list("pods", self.namespace)
        mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
        return sum(bool(objects.node_of(pod)) for pod in mine)

    def refused(self, name: str) -> int:
        pods = self.api.list("pods", self.namespace)
        mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
        return sum(bool(pod["status"].get("conditions")) for pod in mine)

    def wait_until_running(self, name: str, size: int, seconds: float) -> None:
        wait_for(
            lambda: self.running(name) == size,
            seconds,
            f"{size} pods of {name} run",
            seeing=lambda: (self.running(name), self.told(name)),
        )

    def told(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self.extender.page(f"/api/v1/gangs/{self.namespace}/{name}")
        )
        return answer

    def wait_until_told(self, name: str, reason: str, seconds: float = 30) -> None:
        wait_for(
            lambda: self.told(name).get("reason") == reason,
            seconds,
            f"{name} waits for {reason}",
            seeing=lambda: self.told(name),
        )

    def unheard(self, scheduler: str) -> float:
        return self.extender.metric(UNHEARD, scheduler=scheduler)


@pytest.fixture
def scene(plane: ControlPlane, api: Api, namespace: str, nodes: Nodes) -> Iterator[Scene]:
    with plane.extender(*OURS) as extender:
        living, mortal = (
            plane.scheduler(plane.scheduler_config(extender, f"--scheduler-name={name}"))
            for name in (LIVING, MORTAL)
        )
        with living, mortal:
            yield Scene(api, extender, mortal, namespace, nodes(1, cpu="4"))


def test_a_gang_of_a_name_that_no_profile_serves_takes_no_room(scene: Scene) -> None:
    scene.create_gang("stray", 4, NOBODY)
    scene.wait_until_told("stray", "SchedulerSilent")
    scene.create_gang("train", 4, LIVING)

    scene.wait_until_running("train", 4, 15)

    wait_for(lambda: scene.unheard(NOBODY) >= 1, 60, "pods of nobody are unheard")
    assert scene.extender.metric(LAST_HOOK, scheduler=NOBODY) == 0
    assert scene.extender.metric(LAST_HOOK, scheduler=LIVING) > 1e9
    note = f"scheduler {NOBODY}: no kube-scheduler has asked for pods of scheduler name {NOBODY}"
    assert note in scene.extender.page("/readyz")
    assert scene.extender.page("/readyz").startswith("ok\n")
    assert scene.unheard(LIVING) == 0


def test_nobody_leaves_for_a_gang_of_a_name_that_no_profile_serves(
    scene: Scene, create: Callable[..., Any]
) -> None:
    create(objects.queue("silence-rich"), objects.queue("silence-poor"))
    scene.create_gang("lent", 4, LIVING, queue="silence-rich")
    scene.wait_until_running("lent", 4, 30)
    before = {pod["metadata"]["uid"] for pod in scene.api.list("pods", scene.namespace)}

    scene.create_gang("stray", 2, NOBODY, queue="silence-poor")
    scene.wait_until_told("stray", "SchedulerSilent")
    wait_for(lambda: scene.unheard(NOBODY) >= 1, 60, "pods of nobody are unheard")

    assert scene.running("lent") == 4
    pods = scene.api.list("pods", scene.namespace)
    assert before <= {pod["metadata"]["uid"] for pod in pods}
    scene.delete_gang("stray")
    scene.create_gang("rightful", 2, LIVING, queue="silence-poor")
    scene.wait_until_running("rightful", 2, 60)


def test_a_kube_scheduler_that_died_is_noticed_and_its_gangs_start_when_it_is_back(
    scene: Scene,
) -> None:
    scene.create_gang("old", 4, LIVING)
    scene.wait_until_running("old", 4, 30)
    scene.create_gang("train", 4, MORTAL)
    scene.wait_until_told("train", "NotEnoughRoom")
    assert scene.unheard(MORTAL) == 0

    scene.mortal.kill()
    wait_for(lambda: scene.unheard(MORTAL) >= 1, 60, "the dead scheduler is noticed")
    scene.wait_until_told("train", "SchedulerSilent")
    assert f"scheduler {MORTAL}: no kube-scheduler has asked" in scene.extender.page("/readyz")

    scene.delete_gang("old")
    scene.create_gang("other", 4, LIVING)
    scene.wait_until_running("other", 4, 15)
    scene.delete_gang("other")
    wait_for(lambda: scene.running("other") == 0, 30, "the other gang is gone")

    scene.mortal.start()
    scene.wait_until_running("train", 4, 15)
    wait_for(lambda: scene.unheard(MORTAL) == 0, 10, "it is heard again")
    assert MORTAL not in scene.extender.page("/readyz")


def test_a_kube_scheduler_that_has_nothing_to_ask_in_a_full_cluster_is_not_taken_for_dead(
    scene: Scene,
) -> None:
    scene.create_gang("old", 4, LIVING)
    scene.wait_until_running("old", 4, 30)
    # No node takes one of them, so it is kube-scheduler that says so and we are not asked.
    scene.create_gang("train", 4, MORTAL)
    scene.wait_until_told("train", "NotEnoughRoom")
    calls: set[str] = set()

    def is_called_again() -> bool:
        for pod in scene.api.list("pods", scene.namespace):
            calls.add(pod["metadata"].get("annotations", {}).get(WOKEN, ""))
        told = scene.told("train")["reason"]
        if scene.unheard(MORTAL) or told != "NotEnoughRoom":
            pytest.fail(f"taken for dead after {len(calls) - 1} calls: {told}")
        return len(calls - {""}) >= 3

    wait_for(is_called_again, 300, "it was called three times", seeing=lambda: calls, every_s=0.5)


def test_new_pods_that_a_dead_kube_scheduler_never_saw_are_noticed(scene: Scene) -> None:
    scene.create_gang("first", 1, MORTAL)
    scene.wait_until_running("first", 1, 30)
    scene.mortal.kill()

    scene.create_gang("train", 2, MORTAL)

    wait_for(lambda: scene.unheard(MORTAL) >= 2, 60, "both pods are unheard")
    scene.mortal.start()
    scene.wait_until_running("train", 2, 30)


def test_waiting_gangs_of_a_full_cluster_start_after_a_restart_of_ours(scene: Scene) -> None:
    scene.create_gang("old", 4, LIVING)
    scene.wait_until_running("old", 4, 30)
    scene.create_gang("train", 4, MORTAL)
    scene.wait_until_told("train", "NotEnoughRoom")

    scene.extender.terminate()
    scene.extender.start()
    scene.wait_until_told("train", "NotEnoughRoom")
    scene.delete_gang("old")

    scene.wait_until_running("train", 4, 30)


def test_room_that_is_owed_in_a_full_cluster_is_made_after_a_restart_of_ours(
    scene: Scene, create: Callable[..., Any]
) -> None:
    create(objects.queue("silence-rich"), objects.queue("silence-poor"))
    scene.create_gang("lent", 4, LIVING, queue="silence-rich", minimum=2)
    scene.wait_until_running("lent", 4, 30)
    scene.extender.terminate()
    # kube-scheduler has refused them before we are back, and has nothing to ask.
    scene.create_gang("owed", 2, LIVING, queue="silence-poor")
    wait_for(lambda: scene.refused("owed") == 2, 30, "kube-scheduler has found no room")

    scene.extender.start()

    scene.wait_until_running("owed", 2, 180)


def test_a_second_extender_that_nobody_asks_makes_nobody_leave(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, create: Callable[..., Any]
) -> None:
    create(objects.queue("silence-rich"), objects.queue("silence-poor"))
    with plane.extender(f"--scheduler-name={LIVING}", "--dry-run") as first:
        config = plane.scheduler_config(first, f"--scheduler-name={LIVING}")
        with plane.scheduler(config) as scheduler:
            scene = Scene(api, first, scheduler, namespace, nodes(1, cpu="4"))
            scene.create_gang("lent", 3, LIVING, queue="silence-rich")
            scene.wait_until_running("lent", 3, 30)
            # Its members fit one by one, so kube-scheduler asks about them.
            scene.create_gang("train", 2, LIVING, queue="silence-poor")
            scene.wait_until_told("train", "WaitingForVictims")

            with plane.extender(f"--scheduler-name={LIVING}") as second:
                note = f"scheduler {LIVING}: kube-scheduler asks another extender"
                wait_for(
                    lambda: note in second.page("/readyz"),
                    60,
                    "the second knows that it is the second",
                    seeing=lambda: second.page("/readyz"),
                )
                # The one that is asked goes on, and names the other once both have woken a pod.
                wait_for(
                    lambda: "another extender (" in first.page("/readyz"),
                    120,
                    "the first has met the second",
                )
                assert first.metric("gang_extender_rivals") == 1

            assert scene.running("lent") == 3

"""Pods of kube-schedulers that do not come, in a full cluster and over a restart of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from extender.model.annotations import WOKEN
from tests import objects
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.scheduler_liveness import KILLED, LIVE, UNSERVED, SchedulerScene, running_scene
from tests.cluster.train_gang import Pool
from tests.cluster.waiting import wait_for

Nodes = Callable[..., Pool]


@pytest.fixture
def scene(plane: ControlPlane, api: Api, namespace: str, nodes: Nodes) -> Iterator[SchedulerScene]:
    with running_scene(plane, api, namespace, nodes(1, cpu="4")) as made:
        yield made


def test_nobody_leaves_for_a_gang_of_a_name_that_no_profile_serves(
    scene: SchedulerScene, create: Callable[..., Any]
) -> None:
    create(objects.queue("silence-rich"), objects.queue("silence-poor"))
    scene.create_gang("lent", 4, LIVE, queue="silence-rich")
    scene.wait_until_running("lent", 4, 30)
    before = {pod["metadata"]["uid"] for pod in scene.api.list("pods", scene.namespace)}

    scene.create_gang("stray", 2, UNSERVED, queue="silence-poor")
    scene.wait_until_reported("stray", "SchedulerSilent")
    wait_for(lambda: scene.pods_without_scheduler(UNSERVED) >= 1, 60, "pods of nobody are unheard")

    assert scene.running("lent") == 4
    pods = scene.api.list("pods", scene.namespace)
    assert before <= {pod["metadata"]["uid"] for pod in pods}
    scene.delete_gang("stray")
    scene.create_gang("rightful", 2, LIVE, queue="silence-poor")
    scene.wait_until_running("rightful", 2, 60)


def test_a_kube_scheduler_that_has_nothing_to_ask_in_a_full_cluster_is_not_taken_for_dead(
    scene: SchedulerScene,
) -> None:
    scene.create_gang("old", 4, LIVE)
    scene.wait_until_running("old", 4, 30)
    # No node takes one of them, so it is kube-scheduler that says so and we are not asked.
    scene.create_gang("train", 4, KILLED)
    scene.wait_until_reported("train", "InsufficientCapacity")
    calls: set[str] = set()

    def is_called_again() -> bool:
        for pod in scene.api.list("pods", scene.namespace):
            calls.add(pod["metadata"].get("annotations", {}).get(WOKEN, ""))
        told = scene.explanation("train")["reason"]
        if scene.pods_without_scheduler(KILLED) or told != "InsufficientCapacity":
            pytest.fail(f"taken for dead after {len(calls) - 1} calls: {told}")
        return len(calls - {""}) >= 3

    wait_for(is_called_again, 300, "it was called three times", seeing=lambda: calls, every_s=0.5)


def test_new_pods_that_a_dead_kube_scheduler_never_saw_are_noticed(scene: SchedulerScene) -> None:
    scene.create_gang("first", 1, KILLED)
    scene.wait_until_running("first", 1, 30)
    scene.killable.kill()

    scene.create_gang("train", 2, KILLED)

    wait_for(lambda: scene.pods_without_scheduler(KILLED) >= 2, 60, "both pods are unheard")
    scene.killable.start()
    scene.wait_until_running("train", 2, 30)


def test_waiting_gangs_of_a_full_cluster_start_after_a_restart_of_ours(
    scene: SchedulerScene,
) -> None:
    scene.create_gang("old", 4, LIVE)
    scene.wait_until_running("old", 4, 30)
    scene.create_gang("train", 4, KILLED)
    scene.wait_until_reported("train", "InsufficientCapacity")

    scene.extender.terminate()
    scene.extender.start()
    scene.wait_until_reported("train", "InsufficientCapacity")
    scene.delete_gang("old")

    scene.wait_until_running("train", 4, 30)


def test_room_that_is_owed_in_a_full_cluster_is_made_after_a_restart_of_ours(
    scene: SchedulerScene, create: Callable[..., Any]
) -> None:
    create(objects.queue("silence-rich"), objects.queue("silence-poor"))
    scene.create_gang("lent", 4, LIVE, queue="silence-rich", minimum=2)
    scene.wait_until_running("lent", 4, 30)
    scene.extender.terminate()
    # kube-scheduler has refused them before we are back, and has nothing to ask.
    scene.create_gang("owed", 2, LIVE, queue="silence-poor")
    wait_for(lambda: scene.refused("owed") == 2, 30, "kube-scheduler has found no room")

    scene.extender.start()

    scene.wait_until_running("owed", 2, 180)

"""kube-schedulers that do not call, in a full cluster and over a restart of the extender."""

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


def test_no_pod_is_evicted_for_a_gang_of_an_unserved_scheduler_name(
    scene: SchedulerScene, create: Callable[..., Any]
) -> None:
    create(objects.queue("liveness-rich"), objects.queue("liveness-poor"))
    scene.create_gang("borrowing", 4, LIVE, queue="liveness-rich")
    scene.wait_until_running("borrowing", 4, 30)
    before = {pod["metadata"]["uid"] for pod in scene.api.list("pods", scene.namespace)}

    scene.create_gang("unserved", 2, UNSERVED, queue="liveness-poor")
    scene.wait_until_reported("unserved", "SchedulerSilent")
    wait_for(lambda: scene.pods_without_scheduler(UNSERVED) >= 1, 60, "the pods have no scheduler")

    assert scene.running("borrowing") == 4
    pods = scene.api.list("pods", scene.namespace)
    assert before <= {pod["metadata"]["uid"] for pod in pods}
    scene.delete_gang("unserved")
    scene.create_gang("served", 2, LIVE, queue="liveness-poor")
    scene.wait_until_running("served", 2, 60)


def test_kube_scheduler_without_calls_in_a_full_cluster_counts_as_alive(
    scene: SchedulerScene,
) -> None:
    scene.create_gang("old", 4, LIVE)
    scene.wait_until_running("old", 4, 30)
    # No node fits one of them, so kube-scheduler does not call filter.
    scene.create_gang("train", 4, KILLED)
    scene.wait_until_reported("train", "InsufficientCapacity")
    calls: set[str] = set()

    def is_woken_again() -> bool:
        for pod in scene.api.list("pods", scene.namespace):
            calls.add(pod["metadata"].get("annotations", {}).get(WOKEN, ""))
        reason = scene.explanation("train")["reason"]
        if scene.pods_without_scheduler(KILLED) or reason != "InsufficientCapacity":
            pytest.fail(f"counted as dead after {len(calls) - 1} calls: {reason}")
        return len(calls - {""}) >= 3

    wait_for(is_woken_again, 300, "it was woken three times", seeing=lambda: calls, every_s=0.5)


def test_new_pods_of_a_dead_kube_scheduler_are_noticed(scene: SchedulerScene) -> None:
    scene.create_gang("first", 1, KILLED)
    scene.wait_until_running("first", 1, 30)
    scene.killable.kill()

    scene.create_gang("train", 2, KILLED)

    wait_for(lambda: scene.pods_without_scheduler(KILLED) >= 2, 60, "both pods have no scheduler")
    scene.killable.start()
    scene.wait_until_running("train", 2, 30)


def test_waiting_gang_starts_after_a_restart_of_the_extender(
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


def test_deserved_share_is_reclaimed_after_a_restart_of_the_extender(
    scene: SchedulerScene, create: Callable[..., Any]
) -> None:
    create(objects.queue("liveness-rich"), objects.queue("liveness-poor"))
    scene.create_gang("borrowing", 4, LIVE, queue="liveness-rich", minimum=2)
    scene.wait_until_running("borrowing", 4, 30)
    scene.extender.terminate()
    # kube-scheduler has refused them before the extender restarts, and does not call filter.
    scene.create_gang("deserving", 2, LIVE, queue="liveness-poor")
    wait_for(lambda: scene.refused("deserving") == 2, 30, "kube-scheduler has found no node")

    scene.extender.start()

    scene.wait_until_running("deserving", 2, 180)

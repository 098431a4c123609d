"""No capacity is reserved for a kube-scheduler that does not call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .scheduler_liveness import KILLED, LIVE, SchedulerScene, running_scene
from .train_gang import Nodes
from .waiting import wait_for


@pytest.fixture
def scene(plane: ControlPlane, api: Api, namespace: str, nodes: Nodes) -> Iterator[SchedulerScene]:
    with running_scene(plane, api, namespace, nodes(1, cpu="4")) as made:
        yield made


def test_dead_kube_scheduler_is_noticed_and_its_gangs_start_after_its_restart(
    scene: SchedulerScene,
) -> None:
    scene.create_gang("old", 4, LIVE)
    scene.wait_until_running("old", 4, 30)
    scene.create_gang("train", 4, KILLED)
    scene.wait_until_reported("train", "InsufficientCapacity")
    assert scene.pods_without_scheduler(KILLED) == 0

    scene.killable.kill()
    wait_for(lambda: scene.pods_without_scheduler(KILLED) >= 1, 60, "the dead scheduler is noticed")
    scene.wait_until_reported("train", "SchedulerSilent")
    assert f"scheduler {KILLED}: no kube-scheduler has called" in scene.extender.page("/readyz")

    scene.delete_gang("old")
    scene.create_gang("other", 4, LIVE)
    scene.wait_until_running("other", 4, 15)
    scene.delete_gang("other")
    wait_for(lambda: scene.running("other") == 0, 30, "the other gang is gone")

    scene.killable.start()
    scene.wait_until_running("train", 4, 15)
    wait_for(lambda: scene.pods_without_scheduler(KILLED) == 0, 10, "it calls again")
    assert KILLED not in scene.extender.page("/readyz")


def test_second_extender_that_no_scheduler_calls_evicts_nothing(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, create: Callable[..., Any]
) -> None:
    create(objects.queue("liveness-rich"), objects.queue("liveness-poor"))
    with plane.extender(f"--scheduler-name={LIVE}", "--dry-run") as first:
        config = plane.scheduler_config(first, f"--scheduler-name={LIVE}")
        with plane.scheduler(config) as scheduler:
            scene = SchedulerScene(api, first, scheduler, namespace, nodes(1, cpu="4"))
            scene.create_gang("borrowing", 3, LIVE, queue="liveness-rich")
            scene.wait_until_running("borrowing", 3, 30)
            # Its members fit one by one, so kube-scheduler calls filter for them.
            scene.create_gang("train", 2, LIVE, queue="liveness-poor")
            scene.wait_until_reported("train", "WaitingForVictims")

            with plane.extender(f"--scheduler-name={LIVE}") as second:
                note = f"scheduler {LIVE}: kube-scheduler calls another extender"
                wait_for(
                    lambda: note in second.page("/readyz"),
                    60,
                    "the second knows that it is not called",
                    seeing=lambda: second.page("/readyz"),
                )
                # The first continues, and names the other when both have woken a pod.
                wait_for(
                    lambda: "another extender (" in first.page("/readyz"),
                    120,
                    "the first knows the second",
                )
                assert first.metric("gang_extender_other_extenders") == 1

            assert scene.running("borrowing") == 3

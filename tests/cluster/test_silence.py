"""kube-schedulers that do not come: room is for those who do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .silence import LIVING, MORTAL, NOBODY, Scene, played
from .stage import Pool
from .waiting import wait_for

Nodes = Callable[..., Pool]

LAST_HOOK = "gang_extender_last_hook_timestamp_seconds"


@pytest.fixture
def scene(plane: ControlPlane, api: Api, namespace: str, nodes: Nodes) -> Iterator[Scene]:
    with played(plane, api, namespace, nodes(1, cpu="4")) as made:
        yield made


def test_a_gang_of_a_name_that_no_profile_serves_takes_no_room(scene: Scene) -> None:
    scene.create_gang("stray", 4, NOBODY)
    scene.wait_until_told("stray", "SchedulerSilent")
    scene.create_gang("train", 4, LIVING)

    scene.wait_until_running("train", 4, 15)

    wait_for(lambda: scene.unheard(NOBODY) >= 1, 60, "pods of nobody are unheard")
    assert scene.extender.metric(LAST_HOOK, scheduler=NOBODY) == 0
    assert scene.extender.metric(LAST_HOOK, scheduler=LIVING) > 1e9
    note = f"scheduler {NOBODY}: no kube-scheduler has called for pods of scheduler name {NOBODY}"
    assert note in scene.extender.page("/readyz")
    assert scene.extender.page("/readyz").startswith("ok\n")
    assert scene.unheard(LIVING) == 0


def test_a_kube_scheduler_that_died_is_noticed_and_its_gangs_start_when_it_is_back(
    scene: Scene,
) -> None:
    scene.create_gang("old", 4, LIVING)
    scene.wait_until_running("old", 4, 30)
    scene.create_gang("train", 4, MORTAL)
    scene.wait_until_told("train", "InsufficientCapacity")
    assert scene.unheard(MORTAL) == 0

    scene.mortal.kill()
    wait_for(lambda: scene.unheard(MORTAL) >= 1, 60, "the dead scheduler is noticed")
    scene.wait_until_told("train", "SchedulerSilent")
    assert f"scheduler {MORTAL}: no kube-scheduler has called" in scene.extender.page("/readyz")

    scene.delete_gang("old")
    scene.create_gang("other", 4, LIVING)
    scene.wait_until_running("other", 4, 15)
    scene.delete_gang("other")
    wait_for(lambda: scene.running("other") == 0, 30, "the other gang is gone")

    scene.mortal.start()
    scene.wait_until_running("train", 4, 15)
    wait_for(lambda: scene.unheard(MORTAL) == 0, 10, "it is heard again")
    assert MORTAL not in scene.extender.page("/readyz")


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
                note = f"scheduler {LIVING}: kube-scheduler calls another extender"
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
                assert first.metric("gang_extender_other_extenders") == 1

            assert scene.running("lent") == 3

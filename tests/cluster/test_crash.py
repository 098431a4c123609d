"""What survives when one of us dies in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .api import Api
from .control_plane import ControlPlane
from .observer import WHOLE_S
from .stage import OURS, SCHEDULER, GangScheduler, Pool, Stage

Nodes = Callable[..., Pool]


@pytest.fixture
def stage(plane: ControlPlane, api: Api, namespace: str, nodes: Nodes) -> Iterator[Stage]:
    """Two members of a gang of three at the barrier of a pair of the test's own, to be killed."""
    with plane.extender(*OURS) as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            stage = Stage(api, GangScheduler(extender, scheduler), namespace, nodes(1))
            stage.hold(2, minimum=3)
            yield stage


def test_a_killed_extender_loses_nothing_and_the_gang_starts_whole_after_its_restart(
    plane: ControlPlane, stage: Stage
) -> None:
    stage.extender.kill()

    assert stage.bound == []
    with plane.binds(stage.namespace) as binds:
        stage.extender.start()
        stage.add(2)
        binds.wait_for(3, 60)
        assert binds.spread_s() < WHOLE_S


def test_a_killed_kube_scheduler_leaves_nothing_held(plane: ControlPlane, stage: Stage) -> None:
    stage.pair.scheduler.kill()

    stage.wait_until_held(0)
    assert stage.bound == []
    with plane.binds(stage.namespace) as binds:
        stage.pair.scheduler.start()
        stage.add(2)
        binds.wait_for(3, 60)
        assert binds.spread_s() < WHOLE_S


def test_an_extender_told_to_stop_refuses_what_it_holds_at_once(stage: Stage) -> None:
    stage.extender.terminate()

    stage.wait_until_told("train-0", "the extender is shutting down")
    assert stage.bound == []

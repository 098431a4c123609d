"""Crashes of the extender and of kube-scheduler while binds wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .api import Api
from .control_plane import ControlPlane
from .observer import WHOLE_S
from .train_gang import OURS, SCHEDULER, GangScheduler, Pool, TrainGang

Nodes = Callable[..., Pool]


@pytest.fixture
def train(plane: ControlPlane, api: Api, namespace: str, nodes: Nodes) -> Iterator[TrainGang]:
    """Two waiting binds of a gang of three, with a pair of the test's own."""
    with plane.extender(*OURS) as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            train = TrainGang(api, GangScheduler(extender, scheduler), namespace, nodes(1))
            train.create_waiting(2, minimum=3)
            yield train


def test_gang_starts_whole_after_the_extender_was_killed(
    plane: ControlPlane, train: TrainGang
) -> None:
    train.extender.kill()

    assert train.bound == []
    with plane.binds(train.namespace) as binds:
        train.extender.start()
        train.add(2)
        binds.wait_for(3, 60)
        assert binds.spread_s() < WHOLE_S


def test_no_bind_waits_after_kube_scheduler_was_killed(
    plane: ControlPlane, train: TrainGang
) -> None:
    train.pair.scheduler.kill()

    train.wait_for_waiting_binds(0)
    assert train.bound == []
    with plane.binds(train.namespace) as binds:
        train.pair.scheduler.start()
        train.add(2)
        binds.wait_for(3, 60)
        assert binds.spread_s() < WHOLE_S


def test_extender_refuses_waiting_binds_on_sigterm(train: TrainGang) -> None:
    train.extender.terminate()

    train.wait_until_refused("train-0", "the extender is shutting down")
    assert train.bound == []

"""Timeouts while binds wait: those of the extender and of kube-scheduler."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .api import Api
from .control_plane import ControlPlane
from .observer import WHOLE_S
from .train_gang import OURS, SCHEDULER, GangScheduler, Pool, TrainGang
from .waiting import wait_for

Nodes = Callable[..., Pool]
NAME = f"--scheduler-name={SCHEDULER}"


def test_gang_that_does_not_assemble_in_time_is_refused_and_starts_whole_later(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    timeout = "--bind-timeout-s=12"
    with (
        plane.extender(*OURS, "--hold-s=2", timeout) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, timeout)) as scheduler,
        plane.binds(namespace) as binds,
    ):
        train = TrainGang(api, GangScheduler(extender, scheduler), namespace, nodes(1))
        train.create_waiting(2, minimum=3)
        for index in range(2):
            train.wait_until_refused(f"train-{index}", "members did not assemble in time")
        assert train.bound == []

        train.add(2)
        binds.wait_for(3, 60)

        assert binds.spread_s() < WHOLE_S


def test_reservation_of_a_waiting_bind_does_not_expire(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    with (
        plane.extender(*OURS, "--reservation-s=6") as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME)) as scheduler,
        plane.binds(namespace) as binds,
    ):
        train = TrainGang(api, GangScheduler(extender, scheduler), namespace, nodes(1))
        train.create_waiting(2, minimum=3)
        threading.Event().wait(7.5)  # longer than a reservation lasts
        assert extender.waiting_binds == 2

        train.add(2)
        binds.wait_for(3, 40)

        assert binds.spread_s() < WHOLE_S


def test_extender_learns_the_timeout_of_a_kube_scheduler_that_gives_up_first(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    with (
        plane.extender(*OURS) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, "--bind-timeout-s=2")) as scheduler,
    ):
        train = TrainGang(api, GangScheduler(extender, scheduler), namespace, nodes(1))
        train.create_waiting(1, minimum=2)
        wait_for(lambda: train.released("peer_gone") >= 1, 10, "kube-scheduler gave up once")
        # It retries; three timeouts of the same age are enough.
        wait_for(
            lambda: extender.metric("gang_extender_learned_bind_timeout_seconds") > 0,
            60,
            "its timeout is learned",
        )
        learned = extender.metric("gang_extender_learned_bind_timeout_seconds")
        assert 1.5 < learned < 4

        # The extender refuses before kube-scheduler gives up.
        wait_for(lambda: train.released("deadline") >= 1, 30, "the extender refuses first")
        assert train.bound == []

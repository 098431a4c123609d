"""Time runs out while binds are held: ours, and a kube-scheduler that waits less than we think."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .api import Api
from .control_plane import ControlPlane
from .observer import WHOLE_S
from .stage import OURS, SCHEDULER, GangScheduler, Pool, Stage
from .waiting import wait_for

Nodes = Callable[..., Pool]
NAME = f"--scheduler-name={SCHEDULER}"


def test_a_gang_that_does_not_assemble_in_time_is_sent_back_whole_and_starts_whole_later(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    timeout = "--bind-timeout-s=12"
    with (
        plane.extender(*OURS, "--hold-s=2", timeout) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, timeout)) as scheduler,
        plane.binds(namespace) as binds,
    ):
        stage = Stage(api, GangScheduler(extender, scheduler), namespace, nodes(1))
        stage.hold(2, minimum=3)
        for index in range(2):
            stage.wait_until_told(f"train-{index}", "members did not assemble in time")
        assert stage.bound == []

        stage.add(2)
        binds.wait_for(3, 60)

        assert binds.spread_s() < WHOLE_S


def test_a_ticket_that_would_have_lapsed_does_not_matter_to_those_who_are_held(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    with (
        plane.extender(*OURS, "--ticket-s=6") as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME)) as scheduler,
        plane.binds(namespace) as binds,
    ):
        stage = Stage(api, GangScheduler(extender, scheduler), namespace, nodes(1))
        stage.hold(2, minimum=3)
        threading.Event().wait(7.5)  # longer than a ticket lasts; nothing is waited for
        assert extender.held == 2

        stage.add(2)
        binds.wait_for(3, 40)

        assert binds.spread_s() < WHOLE_S


def test_a_kube_scheduler_that_gives_up_first_is_found_out_and_held_no_longer_than_it_waits(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    with (
        plane.extender(*OURS) as extender,
        plane.scheduler(plane.scheduler_config(extender, NAME, "--bind-timeout-s=2")) as scheduler,
    ):
        stage = Stage(api, GangScheduler(extender, scheduler), namespace, nodes(1))
        stage.hold(1, minimum=2)
        wait_for(lambda: stage.released("peer_gone") >= 1, 10, "kube-scheduler gave up once")
        # It tries again by itself; three that die at the same age are believed.
        wait_for(
            lambda: extender.metric("gang_extender_learned_bind_timeout_seconds") > 0,
            60,
            "its timeout is learnt",
        )
        learnt = extender.metric("gang_extender_learned_bind_timeout_seconds")
        assert 1.5 < learnt < 4

        # Refused by us, in time, instead of given up by kube-scheduler.
        wait_for(lambda: stage.released("deadline") >= 1, 30, "we gave up first")
        assert stage.bound == []

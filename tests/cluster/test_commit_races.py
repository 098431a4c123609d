"""Races while bindings are being sent: a doorman at the API server keeps some of them waiting."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .doorman import Doorman
from .observer import WHOLE_S
from .stage import OURS, SCHEDULER, ByHand, GangScheduler, Pool, Stage
from .waiting import wait_for

Nodes = Callable[..., Pool]

OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "00000000-0000-0000-0000-000000000001",
    "controller": True,
}


@contextmanager
def running(plane: ControlPlane, *settings: str) -> Iterator[GangScheduler]:
    with plane.extender(*OURS, *settings) as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            yield GangScheduler(extender, scheduler)


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    with running(plane, "--take-back-s=5") as pair:
        yield pair


@pytest.fixture
def stage(api: Api, pair: GangScheduler, namespace: str, nodes: Nodes) -> Stage:
    return Stage(api, pair, namespace, nodes(2))


@pytest.fixture
def mortal_stage(plane: ControlPlane, api: Api, namespace: str, nodes: Nodes) -> Iterator[Stage]:
    """A stage whose extender and kube-scheduler may be killed."""
    with running(plane) as mortals:
        yield Stage(api, mortals, namespace, nodes(2))


@pytest.fixture
def doorman(plane: ControlPlane, api: Api, namespace: str) -> Iterator[Doorman]:
    with Doorman(api, plane.apiserver, namespace) as doorman:
        yield doorman


def test_an_extender_killed_between_two_bindings_completes_the_gang_after_its_restart(
    plane: ControlPlane, mortal_stage: Stage, doorman: Doorman
) -> None:
    stage = mortal_stage
    stage.hold(2, minimum=3)
    doorman.delay("train-1", "train-2")
    with plane.binds(stage.namespace) as binds:
        stage.add(2)
        binds.wait_for(1, 20, prefix="train-0")
        doorman.wait_until_at_the_door("train-1", "train-2")
        stage.extender.kill()
        doorman.let_all_in()
        stage.extender.start()

        binds.wait_for(3, 60)
    assert stage.extender.metric("gang_extender_evictions_total") == 0


def test_a_gang_bound_in_part_is_completed_as_soon_as_the_api_server_allows_it(
    plane: ControlPlane, stage: Stage, doorman: Doorman
) -> None:
    known = stage.extender.metric("gang_extender_partial_commits_total")
    doorman.deny("train-1")
    with plane.binds(stage.namespace) as binds:
        stage.hold(2, minimum=3)
        stage.add(2)
        binds.wait_for(2, 20)
        wait_for(
            lambda: stage.extender.metric("gang_extender_partial_commits_total") == known + 1,
            10,
            "the partial commit is counted",
        )
        assert stage.bound == ["train-0", "train-2"]
        wait_for(lambda: "PartiallyBound" in _events(stage), 10, "its PodGroup says so")

        doorman.let_all_in()
        binds.wait_for(3, 40)


def test_a_gang_of_which_every_binding_is_refused_starts_anew_as_a_gang(
    plane: ControlPlane, stage: Stage, doorman: Doorman
) -> None:
    doorman.deny("train-0", "train-1", "train-2")
    with plane.binds(stage.namespace) as binds:
        stage.hold(2, minimum=3)
        stage.add(2)
        for index in range(3):
            stage.wait_until_told(f"train-{index}", "the API server refused the binding")
        assert stage.bound == []

        doorman.let_all_in()
        binds.wait_for(3, 60)

        assert binds.spread_s() < WHOLE_S


def test_a_gang_bound_in_part_is_taken_back_if_that_was_asked_for(
    stage: Stage, doorman: Doorman
) -> None:
    doorman.deny("train-2")
    stage.api.create(objects.pod_group("train", stage.namespace, 3))
    members = [stage.member(index) for index in range(3)]
    for member in members:
        member["metadata"]["ownerReferences"] = [OWNER]
    stage.api.create(*members)

    def only_the_refused_one_is_left() -> bool:
        pods = stage.api.list("pods", stage.namespace)
        return [pod["metadata"]["name"] for pod in pods] == ["train-2"]

    wait_for(only_the_refused_one_is_left, 30, "what had started was evicted")
    assert stage.bound == []


def test_a_pod_deleted_while_its_binding_is_sent_fails_alone_and_its_successor_is_bound_at_once(
    plane: ControlPlane, stage: Stage, doorman: Doorman
) -> None:
    stage.hold(2, minimum=3)
    doorman.delay("train-1")
    with plane.binds(stage.namespace) as binds:
        stage.add(2)
        doorman.wait_until_at_the_door("train-1")
        stage.delete(1)
        doorman.let_all_in()
        binds.wait_for(2, 20)
        stage.add(1)

        binds.wait_for(3, 20)
    assert stage.bound == ["train-0", "train-1", "train-2"]


def test_bindings_that_were_sent_finish_although_kube_scheduler_died(
    plane: ControlPlane, mortal_stage: Stage, doorman: Doorman
) -> None:
    stage = mortal_stage
    stage.hold(2, minimum=3)
    doorman.delay("train-0", "train-1", "train-2")
    with plane.binds(stage.namespace) as binds:
        stage.add(2)
        doorman.wait_until_at_the_door("train-0", "train-1", "train-2")
        stage.pair.scheduler.kill()
        wait_for(lambda: stage.released("peer_gone") == 3, 10, "the callers are known to have gone")
        assert stage.bound == []

        doorman.let_all_in()
        binds.wait_for(3, 20)


@pytest.mark.parametrize("callers_are_gone", [False, True])
def test_an_extender_told_to_stop_finishes_the_bindings_it_has_sent(
    plane: ControlPlane, mortal_stage: Stage, doorman: Doorman, callers_are_gone: bool
) -> None:
    stage = mortal_stage
    stage.hold(2, minimum=3)
    doorman.delay("train-0", "train-1", "train-2")
    with plane.binds(stage.namespace) as binds:
        stage.add(2)
        doorman.wait_until_at_the_door("train-0", "train-1", "train-2")
        if callers_are_gone:
            stage.pair.scheduler.kill()
            wait_for(lambda: stage.released("peer_gone") == 3, 10, "the callers have gone")
        os.kill(stage.extender.pid, signal.SIGTERM)
        wait_for(lambda: not stage.extender.is_ready(), 10, "it is not ready any more")
        doorman.let_all_in()

        binds.wait_for(3, 20)
    wait_for(lambda: not stage.extender.is_running, 20, "it has ended")


def test_repeated_binds_are_superseded_while_held_attached_while_sent_and_idempotent_when_bound(
    plane: ControlPlane, stage: Stage, doorman: Doorman
) -> None:
    stage.hold(2, minimum=3)
    doorman.delay("train-0")
    first = stage.api.get("pods", "train-0", stage.namespace)
    with ByHand(stage) as hand, plane.binds(stage.namespace) as binds:
        newer = hand.bind(first, stage.pool.names[0])
        stage.wait_until_told("train-0", "a newer bind call for the same pod took its place")
        assert not newer.done()

        stage.add(2)
        doorman.wait_until_at_the_door("train-0")
        same = hand.bind(first, stage.pool.names[0])
        other = hand.bind(first, stage.pool.names[1])
        doorman.let_all_in()

        assert (newer.result(20), same.result(20)) == ("", "")
        assert "already on another node" in other.result(20)
        binds.wait_for(3, 20)
        assert hand.bind(first, stage.pool.names[0]).result(20) == ""
        assert "already on another node" in hand.bind(first, stage.pool.names[1]).result(20)


def _events(stage: Stage) -> str:
    events = stage.api.list("events", stage.namespace, fields="involvedObject.kind=PodGroup")
    return " ".join(event["reason"] for event in events)

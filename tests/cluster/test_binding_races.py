"""Races while bindings are sent: an admission webhook delays or denies some of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests import objects

from .api import Api
from .binding_webhook import BindingWebhook
from .control_plane import ControlPlane
from .observer import WHOLE_S
from .train_gang import OURS, SCHEDULER, BindCaller, GangScheduler, Pool, TrainGang
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
    with running(plane, "--evict-partial-s=5") as pair:
        yield pair


@pytest.fixture
def train(api: Api, pair: GangScheduler, namespace: str, nodes: Nodes) -> TrainGang:
    return TrainGang(api, pair, namespace, nodes(2))


@pytest.fixture
def killable_train(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> Iterator[TrainGang]:
    """The gang of a pair of its own, which may be killed."""
    with running(plane) as pair:
        yield TrainGang(api, pair, namespace, nodes(2))


@pytest.fixture
def doorman(plane: ControlPlane, api: Api, namespace: str) -> Iterator[BindingWebhook]:
    with BindingWebhook(api, plane.apiserver, namespace) as doorman:
        yield doorman


def test_extender_killed_between_two_bindings_completes_the_gang_after_restart(
    plane: ControlPlane, killable_train: TrainGang, doorman: BindingWebhook
) -> None:
    train = killable_train
    train.create_waiting(2, minimum=3)
    doorman.delay("train-1", "train-2")
    with plane.binds(train.namespace) as binds:
        train.add(2)
        binds.wait_for(1, 20, prefix="train-0")
        doorman.wait_until_delayed("train-1", "train-2")
        train.extender.kill()
        doorman.allow_all()
        train.extender.start()

        binds.wait_for(3, 60)
    assert train.extender.metric("gang_extender_evictions_total") == 0


def test_partially_bound_gang_is_completed_when_the_api_server_allows_it(
    plane: ControlPlane, train: TrainGang, doorman: BindingWebhook
) -> None:
    known = train.extender.metric("gang_extender_partial_commits_total")
    doorman.deny("train-1")
    with plane.binds(train.namespace) as binds:
        train.create_waiting(2, minimum=3)
        train.add(2)
        binds.wait_for(2, 20)
        wait_for(
            lambda: train.extender.metric("gang_extender_partial_commits_total") == known + 1,
            10,
            "the partial commit is counted",
        )
        assert train.bound == ["train-0", "train-2"]
        wait_for(lambda: "PartiallyBound" in _events(train), 10, "the PodGroup has the event")

        doorman.allow_all()
        binds.wait_for(3, 40)


def test_gang_with_all_bindings_denied_starts_whole_later(
    plane: ControlPlane, train: TrainGang, doorman: BindingWebhook
) -> None:
    doorman.deny("train-0", "train-1", "train-2")
    with plane.binds(train.namespace) as binds:
        train.create_waiting(2, minimum=3)
        train.add(2)
        for index in range(3):
            train.wait_until_refused(f"train-{index}", "the API server refused the binding")
        assert train.bound == []

        doorman.allow_all()
        binds.wait_for(3, 60)

        assert binds.spread_s() < WHOLE_S


def test_partially_bound_gang_is_evicted_if_configured(
    train: TrainGang, doorman: BindingWebhook
) -> None:
    doorman.deny("train-2")
    train.api.create(objects.pod_group("train", train.namespace, 3))
    members = [train.member(index) for index in range(3)]
    for member in members:
        member["metadata"]["ownerReferences"] = [OWNER]
    train.api.create(*members)

    def only_the_denied_pod_is_left() -> bool:
        pods = train.api.list("pods", train.namespace)
        return [pod["metadata"]["name"] for pod in pods] == ["train-2"]

    wait_for(only_the_denied_pod_is_left, 30, "the bound members are evicted")
    assert train.bound == []


def test_pod_deleted_while_its_binding_is_sent_fails_alone_and_its_replacement_is_bound(
    plane: ControlPlane, train: TrainGang, doorman: BindingWebhook
) -> None:
    train.create_waiting(2, minimum=3)
    doorman.delay("train-1")
    with plane.binds(train.namespace) as binds:
        train.add(2)
        doorman.wait_until_delayed("train-1")
        train.delete(1)
        doorman.allow_all()
        binds.wait_for(2, 20)
        train.add(1)

        binds.wait_for(3, 20)
    assert train.bound == ["train-0", "train-1", "train-2"]


def test_sent_bindings_finish_although_kube_scheduler_died(
    plane: ControlPlane, killable_train: TrainGang, doorman: BindingWebhook
) -> None:
    train = killable_train
    train.create_waiting(2, minimum=3)
    doorman.delay("train-0", "train-1", "train-2")
    with plane.binds(train.namespace) as binds:
        train.add(2)
        doorman.wait_until_delayed("train-0", "train-1", "train-2")
        train.pair.scheduler.kill()
        wait_for(lambda: train.released("peer_gone") == 3, 10, "the callers have disconnected")
        assert train.bound == []

        doorman.allow_all()
        binds.wait_for(3, 20)


@pytest.mark.parametrize("callers_are_gone", [False, True])
def test_extender_finishes_sent_bindings_on_sigterm(
    plane: ControlPlane, killable_train: TrainGang, doorman: BindingWebhook, callers_are_gone: bool
) -> None:
    train = killable_train
    train.create_waiting(2, minimum=3)
    doorman.delay("train-0", "train-1", "train-2")
    with plane.binds(train.namespace) as binds:
        train.add(2)
        doorman.wait_until_delayed("train-0", "train-1", "train-2")
        if callers_are_gone:
            train.pair.scheduler.kill()
            wait_for(lambda: train.released("peer_gone") == 3, 10, "the callers have disconnected")
        os.kill(train.extender.pid, signal.SIGTERM)
        wait_for(lambda: not train.extender.is_ready(), 10, "it is not ready any more")
        doorman.allow_all()

        binds.wait_for(3, 20)
    wait_for(lambda: not train.extender.is_running, 20, "it has ended")


def test_repeated_bind_supersedes_a_waiting_bind_joins_a_sent_one_and_is_idempotent_when_bound(
    plane: ControlPlane, train: TrainGang, doorman: BindingWebhook
) -> None:
    train.create_waiting(2, minimum=3)
    doorman.delay("train-0")
    first = train.api.get("pods", "train-0", train.namespace)
    with BindCaller(train) as hand, plane.binds(train.namespace) as binds:
        newer = hand.bind(first, train.pool.names[0])
        train.wait_until_refused("train-0", "a newer bind call for the same pod took its place")
        assert not newer.done()

        train.add(2)
        doorman.wait_until_delayed("train-0")
        same = hand.bind(first, train.pool.names[0])
        other = hand.bind(first, train.pool.names[1])
        doorman.allow_all()

        assert (newer.result(20), same.result(20)) == ("", "")
        assert "already on another node" in other.result(20)
        binds.wait_for(3, 20)
        assert hand.bind(first, train.pool.names[0]).result(20) == ""
        assert "already on another node" in hand.bind(first, train.pool.names[1]).result(20)


def _events(train: TrainGang) -> str:
    events = train.api.list("events", train.namespace, fields="involvedObject.kind=PodGroup")
    return " ".join(event["reason"] for event in events)

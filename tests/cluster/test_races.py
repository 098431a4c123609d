"""Races, timeouts and crashes while binds wait, and while bindings are sent.

Every gang lacks its last member, which the test creates after the race. A webhook delays or denies
some of the bindings.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests import objects

from .api import Api
from .binding_webhook import BindingWebhook
from .control_plane import ControlPlane
from .observer import WHOLE_S
from .reported import explanation
from .train_gang import SCHEDULER, BindCaller, Create, GangScheduler, Nodes, TrainGang, train_pair
from .waiting import wait_for

NEVER_MET = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"friend": "yes"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}

OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "00000000-0000-0000-0000-000000000001",
    "controller": True,
}


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    with train_pair(plane, "--evict-partial-s=5") as pair:
        yield pair


@pytest.fixture
def train(api: Api, pair: GangScheduler, namespace: str, nodes: Nodes) -> TrainGang:
    return TrainGang(api, pair, namespace, nodes(2))


@pytest.fixture
def killable_train(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> Iterator[TrainGang]:
    """The gang of a pair of its own, which may be killed."""
    with train_pair(plane) as pair:
        yield TrainGang(api, pair, namespace, nodes(2))


@pytest.fixture
def doorman(plane: ControlPlane, api: Api, namespace: str) -> Iterator[BindingWebhook]:
    with BindingWebhook(api, plane.apiserver, namespace) as doorman:
        yield doorman


def test_gang_starts_whole_after_the_extender_was_killed(
    plane: ControlPlane, killable_train: TrainGang
) -> None:
    train = killable_train
    train.create_waiting(2, minimum=3)
    train.extender.kill()

    assert train.bound == []
    with plane.binds(train.namespace) as binds:
        train.extender.start()
        train.add(2)
        binds.wait_for(3, 60)
        assert binds.spread_s() < WHOLE_S


def test_no_bind_waits_after_kube_scheduler_was_killed(
    plane: ControlPlane, killable_train: TrainGang
) -> None:
    train = killable_train
    train.create_waiting(2, minimum=3)
    train.pair.scheduler.kill()

    train.wait_for_waiting_binds(0)
    assert train.bound == []
    with plane.binds(train.namespace) as binds:
        train.pair.scheduler.start()
        train.add(2)
        binds.wait_for(3, 60)
        assert binds.spread_s() < WHOLE_S


def test_extender_refuses_waiting_binds_on_sigterm(killable_train: TrainGang) -> None:
    train = killable_train
    train.create_waiting(2, minimum=3)
    train.extender.terminate()

    train.wait_until_refused("train-0", "the extender is shutting down")
    assert train.bound == []


def test_gang_that_does_not_assemble_in_time_is_refused_and_starts_whole_later(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    timeout = "--bind-timeout-s=12"
    with (
        train_pair(plane, "--hold-s=2", timeout, config=(timeout,)) as pair,
        plane.binds(namespace) as binds,
    ):
        train = TrainGang(api, pair, namespace, nodes(1))
        train.create_waiting(2, minimum=3)
        for index in range(2):
            train.wait_until_refused(f"train-{index}", "members did not assemble in time")
        assert train.bound == []

        train.add(2)
        binds.wait_for(3, 60)

        assert binds.spread_s() < WHOLE_S


def test_extender_learns_the_timeout_of_a_kube_scheduler_that_gives_up_first(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    with train_pair(plane, config=("--bind-timeout-s=2",)) as pair:
        train, extender = TrainGang(api, pair, namespace, nodes(1)), pair.extender
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


def test_deleted_pod_is_released_at_once_and_its_replacement_takes_its_node(
    plane: ControlPlane, train: TrainGang
) -> None:
    train.create_waiting(2, minimum=3)
    with plane.binds(train.namespace) as binds:
        train.delete(0)
        train.wait_for_waiting_binds(1)
        assert train.bound == []

        train.add(0, 2)
        binds.wait_for(3, 40)

        assert binds.spread_s() < WHOLE_S


def cordon(api: Api, node: str) -> None:
    api.patch("nodes", node, {"spec": {"unschedulable": True}})


def lose_kubelet(api: Api, node: str) -> None:
    """Write what the node controller writes when a kubelet is unreachable."""
    silent = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    api.patch("nodes", node, {"status": silent}, subresource="status")
    api.patch("nodes", node, {"spec": {"taints": [taint]}})


def taint(api: Api, node: str) -> None:
    leaving = {"key": "leaving", "effect": "NoSchedule"}
    api.patch("nodes", node, {"spec": {"taints": [leaving]}})


def shrink(api: Api, node: str) -> None:
    none = {"cpu": "0"}
    api.patch("nodes", node, {"status": {"allocatable": none}}, subresource="status")


def delete(api: Api, node: str) -> None:
    api.delete("nodes", node)


@pytest.mark.parametrize("make_unusable", [cordon, lose_kubelet, taint, shrink, delete])
def test_members_on_a_node_that_became_unusable_are_refused_and_start_elsewhere(
    plane: ControlPlane, train: TrainGang, nodes: Nodes, make_unusable: Callable[[Api, str], None]
) -> None:
    train.create_waiting(2, minimum=3)
    with plane.binds(train.namespace) as binds:
        for name in train.pool.names:
            make_unusable(train.api, name)
        train.wait_for_waiting_binds(0)
        assert train.bound == []

        others = nodes(2).names[-2:]
        train.add(2)
        seen = binds.wait_for(3, 40)

        assert {bind.node for bind in seen} <= set(others)
        assert binds.spread_s() < WHOLE_S


def test_preempted_pod_is_released_and_its_gang_does_not_start(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes, create: Create
) -> None:
    train = TrainGang(api, pair, namespace, nodes(1, cpu="3"))
    create(objects.priority_class(f"{namespace}-high", 1000))
    train.create_waiting(2, minimum=3)
    urgent = objects.pod(
        "urgent",
        namespace,
        cpu="3",
        scheduler=SCHEDULER,
        priority=f"{namespace}-high",
        node_selector=train.pool.selector,
    )
    with plane.binds(namespace) as binds:
        api.create(urgent)
        # The capacity is free when the extender has refused the waiting binds.
        binds.wait_for(1, 20, prefix="urgent")

    train.wait_for_waiting_binds(0)
    assert train.bound == ["urgent"]
    assert api.find("pods", "train-0", namespace) is None


def test_unschedulable_member_refuses_the_gang_though_it_was_nominated(
    api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    train = TrainGang(api, pair, namespace, nodes(1))
    early = train.released("sibling_unschedulable")
    train.create_waiting(2, minimum=3)
    train.add(2, affinity=NEVER_MET)
    wait_for(
        lambda: api.get("pods", "train-2", namespace)["status"].get("conditions"),
        10,
        "kube-scheduler found no node",
        every_s=0.01,
    )
    # A nomination that arrives with the refusal and before the reservation would count as
    # kube-scheduler's own, which preempts there.
    wait_for(
        lambda: explanation(pair.extender, namespace, "train")["verdict"] == "admitted",
        10,
        "the gang has its reservations",
        seeing=lambda: explanation(pair.extender, namespace, "train"),
        every_s=0.01,
    )
    # As the extender's wake-up does, which may not come here.
    nomination = {"status": {"nominatedNodeName": train.pool.names[0]}}
    api.patch("pods", "train-2", nomination, namespace, subresource="status")

    train.wait_until_refused("train-0", "a member that is needed fits no node")
    assert train.released("sibling_unschedulable") == early + 2
    assert train.bound == []


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

"""Races while binds wait, on the real kube-scheduler: rows of docs/internals/permit.md.

Every gang lacks its last member, which the test creates after the race.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .observer import WHOLE_S
from .reported import explanation
from .train_gang import OURS, SCHEDULER, GangScheduler, Pool, TrainGang
from .volumes import SlowVolume
from .waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[dict[str, object]]]

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


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    with plane.extender(*OURS) as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            yield GangScheduler(extender, scheduler)


@pytest.fixture
def train(api: Api, pair: GangScheduler, namespace: str, nodes: Nodes) -> TrainGang:
    return TrainGang(api, pair, namespace, nodes(2))


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


def test_gang_that_lost_a_member_is_refused_after_a_moment(train: TrainGang) -> None:
    train.create_waiting(2, minimum=3)
    train.delete(0)

    train.wait_for_waiting_binds(0)
    train.wait_until_refused("train-1", "too few members are left to reach minMember")
    assert train.bound == []


def test_lowered_minimum_binds_the_waiting_members(plane: ControlPlane, train: TrainGang) -> None:
    train.create_waiting(2, minimum=3)
    with plane.binds(train.namespace) as binds:
        train.set_minimum(2)

        binds.wait_for(2, 10)


def test_raised_minimum_keeps_binds_waiting_for_the_last_member(
    plane: ControlPlane, train: TrainGang
) -> None:
    train.create_waiting(2, minimum=3)
    with plane.binds(train.namespace) as binds:
        train.set_minimum(4)
        train.add(2)
        train.wait_for_waiting_binds(3)
        assert train.bound == []

        train.add(3)
        binds.wait_for(4, 20)

        assert binds.spread_s() < WHOLE_S


def test_deleted_pod_group_refuses_waiting_binds_and_the_next_one_starts_whole(
    plane: ControlPlane, train: TrainGang
) -> None:
    train.create_waiting(2, minimum=3)
    with plane.binds(train.namespace) as binds:
        train.api.delete(objects.POD_GROUPS, "train", train.namespace)
        train.wait_for_waiting_binds(0)
        assert train.bound == []

        train.api.create(objects.pod_group("train", train.namespace, 3))
        train.add(2)
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


@pytest.mark.parametrize("close", [cordon, lose_kubelet])
def test_members_on_a_closed_node_are_refused_and_start_elsewhere(
    plane: ControlPlane, train: TrainGang, nodes: Nodes, close: Callable[[Api, str], None]
) -> None:
    lost = train.released("node_lost")
    train.create_waiting(2, minimum=3)
    with plane.binds(train.namespace) as binds:
        for name in train.pool.names:
            close(train.api, name)
        wait_for(lambda: train.released("node_lost") == lost + 2, 10, "both were refused")
        assert train.bound == []

        others = nodes(2).names[-2:]
        train.add(2)
        seen = binds.wait_for(3, 40)

        assert {bind.node for bind in seen} <= set(others)


def test_members_on_a_deleted_node_are_refused(
    plane: ControlPlane, train: TrainGang, nodes: Nodes
) -> None:
    lost = train.released("node_lost")
    train.create_waiting(2, minimum=3)
    with plane.binds(train.namespace) as binds:
        for name in train.pool.names:
            train.api.delete("nodes", name)
        wait_for(lambda: train.released("node_lost") == lost + 2, 10, "both were refused")
        assert train.bound == []

        nodes(2)
        train.add(2)
        binds.wait_for(3, 40)


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


def test_gang_waits_for_a_member_with_a_slow_volume(
    plane: ControlPlane, train: TrainGang, create: Create
) -> None:
    volume = SlowVolume(train.api, train.namespace)
    create(volume.storage_class)
    train.api.create(volume.claim)
    with plane.binds(train.namespace) as binds:
        train.create_waiting(2, minimum=3)
        train.add(2, volumes=[volume.in_a_pod])
        wait_for(volume.is_wanted, 20, "kube-scheduler asks for the volume before it binds")
        assert train.extender.waiting_binds == 2
        assert train.bound == []

        create(volume.provisioned())
        volume.bind()
        binds.wait_for(3, 30)

        assert binds.spread_s() < WHOLE_S


def test_two_gangs_created_interleaved_both_start_whole(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(3)
    common = {"scheduler": SCHEDULER, "node_selector": pool.selector}
    red, blue = (objects.pods(4, name, namespace, gang=name, **common) for name in ("red", "blue"))
    for name in ("red", "blue"):
        api.create(objects.pod_group(name, namespace, 4))
    with plane.binds(namespace) as binds:
        for pair_of_members in zip(red[:3], blue[:3], strict=True):
            api.create(*pair_of_members)
        api.create(blue[3], red[3])
        binds.wait_for(8, 30)

        for name in ("red", "blue"):
            assert binds.spread_s(name) < WHOLE_S

"""Races while binds are held, on the real kube-scheduler: rows of the table in docs/holds.md.

Every gang here lacks its last member, which a test creates when it has had its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .observer import WHOLE_S
from .stage import OURS, SCHEDULER, GangScheduler, Pool, Stage
from .telling import over_http
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
def stage(api: Api, pair: GangScheduler, namespace: str, nodes: Nodes) -> Stage:
    return Stage(api, pair, namespace, nodes(2))


def test_a_held_pod_that_is_deleted_is_let_go_at_once_and_its_namesake_takes_its_place(
    plane: ControlPlane, stage: Stage
) -> None:
    stage.hold(2, minimum=3)
    with plane.binds(stage.namespace) as binds:
        stage.delete(0)
        stage.wait_until_held(1)
        assert stage.bound == []

        stage.add(0, 2)
        binds.wait_for(3, 40)

        assert binds.spread_s() < WHOLE_S


def test_a_gang_that_lost_a_member_for_good_is_sent_back_after_a_moment(stage: Stage) -> None:
    stage.hold(2, minimum=3)
    stage.delete(0)

    stage.wait_until_held(0)
    stage.wait_until_told("train-1", "too few members are left to reach minMember")
    assert stage.bound == []


def test_a_minimum_lowered_while_held_lets_them_go(plane: ControlPlane, stage: Stage) -> None:
    stage.hold(2, minimum=3)
    with plane.binds(stage.namespace) as binds:
        stage.set_minimum(2)

        binds.wait_for(2, 10)


def test_a_minimum_raised_while_held_keeps_them_until_the_last(
    plane: ControlPlane, stage: Stage
) -> None:
    stage.hold(2, minimum=3)
    with plane.binds(stage.namespace) as binds:
        stage.set_minimum(4)
        stage.add(2)
        stage.wait_until_held(3)
        assert stage.bound == []

        stage.add(3)
        binds.wait_for(4, 20)

        assert binds.spread_s() < WHOLE_S


def test_a_pod_group_deleted_while_held_sends_them_back_and_its_namesake_starts_whole(
    plane: ControlPlane, stage: Stage
) -> None:
    stage.hold(2, minimum=3)
    with plane.binds(stage.namespace) as binds:
        stage.api.delete(objects.POD_GROUPS, "train", stage.namespace)
        stage.wait_until_held(0)
        assert stage.bound == []

        stage.api.create(objects.pod_group("train", stage.namespace, 3))
        stage.add(2)
        binds.wait_for(3, 40)

        assert binds.spread_s() < WHOLE_S


def cordon(api: Api, node: str) -> None:
    api.patch("nodes", node, {"spec": {"unschedulable": True}})


def lose_kubelet(api: Api, node: str) -> None:
    """Write what the node controller writes when a kubelet has been silent for too long."""
    silent = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    api.patch("nodes", node, {"status": silent}, subresource="status")
    api.patch("nodes", node, {"spec": {"taints": [taint]}})


@pytest.mark.parametrize("close", [cordon, lose_kubelet])
def test_a_node_that_takes_nobody_any_more_sends_its_members_back_and_they_start_elsewhere(
    plane: ControlPlane, stage: Stage, nodes: Nodes, close: Callable[[Api, str], None]
) -> None:
    lost = stage.released("node_lost")
    stage.hold(2, minimum=3)
    with plane.binds(stage.namespace) as binds:
        for name in stage.pool.names:
            close(stage.api, name)
        wait_for(lambda: stage.released("node_lost") == lost + 2, 10, "both were sent back")
        assert stage.bound == []

        others = nodes(2).names[-2:]
        stage.add(2)
        seen = binds.wait_for(3, 40)

        assert {bind.node for bind in seen} <= set(others)


def test_a_deleted_node_sends_its_members_back(
    plane: ControlPlane, stage: Stage, nodes: Nodes
) -> None:
    lost = stage.released("node_lost")
    stage.hold(2, minimum=3)
    with plane.binds(stage.namespace) as binds:
        for name in stage.pool.names:
            stage.api.delete("nodes", name)
        wait_for(lambda: stage.released("node_lost") == lost + 2, 10, "both were sent back")
        assert stage.bound == []

        nodes(2)
        stage.add(2)
        binds.wait_for(3, 40)


def test_a_held_pod_that_is_preempted_is_let_go_and_nobody_starts_in_its_stead(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes, create: Create
) -> None:
    stage = Stage(api, pair, namespace, nodes(1, cpu="3"))
    create(objects.priority_class(f"{namespace}-high", 1000))
    stage.hold(2, minimum=3)
    urgent = objects.pod(
        "urgent",
        namespace,
        cpu="3",
        scheduler=SCHEDULER,
        priority=f"{namespace}-high",
        node_selector=stage.pool.selector,
    )
    with plane.binds(namespace) as binds:
        api.create(urgent)
        # Its room is free when kube-scheduler hears from us that the held pods failed.
        binds.wait_for(1, 20, prefix="urgent")

    stage.wait_until_held(0)
    assert stage.bound == ["urgent"]
    assert api.find("pods", "train-0", namespace) is None


def test_a_sibling_that_fits_no_node_sends_the_gang_back_though_we_nominated_it(
    api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    stage = Stage(api, pair, namespace, nodes(1))
    early = stage.released("sibling_unschedulable")
    stage.hold(2, minimum=3)
    stage.add(2, affinity=NEVER_MET)
    wait_for(
        lambda: api.get("pods", "train-2", namespace)["status"].get("conditions"),
        10,
        "kube-scheduler found no node",
        every_s=0.01,
    )
    # A nomination that is heard with the refusal and before we gave a place would be one of
    # kube-scheduler's own, which makes room there.
    wait_for(
        lambda: over_http(pair.extender, namespace, "train")["verdict"] == "admitted",
        10,
        "the gang has its places",
        seeing=lambda: over_http(pair.extender, namespace, "train"),
        every_s=0.01,
    )
    # As our wake-up does, which may or may not come here.
    nomination = {"status": {"nominatedNodeName": stage.pool.names[0]}}
    api.patch("pods", "train-2", nomination, namespace, subresource="status")

    stage.wait_until_told("train-0", "a member that is needed fits no node")
    assert stage.released("sibling_unschedulable") == early + 2
    assert stage.bound == []


def test_a_member_whose_volume_takes_long_is_waited_for(
    plane: ControlPlane, stage: Stage, create: Create
) -> None:
    volume = SlowVolume(stage.api, stage.namespace)
    create(volume.storage_class)
    stage.api.create(volume.claim)
    with plane.binds(stage.namespace) as binds:
        stage.hold(2, minimum=3)
        stage.add(2, volumes=[volume.in_a_pod])
        wait_for(volume.is_wanted, 20, "kube-scheduler asks for the volume before it binds")
        assert stage.extender.held == 2
        assert stage.bound == []

        create(volume.provisioned())
        volume.bind()
        binds.wait_for(3, 30)

        assert binds.spread_s() < WHOLE_S


def test_two_gangs_whose_last_members_cross_both_start_whole(
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

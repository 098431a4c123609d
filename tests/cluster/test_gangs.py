"""The promise, on the real kube-scheduler: a gang starts whole, or none of it occupies a node."""

from __future__ import annotations

from collections.abc import Callable

from tests import objects

from . import telling
from .api import Api
from .components import http_json
from .control_plane import ControlPlane
from .observer import WHOLE_S, bound
from .stage import GangScheduler, Pool
from .telling import refusals, wait_until_refused
from .waiting import wait_for

Nodes = Callable[..., Pool]


def given_back(scheduler: GangScheduler) -> float:
    """Count the binds sent back because the rest of their gang did not come."""
    return scheduler.extender.metric("gang_extender_bind_wait_seconds_count", cause="incomplete")


def test_nobody_is_bound_before_the_last_member_exists_and_then_all_are_within_a_second(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    api.create(objects.pod_group("train", namespace, 3))
    telling.wait_until_known(gang_scheduler.extender, namespace, "train")
    members = objects.pods(3, "train", namespace, gang="train", node_selector=pool.selector)
    with plane.binds(namespace) as binds:
        api.create(*members[:2])
        wait_for(lambda: gang_scheduler.extender.held == 2, 10, "the first two wait at the barrier")
        assert bound(api, namespace) == []

        api.create(members[2])
        binds.wait_for(3, 10)

        assert binds.spread_s() < WHOLE_S
    assert not any(refusals(api, namespace, member["metadata"]["name"]) for member in members)


def test_members_that_come_one_by_one_and_late_start_together(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    api.create(objects.pod_group("slow", namespace, 3))
    telling.wait_until_known(gang_scheduler.extender, namespace, "slow")
    members = objects.pods(3, "slow", namespace, gang="slow", node_selector=pool.selector)
    with plane.binds(namespace) as binds:
        before = given_back(gang_scheduler)
        api.create(members[0])
        wait_for(lambda: given_back(gang_scheduler) > before, 20, "its place is given back")
        api.create(members[1])
        second = members[1]["metadata"]["name"]
        wait_for(lambda: refusals(api, namespace, second), 20, "none is kept again for so few")
        assert bound(api, namespace) == []

        api.create(members[2])
        binds.wait_for(3, 15)

        assert binds.spread_s() < WHOLE_S


def test_of_two_gangs_in_room_for_one_exactly_one_runs_and_the_other_follows_when_it_leaves(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2, cpu="2")
    for name in ("red", "blue"):
        api.create(objects.pod_group(name, namespace, 3))
    red, blue = (
        objects.pods(3, name, namespace, gang=name, node_selector=pool.selector)
        for name in ("red", "blue")
    )
    with plane.binds(namespace) as binds:
        for pair in zip(red, blue, strict=True):
            api.create(*pair)
        first = binds.wait_for(3, 15)[0].pod.partition("-")[0]
        second = {"red": "blue", "blue": "red"}[first]
        wait_until_refused(api, namespace, f"{second}-2", "nodes are available")

        assert len(bound(api, namespace, first)) == 3
        assert bound(api, namespace, second) == []

        for index in range(3):
            api.delete("pods", f"{first}-{index}", namespace, grace_seconds=0)
        binds.wait_for(3, 15, prefix=second)

        assert binds.spread_s(second) < WHOLE_S


def test_a_gang_larger_than_the_cluster_binds_nothing_and_is_in_nobodys_way(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2, cpu="2")
    api.create(objects.pod_group("huge", namespace, 9))
    api.create(
        *objects.pods(9, "huge", namespace, gang="huge", node_selector=pool.selector),
    )
    wait_until_refused(api, namespace, "huge-8", "nodes are available")
    with plane.binds(namespace) as binds:
        api.create(objects.pod("ordinary", namespace, node_selector=pool.selector))
        binds.wait_for(1, 3, prefix="ordinary")

        assert bound(api, namespace) == ["ordinary"]


def test_an_ordinary_pod_does_not_feel_a_gang_that_waits_for_more_room_than_there_is(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2, cpu="2")
    for name in ("red", "blue"):
        api.create(objects.pod_group(name, namespace, 3))
        api.create(*objects.pods(3, name, namespace, gang=name, node_selector=pool.selector))
    wait_for(lambda: len(bound(api, namespace)) == 3, 15, "one of them runs")
    with plane.binds(namespace) as binds:
        api.create(objects.pod("ordinary", namespace, node_selector=pool.selector))
        binds.wait_for(1, 5, prefix="ordinary")

    assert refusals(api, namespace, "ordinary") == []


def test_a_pod_without_a_gang_is_scheduled_as_if_we_were_not_there(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    telling.wait_until_nobody_waits(gang_scheduler.extender)
    with plane.binds(namespace) as binds:
        api.create(*objects.pods(4, "web", namespace, node_selector=pool.selector))
        seen = binds.wait_for(4, 5)

    # kube-scheduler's own spreading is at work: we neither pack nor steer.
    assert sorted(bind.node for bind in seen) == sorted(pool.names * 2)
    assert not any(refusals(api, namespace, f"web-{index}") for index in range(4))


def test_a_pod_of_another_scheduler_is_none_of_our_business(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1)
    alone = objects.pod(
        "alone", namespace, gang="nobody", scheduler="other", node_selector=pool.selector
    )
    api.create(alone)
    call = {"Pod": api.get("pods", "alone", namespace), "NodeNames": pool.names}

    answer = http_json("POST", f"{gang_scheduler.extender.url}/filter", call)

    assert answer["NodeNames"] == pool.names


def test_a_pod_that_names_a_missing_pod_group_waits_with_that_reason_and_starts_when_it_appears(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1)
    with plane.binds(namespace) as binds:
        api.create(objects.pod("early", namespace, gang="later", node_selector=pool.selector))
        wait_until_refused(api, namespace, "early", "PodGroupMissing")
        assert bound(api, namespace) == []

        api.create(objects.pod_group("later", namespace, 1))

        binds.wait_for(1, 10)


def test_a_gang_of_which_the_rest_never_comes_is_soon_in_nobodys_way(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1, cpu="3")
    api.create(objects.pod_group("torso", namespace, 3), objects.pod_group("whole", namespace, 3))
    telling.wait_until_known(gang_scheduler.extender, namespace, "torso")
    with plane.binds(namespace) as binds:
        api.create(*objects.pods(2, "torso", namespace, gang="torso", node_selector=pool.selector))
        wait_for(lambda: gang_scheduler.extender.held == 2, 10, "torso waits at the barrier")
        api.create(*objects.pods(3, "whole", namespace, gang="whole", node_selector=pool.selector))

        binds.wait_for(3, 20, prefix="whole")

    assert bound(api, namespace, "torso") == []


def test_a_gang_whose_members_want_to_be_together_is(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(3, cpu="4")
    api.create(objects.pod_group("close", namespace, 4))
    telling.wait_until_known(gang_scheduler.extender, namespace, "close")
    together = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"family": "close"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    members = objects.pods(4, "close", namespace, gang="close", node_selector=pool.selector)
    for member in members:
        member["metadata"].setdefault("labels", {})["family"] = "close"
        member["spec"]["affinity"] = together
    with plane.binds(namespace) as binds:
        api.create(*members)

        assert len({bind.node for bind in binds.wait_for(4, 15)}) == 1


def test_members_beyond_the_minimum_follow(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    api.create(objects.pod_group("elastic", namespace, 2))
    with plane.binds(namespace) as binds:
        api.create(
            *objects.pods(6, "elastic", namespace, gang="elastic", node_selector=pool.selector)
        )

        binds.wait_for(6, 10)

"""Gang scheduling on the real kube-scheduler: a gang starts whole, or no member is bound."""

from __future__ import annotations

import random
import threading

from tests import objects

from . import reported
from .api import Api
from .control_plane import ControlPlane
from .observer import WHOLE_S, assert_started_whole, bound
from .reported import refusals, wait_until_refused
from .train_gang import GangScheduler, Nodes
from .waiting import wait_for


def incomplete_refusals(scheduler: GangScheduler) -> float:
    """Count the waiting binds that were refused because their gang stayed incomplete."""
    return scheduler.extender.metric("gang_extender_bind_wait_seconds_count", cause="incomplete")


def test_no_member_is_bound_before_the_last_one_exists_and_then_all_are_at_once(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    api.create(objects.pod_group("train", namespace, 3))
    reported.wait_until_known(gang_scheduler.extender, namespace, "train")
    members = objects.pods(3, "train", namespace, gang="train", node_selector=pool.selector)
    with plane.binds(namespace) as binds:
        api.create(*members[:2])
        wait_for(
            lambda: gang_scheduler.extender.waiting_binds == 2,
            10,
            "the binds of the first two wait",
        )
        assert bound(api, namespace) == []

        api.create(members[2])
        binds.wait_for(3, 10)

        assert binds.spread_s() < WHOLE_S
    assert not any(refusals(api, namespace, member["metadata"]["name"]) for member in members)


def test_members_created_late_and_one_by_one_start_together(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    api.create(objects.pod_group("slow", namespace, 3))
    reported.wait_until_known(gang_scheduler.extender, namespace, "slow")
    members = objects.pods(3, "slow", namespace, gang="slow", node_selector=pool.selector)
    with plane.binds(namespace) as binds:
        before = incomplete_refusals(gang_scheduler)
        api.create(members[0])
        wait_for(
            lambda: incomplete_refusals(gang_scheduler) > before, 20, "its reservation is released"
        )
        api.create(members[1])
        second = members[1]["metadata"]["name"]
        wait_for(
            lambda: refusals(api, namespace, second), 20, "two members get no reservation either"
        )
        assert bound(api, namespace) == []

        api.create(members[2])
        binds.wait_for(3, 15)

        assert binds.spread_s() < WHOLE_S


def test_with_capacity_for_one_of_two_gangs_one_runs_and_then_the_other(
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


def test_gang_larger_than_the_cluster_binds_nothing_and_blocks_no_other_pod(
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


def test_pods_without_a_gang_are_scheduled_as_without_the_extender(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    reported.wait_until_no_gang_waits(gang_scheduler.extender)
    with plane.binds(namespace) as binds:
        api.create(*objects.pods(4, "web", namespace, node_selector=pool.selector))
        seen = binds.wait_for(4, 5)

    # kube-scheduler spreads them: the extender neither packs them nor chooses nodes.
    assert sorted(bind.node for bind in seen) == sorted(pool.names * 2)
    assert not any(refusals(api, namespace, f"web-{index}") for index in range(4))


def test_incomplete_gang_releases_its_capacity_to_another(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1, cpu="3")
    api.create(objects.pod_group("partial", namespace, 3), objects.pod_group("whole", namespace, 3))
    reported.wait_until_known(gang_scheduler.extender, namespace, "partial")
    with plane.binds(namespace) as binds:
        api.create(
            *objects.pods(2, "partial", namespace, gang="partial", node_selector=pool.selector)
        )
        wait_for(
            lambda: gang_scheduler.extender.waiting_binds == 2, 10, "the binds of partial wait"
        )
        api.create(*objects.pods(3, "whole", namespace, gang="whole", node_selector=pool.selector))

        binds.wait_for(3, 20, prefix="whole")

    assert bound(api, namespace, "partial") == []


def test_gang_with_pod_affinity_starts_on_one_node(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(3, cpu="4")
    api.create(objects.pod_group("close", namespace, 4))
    reported.wait_until_known(gang_scheduler.extender, namespace, "close")
    together = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "close"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    members = objects.pods(4, "close", namespace, gang="close", node_selector=pool.selector)
    for member in members:
        member["metadata"].setdefault("labels", {})["app"] = "close"
        member["spec"]["affinity"] = together
    with plane.binds(namespace) as binds:
        api.create(*members)

        assert len({bind.node for bind in binds.wait_for(4, 15)}) == 1


def test_thirty_gangs_on_sixteen_slots_all_finish_and_start_whole(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2, cpu="8")
    rng = random.Random(7)
    sizes = {f"gang-{index}": rng.randint(1, 8) for index in range(30)}
    pause = threading.Event()
    with plane.binds(namespace) as binds:
        for name, size in sizes.items():
            api.create(objects.pod_group(name, namespace, size))
            api.create(
                *objects.pods(
                    size, name, namespace, gang=name, node_selector=pool.selector, run_seconds=2
                )
            )
            pause.wait(0.5)  # the arrival rate of the test
        seen = binds.wait_for(sum(sizes.values()), 60)
        assert_started_whole(seen, sizes)

    def all_done() -> bool:
        return all(objects.phase(pod) == "Succeeded" for pod in api.list("pods", namespace))

    wait_for(all_done, 20, "all pods succeed")


def test_deleted_member_of_a_running_gang_is_replaced_at_once(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    api.create(objects.pod_group("train", namespace, 4))
    with plane.binds(namespace) as binds:
        members = objects.pods(4, "train", namespace, gang="train", node_selector=pool.selector)
        api.create(*members)
        binds.wait_for(4, 15)

        api.delete("pods", "train-1", namespace, grace_seconds=0)
        again = objects.pod("again-1", namespace, gang="train", node_selector=pool.selector)
        api.create(again)

        binds.wait_for(1, 5, prefix="again")

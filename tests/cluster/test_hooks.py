"""The hooks with the real kube-scheduler, including packing and whole node objects."""

from __future__ import annotations

import json
from collections.abc import Callable

import urllib3

from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .train_gang import GangScheduler, Pool

JSON = {"Content-Type": "application/json"}

Nodes = Callable[..., Pool]


def test_malformed_prioritize_call_returns_no_scores(
    gang_scheduler: GangScheduler,
) -> None:
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        response = http.request(
            "POST", f"{gang_scheduler.extender.url}/prioritize", body=b"{", headers=JSON
        )

    assert (response.status, json.loads(response.data)) == (200, [])


def test_hook_port_and_operations_port_serve_their_own_paths_only(
    gang_scheduler: GangScheduler,
) -> None:
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        assert http.request("POST", f"{gang_scheduler.extender.ops_url}/bind").status == 404
        assert http.request("GET", f"{gang_scheduler.extender.url}/metrics").status == 404


def test_ordinary_pods_are_packed_if_configured(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(3)
    own = "--scheduler-name=packing-scheduler"
    with (
        plane.extender(own, "--prefer=pack") as extender,
        plane.scheduler(plane.scheduler_config(extender, own, "--prefer=pack")),
        plane.binds(namespace) as binds,
    ):
        for pod in objects.pods(
            3, "web", namespace, scheduler="packing-scheduler", node_selector=pool.selector
        ):
            api.create(pod)
            binds.wait_for(1, 10, prefix=pod["metadata"]["name"])

        assert len({bind.node for bind in binds.wait_for(3, 10)}) == 1


def test_scheduler_that_sends_whole_nodes_is_served(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes
) -> None:
    pool, own = nodes(2), "--scheduler-name=whole-scheduler"
    rest = {"scheduler": "whole-scheduler", "node_selector": pool.selector}
    api.create(objects.pod_group("train", namespace, 2))
    with plane.extender(own) as extender:
        config = plane.scheduler_config(extender, own)
        assert "nodeCacheCapable: true" in config
        config = config.replace("nodeCacheCapable: true", "nodeCacheCapable: false")
        with plane.scheduler(config), plane.binds(namespace) as binds:
            api.create(objects.pod("web", namespace, **rest))
            api.create(*objects.pods(2, "train", namespace, gang="train", **rest))

            binds.wait_for(3, 10)

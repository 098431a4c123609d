"""The hooks over real sockets: whatever is sent, an answer comes and the server lives on."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import urllib3

from . import objects
from .api import Api
from .components import answers
from .control_plane import ControlPlane
from .stage import GangScheduler, Pool

JSON = {"Content-Type": "application/json"}

Nodes = Callable[..., Pool]


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe nonsense", id="not text"),
        pytest.param(b"<xml/>", id="not JSON"),
        pytest.param(b"[1, 2, 3]", id="another shape"),
        pytest.param(b'{"Pod": 7, "NodeNames": ["a"]}', id="a number for a pod"),
        pytest.param(b'{"Pod": {"metadata": {"name": 5}}, "NodeNames": "a"}', id="wrong types"),
        pytest.param(b'{"PodName": "50%d", "Node": null}', id="a percent sign"),
    ],
)
def test_a_malformed_call_gets_200_with_an_error_and_the_server_lives_on(
    gang_scheduler: GangScheduler, verb: str, body: bytes
) -> None:
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        response = http.request(
            "POST", f"{gang_scheduler.extender.url}/{verb}", body=body, headers=JSON
        )

    assert response.status == 200
    error = json.loads(response.data)["Error"]
    assert error
    assert "%" not in error
    assert answers(f"{gang_scheduler.extender.ops_url}/healthz")


def test_a_malformed_prioritize_call_gets_an_empty_list_of_scores(
    gang_scheduler: GangScheduler,
) -> None:
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        response = http.request(
            "POST", f"{gang_scheduler.extender.url}/prioritize", body=b"{", headers=JSON
        )

    assert (response.status, json.loads(response.data)) == (200, [])


def test_an_oversized_call_is_refused_clearly(gang_scheduler: GangScheduler) -> None:
    with urllib3.PoolManager(retries=False, timeout=10) as http:
        url = f"{gang_scheduler.extender.url}/filter"
        response = http.request("POST", url, body=b" " * (5 * 1024 * 1024), headers=JSON)

    assert response.status == 200
    assert "bytes" in json.loads(response.data)["Error"]
    assert answers(f"{gang_scheduler.extender.ops_url}/healthz")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/filter", 405), ("POST", "/nothing", 404)]
)
def test_what_kube_scheduler_would_never_ask_gets_a_4xx(
    gang_scheduler: GangScheduler, method: str, path: str, status: int
) -> None:
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        assert http.request(method, gang_scheduler.extender.url + path).status == status


def test_hooks_and_operations_do_not_answer_on_each_others_port(
    gang_scheduler: GangScheduler,
) -> None:
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        assert http.request("POST", f"{gang_scheduler.extender.ops_url}/bind").status == 404
        assert http.request("GET", f"{gang_scheduler.extender.url}/metrics").status == 404


def test_ordinary_pods_are_packed_where_that_is_configured(
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


def test_a_scheduler_that_sends_whole_nodes_is_served_too(
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

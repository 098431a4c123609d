"""The control plane that all other cluster tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.objects import phase, pod

from .api import Api
from .control_plane import ControlPlane
from .train_gang import Pool
from .waiting import wait_for

STOCK = "default-scheduler"


@pytest.fixture
def stock_scheduler(plane: ControlPlane) -> Iterator[None]:
    with plane.scheduler():
        yield


def test_pod_is_bound_runs_for_its_time_and_succeeds(
    stock_scheduler: None, nodes: Callable[..., Pool], namespace: str, plane: ControlPlane
) -> None:
    pool = nodes(1)
    with plane.binds(namespace) as observed:
        plane.api.create(
            pod("p", namespace, scheduler=STOCK, node_selector=pool.selector, run_seconds=1)
        )
        (bind,) = observed.wait_for(1, seconds=10)

    def current() -> str:
        return phase(plane.api.get("pods", "p", namespace))

    assert (bind.pod, bind.node) == ("p", pool.names[0])
    wait_for(lambda: current() == "Running", 5, "the pod runs", seeing=current)
    wait_for(lambda: current() == "Succeeded", 5, "the pod succeeds", seeing=current)


def test_observer_reports_peak_usage(
    stock_scheduler: None, nodes: Callable[..., Pool], namespace: str, plane: ControlPlane
) -> None:
    pool = nodes(1, cpu="4")
    rest = {"scheduler": STOCK, "node_selector": pool.selector}
    plane.api.create(pod("early", namespace, **rest))
    wait_for(lambda: plane.api.get("pods", "early", namespace)["spec"].get("nodeName"), 10, "bound")
    with plane.binds(namespace) as observed:
        plane.api.create(pod("brief", namespace, cpu="2", run_seconds=1, **rest))
        observed.wait_for(1, 10, prefix="brief")
        plane.api.create(pod("next", namespace, cpu="2", **rest))
        observed.wait_for(1, 10, prefix="next")
        plane.api.delete("pods", "early", namespace, grace_seconds=0)
        wait_for(lambda: len(observed.ended) == 2, 10, "both ends are observed")

    assert observed.ended == ["brief", "early"]
    assert observed.peaks(lambda pod: pod["spec"]["nodeName"]) == {pool.names[0]: 3}
    assert [bind.pod for bind in observed.binds] == ["brief", "next"]


def test_deleted_pod_stops_gracefully_and_is_removed(
    stock_scheduler: None, nodes: Callable[..., Pool], namespace: str, api: Api
) -> None:
    pool = nodes(1)
    api.create(pod("p", namespace, scheduler=STOCK, node_selector=pool.selector, stop_seconds=1))
    wait_for(lambda: phase(api.get("pods", "p", namespace)) == "Running", 10, "the pod runs")

    api.delete("pods", "p", namespace)

    stopping = api.get("pods", "p", namespace)
    assert stopping["metadata"]["deletionTimestamp"]
    wait_for(lambda: api.find("pods", "p", namespace) is None, 10, "the pod is removed")


def test_audit_log_has_the_user_of_each_write(
    nodes: Callable[..., Pool], plane: ControlPlane
) -> None:
    (name,) = nodes(1).names

    def writers(verb: str) -> set[str]:
        return {
            role
            for role in ("admin", "kwok", "scheduler")
            for event in plane.writes(role)
            if event["verb"] == verb and event["objectRef"].get("name") == name
        }

    assert writers("create") == {"admin"}
    assert writers("patch") == {"kwok"}

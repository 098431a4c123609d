"""What a pod needs, from its containers, as kube-scheduler adds it up, also while it is resized."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from extender.kube.decode.shapes import pod_requests
from extender.model.pod import Pod
from extender.model.resources import Resources
from tests import objects
from tests.unit.kube.decode.stored import read_pod


def cpu(amount: int) -> Resources:
    return Resources({"cpu": amount})


def needs(*containers: int, init: list[tuple[int, bool]] | None = None) -> int:
    read = [(cpu(amount), sidecar) for amount, sidecar in init or []]
    return pod_requests([cpu(amount) for amount in containers], read).amount("cpu")


@pytest.mark.parametrize(
    ("containers", "init", "needed"),
    [
        pytest.param([100, 200], [], 300, id="containers are added"),
        pytest.param([100, 100], [(150, False), (50, False)], 200, id="init containers end"),
        pytest.param([100], [(500, False), (300, False)], 500, id="the largest init container"),
        pytest.param([100], [(30, True)], 130, id="a sidecar runs beside the containers"),
        pytest.param([10], [(100, True), (200, False)], 300, id="init beside an earlier sidecar"),
        pytest.param([10], [(200, False), (100, True)], 200, id="init before a sidecar"),
        pytest.param([0], [(50, True), (80, True)], 130, id="the last sidecar is the peak"),
    ],
)
def test_the_requests_of_containers_and_init_containers_are_added(
    containers: list[int], init: list[tuple[int, bool]], needed: int
) -> None:
    assert needs(*containers, init=init) == needed


def test_overhead_and_one_pod_come_on_top() -> None:
    assert pod_requests([cpu(100)], overhead=cpu(7)) == Resources({"cpu": 107, "pods": 1})


def test_pod_level_requests_replace_the_sum() -> None:
    containers = [Resources({"cpu": 100, "memory": 5}), Resources({"cpu": 100})]
    whole = pod_requests(containers, pod_level=cpu(150), overhead=cpu(1))

    assert whole == Resources({"cpu": 151, "memory": 5, "pods": 1})


@given(
    st.lists(st.integers(0, 9), max_size=4),
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=5),
)
def test_the_requests_are_the_peak_over_the_life_of_the_pod(
    containers: list[int], init: list[tuple[int, bool]]
) -> None:
    moments, running = [0], 0
    for amount, sidecar in init:
        moments.append(running + amount)
        running += amount if sidecar else 0
    moments.append(running + sum(containers))

    assert needs(*containers, init=init) == max(moments)


INFEASIBLE = {
    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}


def read(spec: dict[str, Any], status: dict[str, Any]) -> Pod:
    thing = objects.stored_pod("p", node="n")
    thing["spec"].update(spec)
    thing["status"].update(status)
    return read_pod(thing)[0]


def asking(cpu: str, **rest: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **rest}


def having(allocated: str, actual: str) -> dict[str, Any]:
    return {
        "name": "c",
        "allocatedResources": {"cpu": allocated},
        "resources": {"requests": {"cpu": actual}},
    }


@pytest.mark.parametrize(
    ("asked", "allocated", "actual", "how", "counted"),
    [
        pytest.param("2", "1", "1", {}, 2000, id="growing, not processed yet"),
        pytest.param("2", "1", "1", DEFERRED, 2000, id="growing, deferred: it keeps its claim"),
        pytest.param("2", "2", "1", {}, 2000, id="growing, in progress"),
        pytest.param("1000", "1", "1", INFEASIBLE, 1000, id="infeasible: it claims nothing"),
        pytest.param("1000", "1", "2", INFEASIBLE, 2000, id="infeasible, still shrinking"),
        pytest.param(
            "1000", "1", "1", {"resize": "Infeasible"}, 1000, id="as reported before 1.33"
        ),
        pytest.param("1", "4", "4", {}, 4000, id="shrinking, not processed yet"),
        pytest.param("1", "1", "4", {}, 4000, id="shrinking, in progress"),
        pytest.param("1", "1", "1", {}, 1000, id="done"),
    ],
)
def test_a_container_and_a_sidecar_count_alike(
    asked: str, allocated: str, actual: str, how: dict[str, Any], counted: int
) -> None:
    plain = read(
        {"containers": [asking(asked)]},
        {"containerStatuses": [having(allocated, actual)], **how},
    )
    sidecar = read(
        {"containers": [{"name": "m"}], "initContainers": [asking(asked, restartPolicy="Always")]},
        {"initContainerStatuses": [having(allocated, actual)], **how},
    )

    assert dict(plain.requests) == dict(sidecar.requests) == {"cpu": counted, "pods": 1}


def test_an_init_container_that_ends_is_not_resized() -> None:
    pod = read(
        {"containers": [{"name": "m"}], "initContainers": [asking("1")]},
        {"initContainerStatuses": [having("4", "4")]},
    )

    assert pod.requests.amount("cpu") == 1000


def test_allocated_resources_count_only_beside_actual_resources() -> None:
    allocated = {"name": "c", "allocatedResources": {"cpu": "4"}}
    pod = read({"containers": [asking("1")]}, {"containerStatuses": [allocated]})

    assert pod.requests.amount("cpu") == 1000


def test_a_limit_the_kubelet_reports_is_no_request() -> None:
    limited = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "8Gi"}}}
    pod = read({"containers": [asking("1")]}, {"containerStatuses": [limited]})

    assert dict(pod.requests) == {"cpu": 1000, "pods": 1}


@pytest.mark.parametrize(
    ("how", "counted"),
    [({}, 8000), (DEFERRED, 8000), (INFEASIBLE, 3000)],
    ids=["not processed yet", "deferred", "infeasible"],
)
def test_a_pod_resized_as_a_whole_counts_by_the_same_rule(
    how: dict[str, Any], counted: int
) -> None:
    pod = read(
        {"containers": [asking("1")], "resources": {"requests": {"cpu": "8"}}},
        {
            "allocatedResources": {"cpu": "2"},
            "resources": {"requests": {"cpu": "3"}},
            **how,
        },
    )

    assert pod.requests.amount("cpu") == counted


def test_a_resize_that_becomes_infeasible_changes_the_requests_at_once() -> None:
    def after(how: dict[str, Any]) -> int:
        status = {"containerStatuses": [having("1", "1")], **how}
        return read({"containers": [asking("2")]}, status).requests.amount("cpu")

    assert [after({}), after(DEFERRED), after(INFEASIBLE), after({})] == [2000, 2000, 1000, 2000]


def test_pods_with_different_container_names_are_not_confused() -> None:
    def cpus(*names: str) -> int:
        asked = [{**asking(str(place)), "name": name} for place, name in enumerate(names, 1)]
        grown = {**having("4", "4"), "name": "a"}
        return read({"containers": asked}, {"containerStatuses": [grown]}).requests.amount("cpu")

    assert (cpus("a", "b"), cpus("b", "a")) == (6000, 5000)

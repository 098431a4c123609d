"""What a pod needs, from its containers, as kube-scheduler adds it up."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.kube.decode.shapes import pod_requests
from extender.model.resources import Resources


def cpu(amount: int) -> Resources:
    return Resources({"cpu": amount})


def needs(*containers: int, init: list[tuple[int, bool]] | None = None) -> int:
    read = [(cpu(amount), sidecar) for amount, sidecar in init or []]
    return pod_requests([cpu(amount) for amount in containers], read).amount("cpu")


def test_the_requests_of_containers_are_added() -> None:
    assert needs(100, 200) == 300


def test_each_pod_counts_as_one_pod() -> None:
    assert pod_requests([]) == Resources({"pods": 1})


def test_an_init_container_runs_alone_so_only_the_largest_counts() -> None:
    assert needs(100, 100, init=[(150, False), (50, False)]) == 200
    assert needs(100, init=[(500, False), (300, False)]) == 500


def test_a_sidecar_runs_beside_the_containers() -> None:
    assert needs(100, init=[(30, True)]) == 130


def test_an_init_container_runs_beside_the_sidecars_before_it() -> None:
    assert needs(10, init=[(100, True), (200, False)]) == 300
    assert needs(10, init=[(200, False), (100, True)]) == 200


def test_the_last_sidecar_to_start_may_be_the_peak() -> None:
    assert needs(0, init=[(50, True), (80, True)]) == 130


def test_overhead_comes_on_top() -> None:
    assert pod_requests([cpu(100)], overhead=cpu(7)).amount("cpu") == 107


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

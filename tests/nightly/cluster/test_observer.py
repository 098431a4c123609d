"""The observer and the verdict on a real API server, with faults made by the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import objects
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.nightly.faults import bindings, partial_gangs
from tests.nightly.faults.breaches import Bounds
from tests.nightly.faults.observer import Observer
from tests.nightly.faults.record import Away, Back, Killed, PodBound, PodEnded, Record
from tests.nightly.faults.verdict import judge

STRICT = Bounds(whole_s=0.2, lag_s=0.0, settle_s=0.0)


@pytest.fixture
def own(control_plane_binaries: None, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane with a two-core node and a gang of three; its API server can be killed."""
    with ControlPlane(tmp_path / "cluster") as plane:
        plane.install()
        plane.api.create(
            objects.namespace("a"),
            objects.node("n1", cpu="2"),
            objects.queue("q", capability={"cpu": "1"}),
            objects.pod_group("train", "a", 3, queue="q"),
            *objects.pods(3, "train", "a", gang="train"),
        )
        yield plane


def bind(api: Api, pod: str, node: str = "n1") -> None:
    """Bind a pod without the extender."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    api.request("POST", f"/api/v1/namespaces/a/pods/{pod}/binding", binding)


def bound(record: Record, count: int) -> None:
    wait_for(lambda: len(record.of(PodBound)) == count, 10, f"{count} binds are seen")


def test_planted_faults_are_found(own: ControlPlane) -> None:
    record = Record()
    with Observer(own.api, record):
        bind(own.api, "train-0")
        bound(record, 1)
        bind(own.api, "train-1")
        bound(record, 2)
        since = record.now()
        wait_for(lambda: record.now() > since + 0.5, 5, "the window is over")
        bind(own.api, "train-2")
        bound(record, 3)
        # No scheduler would bind a pod to a missing node.
        own.api.create(objects.pod("stray", "a"))
        bind(own.api, "stray", "nowhere")
        bound(record, 4)

    found = {breach.rule for breach in judge(record, STRICT).breaches}
    assert found == {partial_gangs.RULE, bindings.CEILING, bindings.FULL, bindings.UNKNOWN}


def test_observer_misses_nothing_over_a_crash_and_a_compaction(
    own: ControlPlane,
) -> None:
    record = Record()
    with Observer(own.api, record):
        bind(own.api, "train-0")
        own.apiserver.kill()
        record.note(Killed(at=record.now(), who="kube-apiserver"))
        wait_for(lambda: record.of(Away), 10, "its absence is noted")
        own.apiserver.start()
        own.etcd.compact()
        with suppress(ApiError):
            bind(own.api, "train-0")
        bind(own.api, "train-1")
        own.api.delete("pods", "train-0", "a", grace_seconds=0)
        bound(record, 2)
        wait_for(lambda: len(record.of(PodEnded)) == 1, 10, "its end is seen")
        wait_for(lambda: record.of(Back), 10, "its return is noted")

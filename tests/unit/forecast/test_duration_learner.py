"""Durations are learnt from gangs that end, as the watch reports them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.cache.changes import Delete, Kind
from extender.cache.cluster import Cluster
from extender.forecast.durations import DurationHistory, DurationLearner
from extender.kube.decode import resources
from extender.model.gang import GangKey
from extender.sim.clock import VirtualClock

OURS = frozenset({"gang-scheduler"})


class FakeWatch:
    """Applies pods of Jobs to a cache, as the watch would."""

    def __init__(self) -> None:
        self.cluster = Cluster(VirtualClock(epoch=2_000_000_000.0))
        self.experience = DurationHistory()
        self.cluster.watch_pods(DurationLearner(self.cluster, self.experience).seen)

    def pod(self, job: str, number: int = 0, *, phase: str = "Succeeded", **rest: Any) -> None:
        ended = rest.get("ended", "2026-01-31T12:30:00Z")
        over = {"state": {"terminated": {"finishedAt": ended}}}
        marks = {"scheduling.volcano.sh/queue-name": rest.get("queue", "")}
        if rest.get("started_in"):
            marks["gang-extender.io/started-in"] = rest["started_in"]
        pod = {
            "metadata": {
                "name": f"{job}-{number}",
                "namespace": "lab",
                "uid": f"{job}-{number}",
                "annotations": marks,
                "ownerReferences": [{"kind": "Job", "name": job, "controller": True}],
            },
            "spec": {"schedulerName": "gang-scheduler", "nodeName": "n1"},
            "status": {
                "phase": phase,
                "startTime": rest.get("began", "2026-01-31T12:00:00Z"),
                "containerStatuses": [over if phase in ("Succeeded", "Failed") else {}],
            },
        }
        line = resources.pods(OURS).line(_line(pod))
        assert line.change is not None
        self.cluster.apply(line.change)

    def learnt(self, job: str = "train-29491200", queue: str = "default") -> tuple[float, ...]:
        return self.experience.of(GangKey(f"lab/job:{job}"), queue)


def _line(pod: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": "MODIFIED", "object": pod})


@pytest.fixture
def watch() -> FakeWatch:
    return FakeWatch()


def test_the_duration_of_a_job_is_learnt_when_its_last_pod_has_succeeded(watch: FakeWatch) -> None:
    watch.pod("train-29491200", 0, phase="Running")
    watch.pod("train-29491200", 1, ended="2026-01-31T12:20:00Z")
    assert watch.learnt() == ()

    watch.pod("train-29491200", 0)

    assert watch.learnt("train-29491260") == (1800.0,)


def test_a_duration_counts_for_the_queue_in_which_the_job_started(watch: FakeWatch) -> None:
    watch.pod("train-29491200", started_in="research")

    assert watch.learnt(queue="research") == (1800.0,)
    assert watch.learnt() == ()


def test_nothing_is_learnt_from_a_failed_job(watch: FakeWatch) -> None:
    watch.pod("train-29491200", 0, phase="Failed")
    watch.pod("train-29491200", 1)

    assert watch.learnt() == ()


def test_nothing_is_learnt_from_a_job_deleted_while_it_ran(watch: FakeWatch) -> None:
    watch.pod("train-29491200", 0, phase="Running")
    watch.cluster.apply(Delete(Kind.POD, "train-29491200-0"))

    assert watch.learnt() == ()


def test_a_job_with_a_second_wave_of_pods_counts_as_a_whole(watch: FakeWatch) -> None:
    watch.pod("train-29491200", 0)
    watch.pod("train-29491200", 1, began="2026-01-31T12:31:00Z", ended="2026-01-31T13:00:00Z")

    assert watch.learnt() == (3600.0,)


def test_a_restarted_extender_learns_from_finished_pods(watch: FakeWatch) -> None:
    watch.pod("train-29491200")  # seen for the first time when it is over

    assert watch.learnt() == (1800.0,)

"""Durations of earlier gangs: which names count as one, how they are learnt, and their use."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

import msgspec
import pytest

from extender.cache.changes import Delete, Kind
from extender.cache.cluster import Cluster
from extender.forecast.durations import (
    MAX_NAMES,
    MAX_NAMES_PER_NAMESPACE,
    MAX_SAMPLES,
    Duration,
    DurationHistory,
    DurationLearner,
    expected,
    spread,
    stem,
)
from extender.kube.decode import resources
from extender.model.gang import GangKey
from extender.sim.clock import VirtualClock
from tests.builders import gang


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("train", "train"),
        ("train-17", "train"),
        ("job:train-28391040", "job:train"),  # a CronJob's
        ("job:train-28391040-x7k2p", "job:train"),
        ("pod:train-x7k2p", "pod:train"),  # generateName
        ("replicaset:web-7d4f8c7b9", "replicaset:web"),
        ("train-0f3b1c2e-1a2b-3c4d-5e6f-0123456789ab", "train"),  # a Volcano Job's
        ("run-2026-01-31", "run"),
        ("bench-4f2a9bc", "bench"),  # a commit
        ("web-prod", "web-prod"),
        ("train-small", "train-small"),
        ("17", "17"),
        ("job:28391040", "job:28391040"),
        ("-x7k2p", "-x7k2p"),
    ],
)
def test_generated_suffixes_of_a_name_are_ignored(name: str, left: str) -> None:
    assert stem(name) == left


def test_runs_are_kept_by_namespace_queue_and_name() -> None:
    known = DurationHistory()
    known.record(GangKey("lab/train-1"), "left", 60.0)
    known.record(GangKey("lab/train-2"), "left", 80.0)

    assert known.of(GangKey("lab/train-9"), "left") == (60.0, 80.0)
    assert known.of(GangKey("lab/train-9"), "right") == ()
    assert known.of(GangKey("ops/train-9"), "left") == ()
    assert known.of(GangKey("lab/other"), "left") == ()


def test_a_gang_that_ends_twice_counts_once() -> None:
    known = DurationHistory()
    known.record(GangKey("lab/train-1"), "left", 60.0)
    known.record(GangKey("lab/train-1"), "left", 90.0)

    assert known.of(GangKey("lab/train-2"), "left") == (90.0,)


def test_the_latest_runs_of_a_name_are_kept() -> None:
    known = DurationHistory()
    for number in range(MAX_SAMPLES + 5):
        known.record(GangKey(f"lab/train-{number}"), "left", float(number))

    assert len(known.of(GangKey("lab/train-0"), "left")) == MAX_SAMPLES
    assert known.of(GangKey("lab/train-0"), "left")[-1] == MAX_SAMPLES + 4


def test_too_many_names_displace_only_names_of_their_own_namespace() -> None:
    known = DurationHistory()
    known.record(GangKey("lab/train-1"), "left", 60.0)
    for number in range(1000):
        known.record(GangKey(f"greedy/name-{number:x}q"), "left", 1.0)

    assert len(known) == MAX_NAMES_PER_NAMESPACE + 1
    assert known.of(GangKey("lab/train-2"), "left") == (60.0,)


def test_all_namespaces_together_are_bounded() -> None:
    known = DurationHistory()
    for number in range(MAX_NAMES + 100):
        known.record(GangKey(f"n{number}/train"), "left", 1.0)

    assert len(known) == MAX_NAMES
    assert known.of(GangKey("n0/train"), "left") == ()
    assert known.of(GangKey(f"n{MAX_NAMES + 99}/train"), "left") == (1.0,)


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


def test_quantiles_are_spread_evenly_for_any_number_of_gangs() -> None:
    first = [4 / 8, 2 / 8, 6 / 8, 1 / 8, 5 / 8, 3 / 8, 7 / 8]
    assert [spread(number) for number in range(1, 8)] == first
    parts = sorted(spread(number) for number in range(1, 101))
    gaps = [after - before for before, after in pairwise(parts)]

    assert 0 < parts[0] < parts[-1] < 1
    assert max(gaps) <= 2 * min(gaps)


def learnt(durations: list[float], *parts: float) -> list[Duration]:
    """Return what a gang that starts now is expected to run, by quantile of these durations."""
    known, starts = DurationHistory(), gang("lab/train-0")
    for number, seconds in enumerate(durations, 1):
        known.record(GangKey(f"lab/train-{number}"), starts.queue, seconds)
    found = [expected(starts, 0.0, known, part).duration for part in parts]
    return [each for each in found if each is not None]


@pytest.mark.parametrize("durations", [[5.0], [3.0, 9.0], [8.0, 1.0, 4.0], [2.0, 8.0, 4.0, 6.0]])
def test_a_single_gang_is_expected_to_run_as_long_as_the_median(durations: list[float]) -> None:
    (lasting,) = learnt(durations, 1 / 2)

    assert lasting.seconds == median(durations)
    assert lasting.ended is None


def test_many_gangs_are_expected_to_end_with_the_earlier_distribution() -> None:
    earlier = [float(minute) for minute in range(1, 65)]
    lasting = learnt(earlier, *(spread(number) for number in range(1, 65)))

    assert min(each.seconds for each in lasting) <= 2
    assert max(each.seconds for each in lasting) >= 63
    assert sum(each.seconds for each in lasting) / 64 == pytest.approx(median(earlier), rel=0.02)
    assert all(e.ended == sum(1 for n in earlier if n <= e.seconds) for e in lasting[1:])

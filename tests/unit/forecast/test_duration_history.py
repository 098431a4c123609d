"""How long gangs of a name ran: which names count as one, and limits that tenants cannot exceed."""

from __future__ import annotations

import pytest

from extender.forecast.durations import (
    MAX_NAMES,
    MAX_NAMES_PER_NAMESPACE,
    MAX_SAMPLES,
    DurationHistory,
    stem,
)
from extender.model.gang import GangKey


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

"""Readers without a lock may see an older state, but never an error that is unsafe."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.reservation_table import Stage
from extender.model.pod import Pod, Status
from extender.model.resources import Resources
from tests.builders import GANG, NOW, cache, node, pod, pod_group, seen, uid
from tests.unit.cache.interleaving import between_steps

ROUNDS = 1_500


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@contextmanager
def concurrently(act: Callable[[], None]) -> Iterator[None]:
    """Repeat *act* in another thread. Its exception is raised here."""
    done = threading.Event()
    failures: list[BaseException] = []

    def repeat() -> None:
        while not done.is_set():
            try:
                act()
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failures:
        raise failures[0]


def test_a_pod_that_is_being_bound_is_always_counted_on_its_node() -> None:
    made = cache(node("n", cpu=4), pod_group(), seen("w-0"), seen("w-1"))
    most = 3000

    def look() -> None:
        capacity = made.free("n")
        assert capacity is not None
        assert capacity.amount("cpu") <= most

    made.reservations.reserve(pod("w-1"), GANG, "n", 0.0, stage=Stage.WAITING)
    with concurrently(look):
        for number in range(ROUNDS):
            # One of the two is on the node at any time, in one state or another.
            this, other = f"w-{number % 2}", f"w-{1 - number % 2}"
            made.reservations.reserve(pod(this), GANG, "n", 0.0, stage=Stage.WAITING)
            made.apply(Delete(Kind.POD, uid(other)))
            made.apply(Upsert(seen(other)))
            made.reservations.advance(uid(this), Stage.BOUND)
            made.apply(Upsert(seen(this, on="n", status=Status.BOUND)))


def test_a_bound_pod_is_never_counted_as_two_scheduled_members() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))

    def look() -> None:
        assert made.scheduled(GANG) <= 1

    with concurrently(look):
        for _ in range(ROUNDS):
            made.reservations.reserve(pod("w-0"), GANG, "n", 0.0, stage=Stage.BOUND)
            made.apply(Upsert(seen("w-0", on="n", status=Status.BOUND)))
            made.apply(Delete(Kind.POD, uid("w-0")))
            made.apply(Upsert(seen("w-0")))


def test_snapshots_are_consistent_during_concurrent_changes() -> None:
    made = cache(node("n"), pod_group(), *(seen(f"w-{number}") for number in range(4)))

    def look() -> None:
        snapshot = made.snapshot(NOW)
        placed = [each for each in snapshot.gangs[GANG].pods if each.node]
        assert snapshot.nodes.used[0, 2] == len(placed)

    with concurrently(look):
        for number in range(ROUNDS):
            name = f"w-{number % 4}"
            made.reservations.reserve(pod(name), GANG, "n", 0.0)
            made.reservations.advance(uid(name), Stage(1 + number % 5))
            if number % 3:
                made.reservations.release(uid(name))
            else:
                made.apply(Upsert(seen(name, on="n")))
                made.apply(Upsert(seen(name)))


def test_rows_and_columns_may_grow_during_a_read() -> None:
    made = cache(node("n", cpu=4))

    def look() -> None:
        capacity = made.free("n")
        assert capacity is not None
        assert capacity.amount("cpu") == 4000

    with concurrently(look):
        for number in range(300):
            capacity = Resources({"cpu": 1000, f"resource-{number}": 1})
            made.apply(Upsert(node(f"m{number}", allocatable=capacity)))


def test_a_member_is_counted_without_a_gap_from_its_reservation_to_its_scheduling() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-0"), GANG, "n", 0.0, stage=Stage.BOUND)
    shown: list[set[str]] = []
    with between_steps(lambda: shown.append(set(made.on_nodes(GANG)))):
        made.apply(Upsert(seen("w-0", on="n", status=Status.BOUND)))

    assert [each for each in shown if each != {uid("w-0")}] == []
    assert made.reservations.of(uid("w-0")) is None


def test_counting_pending_evictions_blocks_no_other_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = cache(node("n"), pod_group(), seen("w-0", on="n", status=Status.BOUND))
    made.pending_evictions.replace({uid("w-0"): GANG})
    among = made.pending_evictions.pods

    def look(*about: Any) -> list[Pod]:
        assert not made.reservations.lock.locked()
        return among(*about)

    monkeypatch.setattr(made.pending_evictions, "pods", look)

    assert (made.scheduled(GANG), made.scheduled_in_role(GANG, "")) == (0, 0)

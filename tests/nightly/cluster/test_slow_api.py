"""An API server that is paused, or very slow, while gangs are bound.

A paused process keeps its connections open and does not answer, as on a machine that swaps. Paused
for nine tenths of the time it runs at a tenth of its speed. Steal time does not count, since it
would slow down the rest further.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests import objects
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import Extender
from tests.cluster.observer import WHOLE_S, BindObserver
from tests.cluster.steal_time import StealMonitor

NAMESPACE = "slow"
NODES, GANGS, SIZE = 10, 20, 8
PODS = GANGS * SIZE
#: The minimum number of pods to bind in the slow time; with fewer, the test shows nothing.
LEFT = PODS // 2
STALL_S = 10.0
#: It runs for 10 ms of every 100.
RUNS_S, PAUSES_S = 0.01, 0.09
SLOW_S = 40.0
#: In a shorter time gangs cannot be distinguished.
SLOW_AT_LEAST_S = 3.0
TIMEOUT_S = 120.0


@pytest.fixture
def plane(new_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """A control plane of its own, with gangs that all fit."""
    plane = new_plane(audit=False)
    names = [f"node-{index}" for index in range(NODES)]
    plane.api.create(*(objects.node(name, cpu="64") for name in names))
    plane.wait_until_nodes_are_ready(names)
    plane.api.create(objects.namespace(NAMESPACE))
    for gang in (f"g{index}" for index in range(GANGS)):
        plane.api.create(
            objects.pod_group(gang, NAMESPACE, SIZE),
            *(objects.pod(f"{gang}-{index}", NAMESPACE, gang=gang) for index in range(SIZE)),
        )
    return plane


@contextmanager
def binding(plane: ControlPlane) -> Iterator[tuple[Extender, BindObserver, StealMonitor]]:
    """Start a pair; the block begins when the first pod is bound."""
    with (
        StealMonitor() as machine,
        plane.binds(NAMESPACE) as binds,
        plane.extender() as extender,
        plane.scheduler(plane.scheduler_config(extender)),
    ):
        binds.wait_for(1, TIMEOUT_S)
        yield extender, binds, machine


def pause(plane: ControlPlane, seconds: float) -> None:
    os.kill(plane.apiserver.pid, signal.SIGSTOP)
    try:
        threading.Event().wait(seconds)
    finally:
        os.kill(plane.apiserver.pid, signal.SIGCONT)


@contextmanager
def slowed(plane: ControlPlane, seconds: float) -> Iterator[list[float]]:
    """Slow the API server down to a tenth for *seconds*, or until the end of the block.

    Yields the times when it resumed, to be read after the block.
    """
    over = threading.Event()
    resumed_at: list[float] = []

    def slow_down() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not over.wait(RUNS_S):
            pause(plane, PAUSES_S)
            resumed_at.append(time.monotonic())

    thread = threading.Thread(target=slow_down, name="slowed", daemon=True)
    thread.start()
    try:
        yield resumed_at
    finally:
        over.set()
        thread.join()


def judge(
    extender: Extender, binds: BindObserver, machine: StealMonitor, answers_since: float
) -> None:
    """Assert that no gang was partial for long once the API server answered, and no bind failed."""
    moments: defaultdict[str, list[float]] = defaultdict(list)
    for bind in binds.binds:
        moments[bind.pod.partition("-")[0]].append(bind.at)
    assert {len(each) for each in moments.values()} == {SIZE}
    in_part_s = {
        gang: machine.without_steal_s(max(min(each), min(answers_since, max(each))), max(each))
        for gang, each in moments.items()
    }
    print("longest in part:", round(max(in_part_s.values()), 2), "s")
    assert max(in_part_s.values()) < WHOLE_S, in_part_s
    assert extender.metric("gang_extender_partial_commits_total") == 0
    failed = extender.metric("gang_extender_bind_wait_seconds_count", cause="bind_failed")
    assert failed == 0, "a bind was reported as failed"


def assert_enough_unbound(binds: BindObserver) -> None:
    """Assert that enough pods are not bound yet."""
    before = len(binds.binds)
    print(f"{before} of {PODS} were bound before")
    assert before <= PODS - LEFT


def test_stall_of_ten_seconds_leaves_no_gang_partial(
    plane: ControlPlane,
) -> None:
    with binding(plane) as (extender, binds, machine):
        pause(plane, STALL_S)
        answers_since = time.monotonic()
        # Checked now, since the observer has received all earlier events by now.
        assert_enough_unbound(binds)
        binds.wait_for(PODS, TIMEOUT_S)

        judge(extender, binds, machine, answers_since)


def test_gangs_start_whole_with_an_api_server_at_a_tenth_of_its_speed(plane: ControlPlane) -> None:
    with binding(plane) as (extender, binds, machine):
        with slowed(plane, SLOW_S) as resumed_at:
            assert_enough_unbound(binds)
            binds.wait_for(PODS, TIMEOUT_S)
        slow_s = resumed_at[-1] - resumed_at[0]
        during = sum(resumed_at[0] < bind.at < resumed_at[-1] for bind in binds.binds)
        print(f"{during} of {PODS} were bound while it was slow, for {slow_s:.1f} s")
        assert slow_s > SLOW_AT_LEAST_S
        assert during >= LEFT

        judge(extender, binds, machine, answers_since=0.0)

"""An API server that stands still, or creeps, just when gangs are being bound.

It is stopped as a machine does that swaps: connections stay open, and nothing is answered. Stopped
nine moments of ten it has a tenth of its pace, for everybody. What the host takes of the machine
besides is not counted: at a tenth of half a pace a gang takes twice as long.
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
#: So many pods are left for the slow time, or it came too late and nothing was tried.
LEFT = PODS // 2
STALL_S = 10.0
#: A tenth: it runs for 10 ms of every 100.
RUNS_S, STANDS_S = 0.01, 0.09
CREEPS_S = 40.0
#: A shorter time is over before a gang is told from the next.
CREEPS_AT_LEAST_S = 3.0
LONG_S = 120.0


@pytest.fixture
def plane(new_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """A control plane of our own, to be stopped and continued, with gangs that all fit."""
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
    """Let a pair loose on the gangs; the block begins when the first pod is bound."""
    with (
        StealMonitor() as machine,
        plane.binds(NAMESPACE) as binds,
        plane.extender() as extender,
        plane.scheduler(plane.scheduler_config(extender)),
    ):
        binds.wait_for(1, LONG_S)
        yield extender, binds, machine


def stand_still(plane: ControlPlane, seconds: float) -> None:
    os.kill(plane.apiserver.pid, signal.SIGSTOP)
    try:
        threading.Event().wait(seconds)
    finally:
        os.kill(plane.apiserver.pid, signal.SIGCONT)


@contextmanager
def creeping(plane: ControlPlane, seconds: float) -> Iterator[list[float]]:
    """Give the API server a tenth of its pace for so long, or until the block is left.

    The moments at which it went on each time are given, to be read when the block was left.
    """
    over = threading.Event()
    went_on: list[float] = []

    def creep() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not over.wait(RUNS_S):
            stand_still(plane, STANDS_S)
            went_on.append(time.monotonic())

    thread = threading.Thread(target=creep, name="creeping", daemon=True)
    thread.start()
    try:
        yield went_on
    finally:
        over.set()
        thread.join()


def judge(
    extender: Extender, binds: BindObserver, machine: StealMonitor, well_since: float
) -> None:
    """Nobody was in part for long once the API server answered, and nobody heard what is untrue."""
    moments: defaultdict[str, list[float]] = defaultdict(list)
    for bind in binds.binds:
        moments[bind.pod.partition("-")[0]].append(bind.at)
    assert {len(each) for each in moments.values()} == {SIZE}
    in_part_s = {
        gang: machine.without_steal_s(max(min(each), min(well_since, max(each))), max(each))
        for gang, each in moments.items()
    }
    print("longest in part:", round(max(in_part_s.values()), 2), "s")
    assert max(in_part_s.values()) < WHOLE_S, in_part_s
    assert extender.metric("gang_extender_partial_commits_total") == 0
    failed = extender.metric("gang_extender_bind_wait_seconds_count", cause="bind_failed")
    assert failed == 0, "kube-scheduler was told that a bind failed"


def must_be_left(binds: BindObserver) -> None:
    """Object if too few wait when it begins, for then nothing is tried."""
    before = len(binds.binds)
    print(f"{before} of {PODS} were bound before")
    assert before <= PODS - LEFT


def test_a_stall_of_ten_seconds_while_gangs_are_bound_tears_none_of_them(
    plane: ControlPlane,
) -> None:
    with binding(plane) as (extender, binds, machine):
        stand_still(plane, STALL_S)
        well_since = time.monotonic()
        # Asked only now: whoever listens has heard by now all that was told before.
        must_be_left(binds)
        binds.wait_for(PODS, LONG_S)

        judge(extender, binds, machine, well_since)


def test_at_a_tenth_of_its_pace_the_api_server_binds_gang_after_gang(plane: ControlPlane) -> None:
    with binding(plane) as (extender, binds, machine):
        with creeping(plane, CREEPS_S) as went_on:
            must_be_left(binds)
            binds.wait_for(PODS, LONG_S)
        crept_s = went_on[-1] - went_on[0]
        during = sum(went_on[0] < bind.at < went_on[-1] for bind in binds.binds)
        print(f"{during} of {PODS} were bound while it crept, for {crept_s:.1f} s")
        assert crept_s > CREEPS_AT_LEAST_S
        assert during >= LEFT

        judge(extender, binds, machine, well_since=0.0)

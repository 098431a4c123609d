"""Gangs end to end on the real control plane, compared with the plain kube-scheduler.

`backlog`: all pods exist before the scheduler starts. `stream`: they are created while it runs.
The rate counts from the start of the scheduler (backlog) or the first create (stream) to the last
bind that a watch sees. CPU is that of the extender: of its event loop, which answers filter and
bind and sends the bindings, and of all threads (watches, cycles, status and events as well).
`bare` is the event loop of a minimal extender (`bare.py`) in the same run: the cost of the calls
alone. Both cores are always busy, so the cost of a pod depends on the speed of the machine. The
share of a core that an event loop needs does not, and is shown too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Literal

import yaml

from tests import objects
from tests.bench.bare import Bare
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import Extender
from tests.cluster.waiting import wait_for

CREATORS = 4
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload: *gangs* of *size* on *nodes*, created before or during the run."""

    nodes: int
    gangs: int
    size: int
    mode: str

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.gangs}x{self.size}, {self.mode}"


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one run."""

    pods_per_s: float
    first_bind_s: float
    loop_ms_per_pod: float
    cpu_ms_per_pod: float

    @property
    def loop_share(self) -> float:
        """The share of a core that the event loop needs at this rate."""
        return self.loop_ms_per_pod * self.pods_per_s / 1000


SHAPES = [
    Shape(200, 100, 20, "stream"),
    Shape(200, 100, 20, "backlog"),
    Shape(200, 2000, 1, "backlog"),
    Shape(200, 4, 500, "backlog"),
    Shape(200, 1, 2000, "backlog"),
    Shape(1000, 100, 20, "backlog"),
]


def main(wanted: list[Shape], rounds: int) -> None:
    """Measure each shape *rounds* times, plain and with the extender in turn."""
    print(
        f"{'shape':34} {'plain':>8} {'bare':>8} {'gangs':>8} {'ratio':>6} {'first bind':>11} "
        f" {'CPU/pod: loop':>13} {'all':>7} {'bare':>7} {'of a core':>9} {'bare':>7}"
    )
    for shape in wanted:
        runs: list[tuple[Run, Run, Run]] = []
        for _ in range(rounds):
            plain, bare = measure(shape, "plain"), measure(shape, "bare")
            runs.append((plain, bare, measure(shape, "extender")))
            show(str(shape), *runs[-1])
        if rounds > 1:
            show("  median of each figure", *(medians(each) for each in zip(*runs, strict=True)))


def show(what: str, plain: Run, bare: Run, full: Run) -> None:
    """Print one row."""
    print(
        f"{what:34} {plain.pods_per_s:6.0f}/s {bare.pods_per_s:6.0f}/s {full.pods_per_s:6.0f}/s"
        f" {full.pods_per_s / plain.pods_per_s:6.2f} {full.first_bind_s:9.2f} s"
        f" {full.loop_ms_per_pod:9.2f} ms {full.cpu_ms_per_pod:5.2f} ms"
        f" {bare.loop_ms_per_pod:4.2f} ms {full.loop_share:8.1%} {bare.loop_share:7.1%}",
        flush=True,
    )


def medians(runs: Sequence[Run]) -> Run:
    """Return the median of each figure."""
    names = [field.name for field in fields(Run)]
    return Run(**{name: median(getattr(run, name) for run in runs) for name in names})


def measure(shape: Shape, stack: Literal["plain", "bare", "extender"]) -> Run:
    """Start a new control plane, wait until all pods are bound, and return the figures."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        plane = running.enter_context(ControlPlane(Path(folder), kwok=False, audit=False))
        plane.install()
        api = plane.api
        api.create(objects.namespace("bench"))
        in_parallel(plane, [ready_node(f"node-{index}") for index in range(shape.nodes)])
        pods = [
            objects.pod(
                f"gang-{gang}-{index}",
                "bench",
                gang=f"gang-{gang}" if shape.size > 1 else None,
                cpu="10m",
                memory="1Mi",
            )
            for gang in range(shape.gangs)
            for index in range(shape.size)
        ]
        if shape.size > 1:
            in_parallel(
                plane,
                [
                    objects.pod_group(f"gang-{gang}", "bench", shape.size)
                    for gang in range(shape.gangs)
                ],
            )
        if shape.mode == "backlog":
            in_parallel(plane, pods)
        extender: Extender | None = None
        if stack == "bare":
            extender = Bare(plane.logs, kubeconfig=plane.kubeconfig("extender"), size=shape.size)
        elif stack == "extender":
            extender = plane.extender()
        if extender:
            extender = running.enter_context(extender)
        if stack == "extender" and shape.size > 1:
            await_status(plane.api, shape.gangs)
        config = plane.scheduler_config(extender) if extender else plain_config(plane)
        binds = running.enter_context(plane.binds("bench"))
        before = cpu_of(extender) if extender else (0.0, 0.0)
        if shape.mode == "backlog":
            started = time.monotonic()
            running.enter_context(plane.scheduler(config))
        else:
            running.enter_context(plane.scheduler(config))
            started = time.monotonic()
            in_parallel(plane, pods)
        seen = binds.wait_for(len(pods), 180)
        after = cpu_of(extender) if extender else (0.0, 0.0)
        loop_ms, all_ms = ((b - a) * 1000 / len(pods) for a, b in zip(before, after, strict=True))
        return Run(
            pods_per_s=len(pods) / (seen[-1].at - started),
            first_bind_s=seen[0].at - started,
            loop_ms_per_pod=loop_ms,
            cpu_ms_per_pod=all_ms,
        )


def await_status(api: Api, gangs: int) -> None:
    """Wait until every PodGroup has its first status, which is no part of the run."""

    def written() -> int:
        return sum("status" in each for each in api.list(objects.POD_GROUPS, "bench"))

    wait_for(lambda: written() == gangs, 30, "every PodGroup has a status", seeing=written)


def plain_config(plane: ControlPlane) -> str:
    """Return a plain configuration of kube-scheduler, without the usual limit of its client."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(plane.kubeconfig("scheduler")),
                "qps": 5000,
                "burst": 5000,
            },
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": "gang-scheduler"}],
        }
    )


def ready_node(name: str) -> dict:
    """Return a node without kubelet: enough where pods need not run."""
    node = objects.node(name, cpu="32", memory="64Gi")
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return node


def in_parallel(plane: ControlPlane, items: list[dict]) -> None:
    """Create *items* over a few connections, in order."""
    with ThreadPoolExecutor(CREATORS) as creators:
        list(creators.map(plane.api.create, items))


def cpu_of(extender: Extender) -> tuple[float, float]:
    """Return the CPU time of the event loop, and of all threads."""
    worker = list(family(extender.pid))[-1]
    return _cpu_of(f"{worker}/task/{worker}"), cpu_s(extender)


def cpu_s(extender: Extender) -> float:
    """Return the CPU time of the extender and its worker."""
    return sum(_cpu_of(pid) for pid in family(extender.pid))


def family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        yield from family(int(child))


def _cpu_of(pid: int | str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of shapes, from 0")
    options = parser.parse_args()
    main([SHAPES[i] for i in options.only] if options.only else SHAPES, options.rounds)

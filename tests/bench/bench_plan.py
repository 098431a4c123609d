"""Cost of planning a large cluster: `python -m tests.bench.bench_plan`.

The cache is filled once. Every measured cycle takes a snapshot after a small change and plans it,
as the product does. CPU is that of the thread, so that other load shows only in the wall column.
The best of several cycles is printed, and the median.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from extender.cache.changes import SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.model.gang import GangKey, Membership, Phase, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid, Shape, Status
from extender.model.queue import Queue
from extender.model.resources import Resources
from extender.planner.plan import GangStatus, Plan
from extender.planner.planner import make_plan
from extender.sim.clock import VirtualClock

MI, GI = 2**20, 2**30
NODE = Resources({"cpu": 32_000, "memory": 128 * GI, "pods": 110})
RUNNING = Shape(requests=Resources({"cpu": 1000, "memory": 4 * GI, "pods": 1}))
BUDGET_MS = {
    "5000 nodes, 100000 running, 1000 x 20 waiting": 250,
    "one gang of 10000": 500,
    "1250 full nodes, 685 gangs need victims": 250,
    "1000 gangs of 1000 shapes": 250,
}


@dataclass(frozen=True)
class Size:
    """One cluster to plan."""

    nodes: int = 5_000
    running: int = 100_000
    gangs: int = 1_000
    members: int = 20
    shapes: int = 20
    queues: int = 10
    #: cpu of the largest waiting member; the more, the fewer fit.
    cpu: int = 4


class FilledCluster:
    """A cache filled with running and waiting gangs."""

    def __init__(self, size: Size) -> None:
        self.cluster = Cluster(VirtualClock(epoch=900.0))
        self._tick = 0
        for number in range(size.queues):
            self._add(Queue(name=f"q{number}", weight=1 + number % 3))
        for number in range(size.nodes):
            self._add(Node(name=f"n{number:05}", allocatable=NODE))
        for first in range(0, size.running, 20):
            count = min(20, size.running - first)
            self.gang(f"run-{first:06}", first // 20 % size.queues, count, RUNNING, size.nodes)
        for number in range(size.gangs):
            shape = _shapes(size)[number % size.shapes]
            self.gang(f"wait-{number:05}", number % size.queues, size.members, shape, 0)

    def gang(self, name: str, queue: int, members: int, shape: Shape, nodes: int) -> None:
        """Add a gang: on so many nodes, or waiting."""
        phase = Phase.RUNNING if nodes else Phase.PENDING
        group = PodGroup(
            namespace="a",
            name=name,
            min_member=members,
            queue=f"q{queue}",
            dialect="scheduling.volcano.sh",
            phase=phase,
            created=990.0,
        )
        self.cluster.apply(Upsert(group, group.dialect))
        member = Membership(key=GangKey(f"a/{name}"), named=True)
        first = int(name.rpartition("-")[2])
        for number in range(members):
            pod = Pod(
                uid=PodUid(f"{name}-{number}"),
                namespace="a",
                name=f"{name}-{number}",
                shape=shape,
                status=Status.RUNNING if nodes else Status.PENDING,
                node=f"n{(first + number) % nodes:05}" if nodes else "",
            )
            self._add(SeenPod(pod, member))

    def _add(self, item: Queue | Node | SeenPod) -> None:
        self.cluster.apply(Upsert(item))

    def change_one_pod(self) -> None:
        """Change one pod, so that the next snapshot is a new one."""
        self._tick += 1
        pod = self.cluster.pod(PodUid("run-000000-0"))
        if pod is not None:
            changed = replace(pod, priority=self._tick % 2)
            self._add(SeenPod(changed, Membership(key=GangKey("a/run-000000"), named=True)))


_KNOWN: dict[Size, list[Shape]] = {}


def _shapes(size: Size) -> list[Shape]:
    if size not in _KNOWN:
        _KNOWN[size] = [
            Shape(
                requests=Resources(
                    {
                        "cpu": 1000 * (1 + number % size.cpu),
                        # All shapes differ.
                        "memory": (1 + number % 7) * GI + number // 91 * MI,
                        "pods": 1,
                    }
                )
            )
            for number in range(size.shapes)
        ]
    return _KNOWN[size]


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU: the snapshot, the plan (best and median), and wall time of both."""

    snapshot: float
    plan: float
    median: float
    wall: float
    admitted: int
    waiting: int


def measure(size: Size, cycles: int) -> Cost:
    """Fill a cache and plan it *cycles* times."""
    filled = FilledCluster(size)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)  # as the product does once it is ready
    snapshots, plans, walls = [], [], []
    plan = Plan()
    for _ in range(cycles + 1):
        filled.change_one_pod()
        wall = time.perf_counter()
        snapshot, took = timed(lambda: filled.cluster.snapshot(1_000.0))
        snapshots.append(took)
        plan, took = timed(lambda: make_plan(snapshot))  # noqa: B023 (called at once)
        plans.append(took)
        walls.append((time.perf_counter() - wall) * 1000)
    gc.unfreeze()
    statuses = [verdict.status for verdict in plan.verdicts.values()]
    return Cost(
        snapshot=min(snapshots[1:]),
        plan=min(plans[1:]),
        median=statistics.median(plans[1:]),
        wall=min(walls[1:]),
        admitted=statuses.count(GangStatus.ADMITTED),
        waiting=statuses.count(GangStatus.WAITING),
    )


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.thread_time()
    result = call()
    return result, (time.thread_time() - start) * 1000


ROWS: dict[str, Size] = {
    "5000 nodes, 100000 running, 1000 x 20 waiting": Size(),
    "one gang of 10000": Size(gangs=1, members=10_000),
    "capacity for a third, queues over deserved": Size(cpu=12),
    "1250 full nodes, 685 gangs need victims": Size(nodes=1_250, running=40_000, gangs=685),
    "1000 gangs of 1000 shapes": Size(shapes=1_000, cpu=13),
    "nodes: 1250": Size(nodes=1_250, running=25_000, gangs=250),
    "nodes: 2500": Size(nodes=2_500, running=50_000, gangs=250),
    "nodes: 5000": Size(gangs=250),
    "gangs: 250": Size(gangs=250),
    "gangs: 500": Size(gangs=500),
    "gangs: 1000": Size(gangs=1_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    chosen = parser.parse_args()
    table = Table(box=None, pad_edge=False)
    for name in ("cluster", "snapshot ms", "plan ms", "median", "wall ms", "budget", "fit", "wait"):
        table.add_column(name, justify="left" if name == "cluster" else "right")
    for name, size in ROWS.items():
        if chosen.only not in name:
            continue
        cost = measure(size, chosen.cycles)
        figures = (cost.snapshot, cost.plan, cost.median, cost.wall)
        table.add_row(
            name,
            *(f"{figure:.0f}" for figure in figures),
            str(BUDGET_MS.get(name, "")),
            str(cost.admitted),
            str(cost.waiting),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

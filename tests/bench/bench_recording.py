"""What a recording costs, by the size of the cluster: `python -m tests.bench.bench_recording`.

Three kinds of passes: the first of a file, which is whole; one in which nothing happened but time;
and one in which some gangs have come and others have started since the last one.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.replay.recording import Folder, Recording, RecordingWriter
from tests.bench.bench_plan import RUNNING, Size, World

SIZES = (
    Size(nodes=100, running=1_000, gangs=100, members=10, cpu=4),
    Size(nodes=500, running=5_000, gangs=1_000, members=10, cpu=4),
    Size(nodes=1_000, running=10_000, gangs=10_000, members=4, cpu=4),
)
_PASSES = 5
HEAD = (
    "| nodes | pods on them | gangs | first pass of a file | nothing happened | 20 gangs started "
    "| a pass planned |\n"
    "|---|---|---|---|---|---|---|"
)
MIB = 1 << 20


def row(size: Size) -> str:
    """Give the line of one size: bytes on disk, and processor time beside the plan's own."""
    world = World(size)
    snapshot = world.cluster.snapshot(1_000.0)
    plan, planned_s = _timed(snapshot)
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(name, 2048 * MIB)
        pen = _Pen(RecordingWriter(folder), Path(name))
        first = pen.write(snapshot, plan)
        idle = [pen.write(replace(snapshot, now=1_000.0 + number), plan) for number in range(1, 5)]
        busy = [pen.write(*_moved(world, size, number)) for number in range(_PASSES)]
        folder.close()
        read = sum(1 for _ in Recording(name).cycles())
    if read != 1 + len(idle) + len(busy):
        raise AssertionError(f"of what was written only {read} passes are read")
    cells = (
        f"{size.nodes:,}",
        f"{size.running:,}",
        f"{len(snapshot.gangs):,}",
        _told([first]),
        _told(idle),
        _told(busy),
        f"{planned_s * 1000:.0f} ms",
    )
    return f"| {' | '.join(cells)} |"


class _Pen:
    """Writes, and says what that took."""

    def __init__(self, writing: RecordingWriter, folder: Path) -> None:
        self._writing, self._folder = writing, folder
        self._size = 0

    def write(self, snapshot: Snapshot, plan: Plan) -> tuple[int, float]:
        began = time.thread_time()
        self._writing.write(snapshot, policy_parser.DEFAULT, plan)
        took = time.thread_time() - began
        before, self._size = self._size, sum(each.stat().st_size for each in self._folder.iterdir())
        return self._size - before, took


def _timed(snapshot: Snapshot) -> tuple[Plan, float]:
    began = time.thread_time()
    plan = make_plan(snapshot, policy_parser.DEFAULT)
    return plan, time.thread_time() - began


def _moved(world: World, size: Size, number: int) -> tuple[Snapshot, Plan]:
    """Let twenty gangs that waited run, and plan again."""
    for place in range(number * 20, number * 20 + 20):
        world.gang(f"wait-{place:05}", place % size.queues, size.members, RUNNING, size.nodes)
    snapshot = world.cluster.snapshot(2_000.0 + number)
    return snapshot, make_plan(snapshot, policy_parser.DEFAULT)


def _told(passes: list[tuple[int, float]]) -> str:
    size, took = (median(each) for each in zip(*passes, strict=True))
    return f"{size / 1024:,.1f} KiB, {took * 1000:.1f} ms"


if __name__ == "__main__":
    print(HEAD)
    for each in SIZES:
        print(row(each), flush=True)

"""Cost of a recording, by the size of the cluster: `python -m tests.bench.bench_recording`.

Three kinds of cycles: the first of a file, which is complete; one in which only the time changed;
and one in which some gangs were created and others have started.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.replay.recording import Folder, Recording, RecordingWriter
from tests.bench.bench_plan import RUNNING, FilledCluster, Size, timed

SIZES = (
    Size(nodes=100, running=1_000, gangs=100, members=10, cpu=4),
    Size(nodes=500, running=5_000, gangs=1_000, members=10, cpu=4),
    Size(nodes=1_000, running=10_000, gangs=10_000, members=4, cpu=4),
)
_CYCLES = 5
HEAD = (
    "| nodes | pods on them | gangs | first cycle of a file | no change | 20 gangs started "
    "| planning a cycle |\n"
    "|---|---|---|---|---|---|---|"
)
MIB = 1 << 20


def row(size: Size) -> str:
    """Return the row of one size: bytes on disk, CPU of writing, and CPU of planning."""
    filled = FilledCluster(size)
    snapshot = filled.cluster.snapshot(1_000.0)
    plan, planned_ms = timed(lambda: make_plan(snapshot, policy_parser.DEFAULT))
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(name, 2048 * MIB)
        writer = _MeasuredWriter(RecordingWriter(folder), Path(name))
        first = writer.write(snapshot, plan)
        idle = [writer.write(replace(snapshot, now=1_000.0 + n), plan) for n in range(1, 5)]
        busy = [writer.write(*_after_starts(filled, size, number)) for number in range(_CYCLES)]
        folder.close()
        read = sum(1 for _ in Recording(name).cycles())
    if read != 1 + len(idle) + len(busy):
        raise AssertionError(f"only {read} of the written cycles are read")
    cells = (
        f"{size.nodes:,}",
        f"{size.running:,}",
        f"{len(snapshot.gangs):,}",
        _medians([first]),
        _medians(idle),
        _medians(busy),
        f"{planned_ms:.0f} ms",
    )
    return f"| {' | '.join(cells)} |"


class _MeasuredWriter:
    """Writes cycles, and returns the bytes and milliseconds of each."""

    def __init__(self, writer: RecordingWriter, folder: Path) -> None:
        self._writer, self._folder = writer, folder
        self._size = 0

    def write(self, snapshot: Snapshot, plan: Plan) -> tuple[int, float]:
        _, took_ms = timed(lambda: self._writer.write(snapshot, policy_parser.DEFAULT, plan))
        before, self._size = self._size, sum(each.stat().st_size for each in self._folder.iterdir())
        return self._size - before, took_ms


def _after_starts(filled: FilledCluster, size: Size, number: int) -> tuple[Snapshot, Plan]:
    """Let twenty waiting gangs run, and plan again."""
    for place in range(number * 20, number * 20 + 20):
        filled.gang(f"wait-{place:05}", place % size.queues, size.members, RUNNING, size.nodes)
    snapshot = filled.cluster.snapshot(2_000.0 + number)
    return snapshot, make_plan(snapshot, policy_parser.DEFAULT)


def _medians(cycles: list[tuple[int, float]]) -> str:
    size, took_ms = (median(each) for each in zip(*cycles, strict=True))
    return f"{size / 1024:,.1f} KiB, {took_ms:.1f} ms"


if __name__ == "__main__":
    print(HEAD)
    for each in SIZES:
        print(row(each), flush=True)

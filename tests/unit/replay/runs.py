"""Recorded runs of a whole cluster under virtual time."""

from __future__ import annotations

from pathlib import Path

from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.replay.recording import Folder, RecordingWriter
from extender.sim.cluster import SimulatedCluster
from tests.unit.sim.test_simulated_cluster import cluster, job, run

MIB = 1 << 20


def greedy_and_poor() -> SimulatedCluster:
    """Make a cluster in which one queue reclaims capacity, and many gangs wait."""
    world = cluster(nodes=4, greedy=1, poor=1)
    jobs = [
        *(job(f"greedy-{n}", 2, lasts_s=400, queue="greedy") for n in range(8)),
        *(job(f"poor-{n}", 4, queue="poor", arrives_s=60.0 + n) for n in range(3)),
        job("giant", 30, queue="poor", arrives_s=30),
    ]
    for each in jobs:
        world.workloads.submit(each)
    return world


def recorded(folder: Path, seconds: float = 400, most_bytes: int = 256 * MIB) -> list[Snapshot]:
    """Record a run, and return its snapshots."""
    seen: list[Snapshot] = []
    place = Folder(str(folder), most_bytes)
    writing = RecordingWriter(place)
    world = greedy_and_poor()

    def keep(snapshot: Snapshot, plan: Plan) -> None:
        seen.append(snapshot)
        writing.write(snapshot, policy_parser.DEFAULT, plan)

    world.extender.on_cycle = keep
    run(world, seconds)
    place.close()
    return seen

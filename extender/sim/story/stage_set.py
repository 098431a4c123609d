"""The cluster of the demo: four nodes, two queues that are worth the same."""

from __future__ import annotations

from collections.abc import Mapping

from extender.plan.policy import policies
from extender.sim import objects
from extender.sim.cluster import SimCluster

NODES, CPUS, MEMORY_GI = 4, 9, 18
QUEUES = ("lab", "ops")
#: A third of a node; so many fit.
THIRD: Mapping[str, str] = {"cpu": "3", "memory": "2Gi"}
SLOTS = NODES * 3


def build(cluster: SimCluster) -> None:
    """Create nodes and queues."""
    for index in range(NODES):
        cluster.create(objects.node(f"node-{index}", CPUS, f"{MEMORY_GI}Gi"))
    for name in QUEUES:
        cluster.create(objects.queue(name))


def impatient(after_s: float) -> str:
    """Write the default policy, but room is kept for whoever loses its turn for *after_s*."""
    after_ms = max(1, round(after_s * 1000))
    return f"{policies.DEFAULT_TEXT}starvation:\n  after: {after_ms}ms\n"

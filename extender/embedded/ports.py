"""An extender put together for a simulated cluster: the same ports, decoded like the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from extender.cache.cluster import Cluster
from extender.kube.decode import dialects, watched
from extender.kube.decode.codec import Codec
from extender.metrics import Metrics
from extender.model.dialect import VOLCANO
from extender.model.gang import PodGroup
from extender.ports import Clock, ClusterPorts, Mandate
from extender.settings import Settings, label_pairs
from extender.sim.acting import SimAnnouncer, SimEvictor, SimStatus
from extender.sim.cluster import Object, SimCluster
from extender.timing.clock import SystemClock
from extender.tls.rotation import Certificates
from extender.wiring import Runtime

_CLOCK = SystemClock()


def embed(
    settings: Settings,
    loop: asyncio.AbstractEventLoop,
    simulated: SimCluster,
    certificates: Sequence[Certificates] = (),
    clock: Clock = _CLOCK,
) -> Runtime:
    """Put an extender together for a simulated cluster."""
    schedulers = frozenset(settings.scheduler_name)
    node_labels = label_pairs(settings.node_selector)
    exempt = frozenset(settings.exempt_namespace)

    def reach(cluster: Cluster, _: Metrics, __: Mandate) -> ClusterPorts:
        evictor = SimEvictor(simulated)
        return ClusterPorts(
            binder=simulated,
            groups=simulated,
            waker=simulated,
            evictor=evictor,
            undo=evictor,
            status=SimStatus(simulated),
            announcer=SimAnnouncer(),
            start=lambda: _let_hear(cluster, simulated, schedulers, node_labels, exempt),
            stop=lambda: None,
            aclose=lambda: asyncio.sleep(0),
        )

    return Runtime(settings, loop, clock, reach, certificates)


def read_group(thing: Object) -> PodGroup:
    """Read a PodGroup of the simulated cluster as if it came from the API server."""
    return dialects.to_group(msgspec.convert(thing, dialects.RawGroup), VOLCANO)


def _let_hear(
    cluster: Cluster,
    simulated: SimCluster,
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]],
    exempt: frozenset[str],
) -> None:
    """Tell *cluster* whatever changes in *simulated*, decoded like everything else."""
    codecs: dict[str, Codec[Any]] = {
        "Node": watched.nodes(node_labels),
        "Pod": watched.pods(schedulers, exempt),
        "PodGroup": watched.groups(VOLCANO, exempt),
        "Queue": watched.queues(VOLCANO),
    }

    def hear(verb: str, thing: Object) -> None:
        line = codecs[thing["kind"]].line(msgspec.json.encode({"type": verb, "object": thing}))
        if line.change is not None:
            cluster.apply(line.change)

    simulated.listen(hear)

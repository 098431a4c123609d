"""The implementation of the ports for a real cluster: watches and writes of the API server."""

from __future__ import annotations

import asyncio
import logging

from extender.cache.cluster import Cluster
from extender.kube.client import ApiClient
from extender.kube.decode.pods import to_pod
from extender.kube.decode.raw import RawPod
from extender.kube.metrics import PrometheusApiMetrics
from extender.kube.pipeline import Pipeline
from extender.kube.read import GroupReads, TokenReviewer
from extender.kube.watch import Watch
from extender.kube.write.bind import ApiBinder
from extender.kube.write.evict import ApiEvictor, ApiPartialBindRollback
from extender.kube.write.leader import ApiLeaderLabels, ApiLeases
from extender.kube.write.status import ApiEventWriter, ApiStatusWriter
from extender.kube.write.wake import ApiWaker
from extender.logs import event
from extender.metrics import Metrics
from extender.ports import Clock, ClusterPorts, Fencing
from extender.settings import Settings, label_pairs

log = logging.getLogger(__name__)


def live_cluster(
    settings: Settings,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    cluster: Cluster,
    metrics: Metrics,
    fencing: Fencing,
) -> ClusterPorts:
    """Connect to the cluster of the kubeconfig or the pod; its changes are applied to *cluster*.

    Reads are always allowed. Writes need *fencing*, except those of the lease behind it.
    """
    schedulers, exempt = frozenset(settings.scheduler_name), frozenset(settings.exempt_namespace)
    client = ApiClient.load(settings.kubeconfig or None, metrics=PrometheusApiMetrics(metrics))
    for each in client.warnings:
        event(log, logging.WARNING, "credentials unprotected", why=each)
    pipeline = Pipeline(client, loop)
    # Separate connections: a thousand wake-ups must not delay a bind.
    wake_pipeline = Pipeline(client, loop, size=4)
    watch = Watch(
        client,
        cluster,
        clock,
        schedulers=schedulers,
        node_labels=label_pairs(settings.node_selector),
        exempt=exempt,
    )
    evictor = ApiEvictor(client, fencing=fencing)
    status = ApiStatusWriter(client, fencing=fencing)
    events = ApiEventWriter(client, metrics, fencing=fencing)

    def is_exempt(raw: RawPod) -> bool:
        pod, _ = to_pod(raw, schedulers=schedulers, exempt=exempt)
        return pod.ours and pod.is_exempt

    def start() -> None:
        watch.start()
        events.start()

    def stop() -> None:
        for each in (watch, events, evictor, status):
            each.stop()

    return ClusterPorts(
        binder=ApiBinder(
            pipeline,
            now=clock.monotonic,
            started_in=cluster.reserved_in_queue,
            fencing=fencing,
            is_exempt=is_exempt,
            knows_node=lambda name: cluster.node(name) is not None,
        ),
        groups=GroupReads(pipeline),
        waker=ApiWaker(
            wake_pipeline, per_s=500, burst=1000, fencing=fencing, identity=cluster.liveness.me
        ),
        evictor=evictor,
        undo=ApiPartialBindRollback(pipeline, evictor, fencing=fencing),
        status=status,
        events=events,
        leases=ApiLeases(client, settings),
        labels=ApiLeaderLabels(client, settings, fencing) if settings.pod_name else None,
        reviewer=TokenReviewer(client, settings.ops_audience) if settings.needs_token else None,
        refused=client.missing_permissions.recent,
        unprotected=lambda: client.warnings,
        start=start,
        stop=stop,
        aclose=lambda: asyncio.gather(pipeline.aclose(), wake_pipeline.aclose()),
    )

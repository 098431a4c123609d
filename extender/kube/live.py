"""The implementation of the ports for a real cluster: watches and writes of the API server."""

from __future__ import annotations

import asyncio
import logging

from extender.cache.cluster import Cluster
from extender.kube.client import ApiClient, FencedClient
from extender.kube.decode.pods import to_pod
from extender.kube.metrics import PrometheusApiMetrics
from extender.kube.pipeline import Pipeline
from extender.kube.read import GroupReads, TokenReviewer
from extender.kube.reflector import Watch
from extender.kube.write.bind import ApiBinder
from extender.kube.write.evict import ApiEvictor, ApiPartialBindRollback
from extender.kube.write.leader import ApiLeaderLabels, ApiLeases
from extender.kube.write.status import ApiEventWriter, ApiStatusWriter
from extender.kube.write.wake import ApiWaker
from extender.logs import event
from extender.metrics import Metrics
from extender.model.pod import Pod
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
    client = ApiClient.load(settings.kubeconfig or None)
    client.metrics = PrometheusApiMetrics(metrics)
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
    fenced = FencedClient(client, fencing)
    evictor = ApiEvictor(fenced, fencing=fencing)
    status = ApiStatusWriter(fenced, fencing=fencing)
    events = ApiEventWriter(fenced, metrics, fencing=fencing)

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
            is_exempt=lambda raw: _is_exempt(to_pod(raw, schedulers=schedulers, exempt=exempt)[0]),
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


def _is_exempt(pod: Pod) -> bool:
    return pod.ours and pod.is_exempt

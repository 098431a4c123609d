"""The real cluster behind our ports: watched, and acted upon through the API server."""

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
    mandate: Fencing,
) -> ClusterPorts:
    """Reach the cluster of the kubeconfig or the pod; *cluster* hears what changes there.

    Reading is free; nothing is written but behind the *mandate*, and the lease that it stands on.
    """
    schedulers, exempt = frozenset(settings.scheduler_name), frozenset(settings.exempt_namespace)
    access = ApiClient.load(settings.kubeconfig or None)
    access.metrics = PrometheusApiMetrics(metrics)
    for each in access.warnings:
        event(log, logging.WARNING, "credentials unprotected", why=each)
    pipeline = Pipeline(access, loop)
    # Connections of its own: a thousand wake-ups must not stand in front of a bind.
    wake_ups = Pipeline(access, loop, size=4)
    watches = Watch(
        access,
        cluster,
        clock,
        schedulers=schedulers,
        node_labels=label_pairs(settings.node_selector),
        exempt=exempt,
    )
    acting = FencedClient(access, mandate)
    evictor = ApiEvictor(acting, mandate=mandate)
    status = ApiStatusWriter(acting, mandate=mandate)
    announcer = ApiEventWriter(acting, metrics, mandate=mandate)

    def start() -> None:
        watches.start()
        announcer.start()

    def stop() -> None:
        for each in (watches, announcer, evictor, status):
            each.stop()

    return ClusterPorts(
        binder=ApiBinder(
            pipeline,
            now=clock.monotonic,
            started_in=cluster.reserved_in_queue,
            mandate=mandate,
            is_exempt=lambda raw: _is_exempt(to_pod(raw, schedulers=schedulers, exempt=exempt)[0]),
            knows_node=lambda name: cluster.node(name) is not None,
        ),
        groups=GroupReads(pipeline),
        waker=ApiWaker(wake_ups, per_s=500, burst=1000, mandate=mandate, me=cluster.hearing.me),
        evictor=evictor,
        undo=ApiPartialBindRollback(pipeline, evictor, mandate=mandate),
        status=status,
        events=announcer,
        leases=ApiLeases(access, settings),
        labels=ApiLeaderLabels(access, settings, mandate) if settings.pod_name else None,
        reviewer=TokenReviewer(access, settings.ops_audience) if settings.asks_readers else None,
        refused=access.missing_rights.recent,
        unprotected=lambda: access.warnings,
        start=start,
        stop=stop,
        aclose=lambda: asyncio.gather(pipeline.aclose(), wake_ups.aclose()),
    )


def _is_exempt(pod: Pod) -> bool:
    return pod.ours and pod.is_exempt

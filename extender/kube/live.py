"""The real cluster behind our ports: watched, and acted upon through the API server."""

from __future__ import annotations

import asyncio
import logging

from extender.cache.cluster import Cluster
from extender.kube.client import Access, ActingAccess
from extender.kube.decode.pods import to_pod
from extender.kube.metrics import ApiTally
from extender.kube.pipeline import Pipeline
from extender.kube.read import ApiReviewer, LiveGroups
from extender.kube.reflector import Watches
from extender.kube.write.bind import PipelinedBinder
from extender.kube.write.evict import ApiEvictor, CautiousUndo
from extender.kube.write.leader import ApiLeases, ApiSigns
from extender.kube.write.status import ApiAnnouncer, ApiStatusWriter
from extender.kube.write.wake import PipelinedWaker
from extender.logs import event
from extender.metrics import Metrics
from extender.model.pod import Pod
from extender.ports import Clock, ClusterPorts, Mandate
from extender.settings import Settings, label_pairs

log = logging.getLogger(__name__)


def live_cluster(
    settings: Settings,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    cluster: Cluster,
    metrics: Metrics,
    mandate: Mandate,
) -> ClusterPorts:
    """Reach the cluster of the kubeconfig or the pod; *cluster* hears what changes there.

    Reading is free; nothing is written but behind the *mandate*, and the lease that it stands on.
    """
    schedulers, exempt = frozenset(settings.scheduler_name), frozenset(settings.exempt_namespace)
    access = Access.load(settings.kubeconfig or None)
    access.tally = ApiTally(metrics)
    for each in access.warnings:
        event(log, logging.WARNING, "credentials unprotected", why=each)
    pipeline = Pipeline(access, loop)
    # Connections of its own: a thousand wake-ups must not stand in front of a bind.
    wake_ups = Pipeline(access, loop, size=4)
    watches = Watches(
        access,
        cluster,
        clock,
        schedulers=schedulers,
        node_labels=label_pairs(settings.node_selector),
        exempt=exempt,
    )
    acting = ActingAccess(access, mandate)
    evictor = ApiEvictor(acting, mandate=mandate)
    status = ApiStatusWriter(acting, mandate=mandate)
    announcer = ApiAnnouncer(acting, metrics, mandate=mandate)

    def start() -> None:
        watches.start()
        announcer.start()

    def stop() -> None:
        for each in (watches, announcer, evictor, status):
            each.stop()

    return ClusterPorts(
        binder=PipelinedBinder(
            pipeline,
            now=clock.monotonic,
            started_in=cluster.promised_in,
            mandate=mandate,
            is_exempt=lambda raw: _is_exempt(to_pod(raw, schedulers=schedulers, exempt=exempt)[0]),
            knows_node=lambda name: cluster.node(name) is not None,
        ),
        groups=LiveGroups(pipeline),
        waker=PipelinedWaker(
            wake_ups, per_s=500, burst=1000, mandate=mandate, me=cluster.hearing.me
        ),
        evictor=evictor,
        undo=CautiousUndo(pipeline, evictor, mandate=mandate),
        status=status,
        announcer=announcer,
        leases=ApiLeases(access, settings),
        signs=ApiSigns(access, settings, mandate) if settings.pod_name else None,
        reviewer=ApiReviewer(access, settings.ops_audience) if settings.asks_readers else None,
        refused=access.missing_rights.lately,
        unprotected=lambda: access.warnings,
        start=start,
        stop=stop,
        aclose=lambda: asyncio.gather(pipeline.aclose(), wake_ups.aclose()),
    )


def _is_exempt(pod: Pod) -> bool:
    return pod.ours and pod.is_exempt

"""What we list and watch: one row per resource."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from extender.cache.changes import Kind, SeenPod
from extender.kube.decode import objects, podgroups
from extender.kube.decode.decoder import Codec
from extender.kube.decode.limits import thin
from extender.kube.decode.pods import spoilt_pod, to_pod
from extender.kube.decode.raw import RawPod
from extender.model.gang import COSCHEDULING, VERSIONS


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection of the API server."""

    path: str
    codec: Codec[Any]
    #: It may not be installed (yet), or not any more.
    is_optional: bool = False
    #: We decide without it where we may not read it.
    is_dispensable: bool = False

    @property
    def name(self) -> str:
        """Name it as Kubernetes does: `pods`, `podgroups.scheduling.volcano.sh`."""
        kind, dialect = self.codec.kind.value, self.codec.dialect
        return f"{kind}.{dialect}" if dialect else kind


def resources(
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]] = frozenset(),
    exempt: frozenset[str] = frozenset(),
) -> tuple[Resource, ...]:
    """Give everything we follow; ours are pods of *schedulers*, and nodes with a label given.

    In *exempt* namespaces nothing is a gang.
    """
    return (
        Resource("/api/v1/nodes", nodes(node_labels)),
        Resource("/api/v1/pods", pods(schedulers, exempt)),
        Resource(
            "/api/v1/namespaces",
            Codec(
                Kind.NAMESPACE,
                objects.RawNamespace,
                objects.to_namespace,
                stand_in=objects.spoilt_namespace,
            ),
        ),
        Resource(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            Codec(Kind.PRIORITY_CLASS, objects.RawPriorityClass, objects.to_priority_class),
        ),
        Resource(
            "/apis/policy/v1/poddisruptionbudgets",
            Codec(Kind.BUDGET, objects.RawBudget, objects.to_budget),
        ),
        # Who may not read them decides without: the API server enforces them anyway.
        Resource(
            "/api/v1/resourcequotas",
            Codec(Kind.QUOTA, objects.RawQuota, objects.to_quota),
            is_optional=True,
            is_dispensable=True,
        ),
        *(_optional("podgroups", groups(dialect, exempt)) for dialect in VERSIONS),
        # Coscheduling has no queues.
        *(_optional("queues", queues(dialect)) for dialect in VERSIONS if dialect != COSCHEDULING),
    )


def nodes(labels: frozenset[tuple[str, str]] = frozenset()) -> Codec[objects.RawNode]:
    """Read nodes; those with one of *labels* are ours, or all when there is none."""
    return Codec(Kind.NODE, objects.RawNode, partial(objects.to_node, ours=labels))


def pods(schedulers: frozenset[str], exempt: frozenset[str] = frozenset()) -> Codec[RawPod]:
    """Read pods; those of *schedulers* are ours, and those of *exempt* namespaces never wait."""
    return Codec(
        Kind.POD,
        RawPod,
        lambda raw: SeenPod(*to_pod(raw, schedulers=schedulers, exempt=exempt)),
        stand_in=lambda meta, why: SeenPod(*spoilt_pod(meta, why)),
        thin=thin,
    )


def groups(dialect: str, exempt: frozenset[str] = frozenset()) -> Codec[podgroups.RawGroup]:
    """Read the PodGroups of *dialect*; those of *exempt* namespaces promise nothing."""
    return Codec(
        Kind.GROUP,
        podgroups.RawGroup,
        partial(podgroups.to_group, dialect=dialect, exempt=exempt),
        stand_in=partial(podgroups.spoilt_group, dialect=dialect),
        dialect=dialect,
    )


def queues(dialect: str) -> Codec[podgroups.RawQueue]:
    """Read the Queues of *dialect*."""
    return Codec(
        Kind.QUEUE,
        podgroups.RawQueue,
        podgroups.to_queue,
        stand_in=podgroups.spoilt_queue,
        dialect=dialect,
    )


def _optional(plural: str, codec: Codec[Any]) -> Resource:
    version = VERSIONS[codec.dialect]
    return Resource(f"/apis/{codec.dialect}/{version}/{plural}", codec, is_optional=True)

"""What we list and watch: one row per resource."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from extender.cache.changes import Kind, SeenPod
from extender.kube.decode import objects, podgroups
from extender.kube.decode.decoder import ObjectDecoder
from extender.kube.decode.limits import drop_labels
from extender.kube.decode.pods import placeholder_pod, to_pod
from extender.kube.decode.raw import RawPod
from extender.model.gang import COSCHEDULING, VERSIONS


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection of the API server."""

    path: str
    codec: ObjectDecoder[Any]
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
            ObjectDecoder(
                Kind.NAMESPACE,
                objects.RawNamespace,
                objects.to_namespace,
                stand_in=objects.unreadable_namespace,
            ),
        ),
        Resource(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            ObjectDecoder(Kind.PRIORITY_CLASS, objects.RawPriorityClass, objects.to_priority_class),
        ),
        Resource(
            "/apis/policy/v1/poddisruptionbudgets",
            ObjectDecoder(Kind.BUDGET, objects.RawBudget, objects.to_budget),
        ),
        # Who may not read them decides without: the API server enforces them anyway.
        Resource(
            "/api/v1/resourcequotas",
            ObjectDecoder(Kind.QUOTA, objects.RawQuota, objects.to_quota),
            is_optional=True,
            is_dispensable=True,
        ),
        *(_optional("podgroups", groups(dialect, exempt)) for dialect in VERSIONS),
        # Coscheduling has no queues.
        *(_optional("queues", queues(dialect)) for dialect in VERSIONS if dialect != COSCHEDULING),
    )


def nodes(labels: frozenset[tuple[str, str]] = frozenset()) -> ObjectDecoder[objects.RawNode]:
    """Read nodes; those with one of *labels* are ours, or all when there is none."""
    return ObjectDecoder(Kind.NODE, objects.RawNode, partial(objects.to_node, ours=labels))


def pods(schedulers: frozenset[str], exempt: frozenset[str] = frozenset()) -> ObjectDecoder[RawPod]:
    """Read pods; those of *schedulers* are ours, and those of *exempt* namespaces never wait."""
    return ObjectDecoder(
        Kind.POD,
        RawPod,
        lambda raw: SeenPod(*to_pod(raw, schedulers=schedulers, exempt=exempt)),
        stand_in=lambda meta, why: SeenPod(*placeholder_pod(meta, why)),
        thin=drop_labels,
    )


def groups(dialect: str, exempt: frozenset[str] = frozenset()) -> ObjectDecoder[podgroups.RawGroup]:
    """Read the PodGroups of *dialect*; those of *exempt* namespaces promise nothing."""
    return ObjectDecoder(
        Kind.GROUP,
        podgroups.RawGroup,
        partial(podgroups.to_group, dialect=dialect, exempt=exempt),
        stand_in=partial(podgroups.unreadable_group, dialect=dialect),
        dialect=dialect,
    )


def queues(dialect: str) -> ObjectDecoder[podgroups.RawQueue]:
    """Read the Queues of *dialect*."""
    return ObjectDecoder(
        Kind.QUEUE,
        podgroups.RawQueue,
        podgroups.to_queue,
        stand_in=podgroups.unreadable_queue,
        dialect=dialect,
    )


def _optional(plural: str, codec: ObjectDecoder[Any]) -> Resource:
    version = VERSIONS[codec.dialect]
    return Resource(f"/apis/{codec.dialect}/{version}/{plural}", codec, is_optional=True)

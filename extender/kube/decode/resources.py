"""The resources that we list and watch, each with its decoder."""

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
    decoder: ObjectDecoder[Any]
    #: It may not be installed.
    is_optional: bool = False
    #: The plan does without it if we have no permission to list it.
    is_dispensable: bool = False

    @property
    def name(self) -> str:
        """Return its name in Kubernetes: `pods`, `podgroups.scheduling.volcano.sh`."""
        kind, dialect = self.decoder.kind.value, self.decoder.dialect
        return f"{kind}.{dialect}" if dialect else kind


def resources(
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]] = frozenset(),
    exempt: frozenset[str] = frozenset(),
) -> tuple[Resource, ...]:
    """Return all watched resources.

    Ours are pods of *schedulers* and nodes with one of *node_labels*, or all nodes without any. In
    *exempt* namespaces no pod belongs to a gang.
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
                placeholder=objects.unreadable_namespace,
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
        # Without the permission the plan ignores them: the API server enforces them anyway.
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
    """Return the decoder of nodes; ours are those with one of *labels*, or all without any."""
    return ObjectDecoder(Kind.NODE, objects.RawNode, partial(objects.to_node, ours=labels))


def pods(schedulers: frozenset[str], exempt: frozenset[str] = frozenset()) -> ObjectDecoder[RawPod]:
    """Return the decoder of pods; ours are those of *schedulers*, except *exempt* namespaces."""
    return ObjectDecoder(
        Kind.POD,
        RawPod,
        lambda raw: SeenPod(*to_pod(raw, schedulers=schedulers, exempt=exempt)),
        placeholder=lambda meta, why: SeenPod(*placeholder_pod(meta, why)),
        trim=drop_labels,
    )


def groups(dialect: str, exempt: frozenset[str] = frozenset()) -> ObjectDecoder[podgroups.RawGroup]:
    """Return the decoder of PodGroups of *dialect*; in *exempt* namespaces they have no minimum."""
    return ObjectDecoder(
        Kind.GROUP,
        podgroups.RawGroup,
        partial(podgroups.to_group, dialect=dialect, exempt=exempt),
        placeholder=partial(podgroups.unreadable_group, dialect=dialect),
        dialect=dialect,
    )


def queues(dialect: str) -> ObjectDecoder[podgroups.RawQueue]:
    """Return the decoder of Queues of *dialect*."""
    return ObjectDecoder(
        Kind.QUEUE,
        podgroups.RawQueue,
        podgroups.to_queue,
        placeholder=podgroups.unreadable_queue,
        dialect=dialect,
    )


def _optional(plural: str, decoder: ObjectDecoder[Any]) -> Resource:
    version = VERSIONS[decoder.dialect]
    return Resource(f"/apis/{decoder.dialect}/{version}/{plural}", decoder, is_optional=True)

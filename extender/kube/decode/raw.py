"""Kubernetes objects in JSON, with only the fields that we use.

The decoder skips all other fields without building them: a pod of 4 KB costs a few microseconds,
and a 1 MB annotation costs no memory. A field may be null wherever Go or a person can write null.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from extender.model import annotations as names

Quantities: TypeAlias = dict[str, str | int | float]
Labels: TypeAlias = dict[str, str]
#: An annotation that may be absent. Null is an error instead: it must not bypass a policy.
Annotation: TypeAlias = str | UnsetType


#: A timestamp outside of these years is ignored: times computed from it could not be formatted.
_YEARS = range(1000, 9000)


def _seconds(timestamp: datetime | None) -> float:
    return timestamp.timestamp() if timestamp and timestamp.year in _YEARS else 0.0


class RawOwner(msgspec.Struct, frozen=True, gc=False):
    """One entry of ownerReferences."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class RawPodAnnotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations of a pod that we read."""

    gang: str | None = msgspec.field(name=names.GANG, default=None)
    min_member: str | None = msgspec.field(name=names.MIN_MEMBER, default=None)
    group: str | None = msgspec.field(name=names.GROUP_NAME, default=None)
    volcano_group: str | None = msgspec.field(name=names.VOLCANO_GROUP_NAME, default=None)
    pod_group: str | None = msgspec.field(name=names.COSCHEDULING_GROUP, default=None)
    sigs_group: str | None = msgspec.field(name=names.SIGS_GROUP, default=None)
    group_min: str | None = msgspec.field(name=names.GROUP_MIN_MEMBER, default=None)
    volcano_min: str | None = msgspec.field(name=names.VOLCANO_GROUP_MIN_MEMBER, default=None)
    sigs_min: str | None = msgspec.field(name=names.SIGS_MIN_AVAILABLE, default=None)
    queue: str | None = msgspec.field(name=names.QUEUE_NAME, default=None)
    started_in: str | None = msgspec.field(name=names.STARTED_IN, default=None)
    woken: str | None = msgspec.field(name=names.WOKEN, default=None)
    role: str | None = msgspec.field(name=names.ROLE, default=None)
    task_priority: str | None = msgspec.field(name=names.TASK_PRIORITY, default=None)
    preemptable: str | None = msgspec.field(name=names.PREEMPTABLE, default=None)
    duration: str | None = msgspec.field(name=names.DURATION, default=None)


class _Annotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations that we read; no string is created for the others, perhaps thousands."""

    def by_name(self) -> dict[str, str]:
        """Return the annotations that are set, under their full names."""
        fields = zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True)
        return {name: value for name, value in fields if value is not UNSET}


class RawGroupAnnotations(_Annotations, frozen=True, gc=False):
    """Annotations of a PodGroup."""

    duration: Annotation = msgspec.field(name=names.DURATION, default=UNSET)
    sla_waiting_time: Annotation = msgspec.field(name=names.SLA_WAITING_TIME, default=UNSET)
    short_sla_waiting_time: Annotation = msgspec.field(
        name=names.SHORT_SLA_WAITING_TIME, default=UNSET
    )
    revocable_zone: Annotation = msgspec.field(name=names.REVOCABLE_ZONE, default=UNSET)
    min_available: Annotation = msgspec.field(name=names.MIN_AVAILABLE, default=UNSET)
    max_unavailable: Annotation = msgspec.field(name=names.MAX_UNAVAILABLE, default=UNSET)
    cooldown: Annotation = msgspec.field(name=names.COOLDOWN, default=UNSET)


class RawQueueAnnotations(_Annotations, frozen=True, gc=False):
    """Annotations of a Queue."""

    lend: Annotation = msgspec.field(name=names.LEND_GUARANTEE, default=UNSET)
    path: Annotation = msgspec.field(name=names.HIERARCHY, default=UNSET)
    weights: Annotation = msgspec.field(name=names.HIERARCHY_WEIGHTS, default=UNSET)
    node_groups: Annotation = msgspec.field(name=names.NODE_GROUPS, default=UNSET)


class RawNamespaceAnnotations(_Annotations, frozen=True, gc=False):
    """Annotations of a Namespace."""

    queue: Annotation = msgspec.field(name=names.HOME_QUEUE, default=UNSET)
    queues: Annotation = msgspec.field(name=names.ALLOWED_QUEUES, default=UNSET)
    classes: Annotation = msgspec.field(name=names.ALLOWED_CLASSES, default=UNSET)
    limit: Annotation = msgspec.field(name=names.LIMIT, default=UNSET)
    guarantee: Annotation = msgspec.field(name=names.GUARANTEE, default=UNSET)


class RawMeta(msgspec.Struct, rename="camel", gc=False):
    """metadata of an object, without annotations and labels."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None

    @property
    def created(self) -> float:
        """The creation time in seconds since the epoch."""
        return _seconds(self.creation_timestamp)


class RawGroupMeta(RawMeta, rename="camel", gc=False):
    """metadata of a PodGroup."""

    annotations: RawGroupAnnotations | None = None


class RawQueueMeta(RawMeta, rename="camel", gc=False):
    """metadata of a Queue."""

    annotations: RawQueueAnnotations | None = None


class RawNamespaceMeta(RawMeta, rename="camel", gc=False):
    """metadata of a Namespace."""

    annotations: RawNamespaceAnnotations | None = None


class RawNodeMeta(RawMeta, rename="camel", gc=False):
    """metadata of a node."""

    labels: Labels | None = None


class RawPodMeta(RawMeta, rename="camel", gc=False):
    """metadata of a pod."""

    deletion_timestamp: datetime | None = None
    labels: Labels | None = None
    annotations: RawPodAnnotations | None = None
    owner_references: tuple[RawOwner, ...] | None = None

    @property
    def leaves_by(self) -> float:
        """The time by which a deleted pod is to be gone, its grace period included."""
        return _seconds(self.deletion_timestamp)


class RawResources(msgspec.Struct, frozen=True, gc=False):
    """resources of a container or of a whole pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class RawPort(msgspec.Struct, frozen=True, gc=False):
    """A port of a container; only the host port is read."""

    port: int | None = msgspec.field(name="hostPort", default=None)
    protocol: str | None = None
    ip: str | None = msgspec.field(name="hostIP", default=None)


class RawContainer(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A container or an init container."""

    name: str = ""
    resources: RawResources | None = None
    ports: tuple[RawPort, ...] | None = None
    restart_policy: str | None = None


class RawToleration(msgspec.Struct, frozen=True, gc=False):
    """One toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class RawRequirement(msgspec.Struct, frozen=True, gc=False):
    """One expression of a selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class RawNodeTerm(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One term of a node selector."""

    match_expressions: tuple[RawRequirement, ...] | None = None
    match_fields: tuple[RawRequirement, ...] | None = None


class RawNodeSelector(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Required node affinity."""

    node_selector_terms: tuple[RawNodeTerm, ...] | None = None


class RawPreferred(msgspec.Struct, frozen=True, gc=False):
    """One preference of node affinity."""

    weight: int = 0
    preference: RawNodeTerm | None = None


class RawNodeAffinity(msgspec.Struct, frozen=True, gc=False):
    """affinity.nodeAffinity."""

    required: RawNodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[RawPreferred, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class RawAffinity(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """affinity; only that to nodes, as kube-scheduler evaluates affinity between pods."""

    node_affinity: RawNodeAffinity | None = None


class RawGate(msgspec.Struct, frozen=True, gc=False):
    """One scheduling gate; only its presence counts."""


class RawSchedulingGroup(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The native group of a pod, from 1.36 on."""

    pod_group_name: str | None = None


class RawWorkloadRef(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The native group of a pod in 1.35."""

    name: str = ""
    pod_group: str = ""


class RawPodSpec(msgspec.Struct, rename="camel", gc=False):
    """spec of a pod."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    containers: tuple[RawContainer, ...] | None = None
    init_containers: tuple[RawContainer, ...] | None = None
    overhead: Quantities | None = None
    resources: RawResources | None = None
    node_selector: Labels | None = None
    affinity: RawAffinity | None = None
    tolerations: tuple[RawToleration, ...] | None = None
    scheduling_gates: tuple[RawGate, ...] | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    scheduling_group: RawSchedulingGroup | None = None
    workload_ref: RawWorkloadRef | None = None


class RawPodCondition(msgspec.Struct, frozen=True, gc=False):
    """One condition of a pod or a node."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class RawTerminated(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """How a container ended."""

    finished_at: datetime | None = None


class RawContainerState(msgspec.Struct, frozen=True, gc=False):
    """The state of a container; only its end is read."""

    terminated: RawTerminated | None = None


class RawContainerStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The resources that the kubelet has allocated; an in-place resize can differ from the spec."""

    name: str = ""
    allocated_resources: Quantities | None = None
    resources: RawResources | None = None
    state: RawContainerState | None = None


class RawPodStatus(msgspec.Struct, rename="camel", gc=False):
    """status of a pod."""

    phase: str | None = None
    start_time: datetime | None = None
    nominated_node_name: str | None = None
    conditions: tuple[RawPodCondition, ...] | None = None
    container_statuses: tuple[RawContainerStatus, ...] | None = None
    init_container_statuses: tuple[RawContainerStatus, ...] | None = None
    #: For the whole pod, from 1.36 on.
    allocated_resources: Quantities | None = None
    resources: RawResources | None = None
    #: Before 1.33, the state of a resize; later it is a condition.
    resize: str | None = None

    @property
    def began(self) -> float:
        """When the kubelet accepted the pod, in seconds since the epoch."""
        return _seconds(self.start_time)

    @property
    def ended(self) -> float:
        """When the last of its containers ended; 0 if none did."""
        ends = [
            _seconds(each.state.terminated.finished_at)
            for each in self.container_statuses or ()
            if each.state is not None and each.state.terminated is not None
        ]
        return max(ends, default=0.0)


class RawPod(msgspec.Struct, gc=False):
    """A Pod in Kubernetes' JSON."""

    metadata: RawPodMeta
    spec: RawPodSpec = msgspec.field(default_factory=RawPodSpec)
    status: RawPodStatus = msgspec.field(default_factory=RawPodStatus)

"""Kubernetes objects as they come over the wire, with only the fields we use.

Everything not named here is skipped by the decoder without being built: a pod of 4 KB costs a
few microseconds and a 1 MB annotation costs no memory. Fields may be null wherever Go or a
person can write null.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from extender.model.queue import ALLOWED_CLASSES, ALLOWED_QUEUES, GUARANTEE, HOME_QUEUE, LIMIT

Quantities: TypeAlias = dict[str, str | int | float]
Labels: TypeAlias = dict[str, str]
#: An annotation that may be left out. Null is not the same: nobody escapes a rule by it.
Written: TypeAlias = str | UnsetType


#: A moment of another year is none: what is counted from it would be in no year at all, and could
#: not be written.
_YEARS = range(1000, 9000)


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment and moment.year in _YEARS else 0.0


class RawOwner(msgspec.Struct, frozen=True, gc=False):
    """One entry of ownerReferences."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class RawPodAnnotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations of a pod that somebody reads."""

    gang: str | None = msgspec.field(name="gang-extender.io/gang", default=None)
    min_member: str | None = msgspec.field(name="gang-extender.io/min-member", default=None)
    group: str | None = msgspec.field(name="scheduling.k8s.io/group-name", default=None)
    volcano_group: str | None = msgspec.field(name="scheduling.volcano.sh/group-name", default=None)
    pod_group: str | None = msgspec.field(name="scheduling.x-k8s.io/pod-group", default=None)
    sigs_group: str | None = msgspec.field(
        name="pod-group.scheduling.sigs.k8s.io/name", default=None
    )
    group_min: str | None = msgspec.field(name="scheduling.k8s.io/group-min-member", default=None)
    volcano_min: str | None = msgspec.field(
        name="scheduling.volcano.sh/group-min-member", default=None
    )
    sigs_min: str | None = msgspec.field(
        name="pod-group.scheduling.sigs.k8s.io/min-available", default=None
    )
    queue: str | None = msgspec.field(name="scheduling.volcano.sh/queue-name", default=None)
    started_in: str | None = msgspec.field(name="gang-extender.io/started-in", default=None)
    woken: str | None = msgspec.field(name="gang-extender.io/woken", default=None)
    role: str | None = msgspec.field(name="volcano.sh/task-spec", default=None)
    task_priority: str | None = msgspec.field(name="volcano.sh/task-priority", default=None)
    preemptable: str | None = msgspec.field(name="volcano.sh/preemptable", default=None)
    duration: str | None = msgspec.field(name="gang-extender.io/duration", default=None)


class _Annotations(msgspec.Struct, frozen=True, gc=False):
    """Annotations that somebody reads; of the others, thousands perhaps, no string is made."""

    def by_name(self) -> dict[str, str]:
        """Give those that are written, under their whole names."""
        written = zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True)
        return {name: said for name, said in written if said is not UNSET}


class RawGroupAnnotations(_Annotations, frozen=True, gc=False):
    """Those of a PodGroup."""

    duration: Written = msgspec.field(name="gang-extender.io/duration", default=UNSET)
    patience: Written = msgspec.field(name="volcano.sh/sla-waiting-time", default=UNSET)
    plain_patience: Written = msgspec.field(name="sla-waiting-time", default=UNSET)
    revocable_zone: Written = msgspec.field(name="volcano.sh/revocable-zone", default=UNSET)
    min_available: Written = msgspec.field(name="volcano.sh/jdb-min-available", default=UNSET)
    max_unavailable: Written = msgspec.field(name="volcano.sh/jdb-max-unavailable", default=UNSET)
    cooldown: Written = msgspec.field(name="volcano.sh/cooldown-time", default=UNSET)


class RawQueueAnnotations(_Annotations, frozen=True, gc=False):
    """Those of a Queue."""

    lend: Written = msgspec.field(name="gang-extender.io/lend-guarantee", default=UNSET)
    path: Written = msgspec.field(name="volcano.sh/hierarchy", default=UNSET)
    weights: Written = msgspec.field(name="volcano.sh/hierarchy-weights", default=UNSET)
    node_groups: Written = msgspec.field(name="volcano.sh/nodegroup-resource-limits", default=UNSET)


class RawNamespaceAnnotations(_Annotations, frozen=True, gc=False):
    """Those of a Namespace."""

    queue: Written = msgspec.field(name=HOME_QUEUE, default=UNSET)
    queues: Written = msgspec.field(name=ALLOWED_QUEUES, default=UNSET)
    classes: Written = msgspec.field(name=ALLOWED_CLASSES, default=UNSET)
    limit: Written = msgspec.field(name=LIMIT, default=UNSET)
    guarantee: Written = msgspec.field(name=GUARANTEE, default=UNSET)


class _AnyMeta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None

    @property
    def created(self) -> float:
        """Give the creation time in seconds since the epoch."""
        return _seconds(self.creation_timestamp)


class RawMeta(_AnyMeta, rename="camel", gc=False):
    """metadata of what is asked neither for its annotations nor for its labels."""


class RawGroupMeta(_AnyMeta, rename="camel", gc=False):
    """metadata of a PodGroup."""

    annotations: RawGroupAnnotations | None = None


class RawQueueMeta(_AnyMeta, rename="camel", gc=False):
    """metadata of a Queue."""

    annotations: RawQueueAnnotations | None = None


class RawNamespaceMeta(_AnyMeta, rename="camel", gc=False):
    """metadata of a Namespace."""

    annotations: RawNamespaceAnnotations | None = None


class RawNodeMeta(_AnyMeta, rename="camel", gc=False):
    """metadata of a node."""

    labels: Labels | None = None


class RawPodMeta(_AnyMeta, rename="camel", gc=False):
    """metadata of a pod."""

    deletion_timestamp: datetime | None = None
    labels: Labels | None = None
    annotations: RawPodAnnotations | None = None
    owner_references: tuple[RawOwner, ...] | None = None

    @property
    def leaves_by(self) -> float:
        """Give when a deleted pod is to be gone; Kubernetes adds its grace to the deletion."""
        return _seconds(self.deletion_timestamp)


class RawResources(msgspec.Struct, frozen=True, gc=False):
    """resources of a container or of a whole pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class RawPort(msgspec.Struct, frozen=True, gc=False):
    """A port of a container, as far as it is one of the node."""

    port: int | None = msgspec.field(name="hostPort", default=None)
    protocol: str | None = None
    ip: str | None = msgspec.field(name="hostIP", default=None)


class RawContainer(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A container, plain or init."""

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
    """affinity; pods' affinity to pods is kube-scheduler's business."""

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
    """How far a container is; only its end is read."""

    terminated: RawTerminated | None = None


class RawContainerStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What the kubelet has given a container; a resize in place makes it differ from the spec."""

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
    #: Of the pod as a whole, from 1.36 on.
    allocated_resources: Quantities | None = None
    resources: RawResources | None = None
    #: Before 1.33, how far a resize is; later a condition says it.
    resize: str | None = None

    @property
    def began(self) -> float:
        """Give when the kubelet took it, in seconds since the epoch."""
        return _seconds(self.start_time)

    @property
    def ended(self) -> float:
        """Give when the last of its containers ended; 0 where none did."""
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

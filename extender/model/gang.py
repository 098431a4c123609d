"""Gangs: a PodGroup with its members at one moment, and the gang that a pod belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NewType

from extender.model.memo import Memo
from extender.model.pod import (
    ALLOCATED_SET,
    NO_LABELS,
    READY_SET,
    SCHEDULED_SET,
    Pod,
    PodUid,
    Status,
)
from extender.model.reason import Problem
from extender.model.resources import NOTHING, Resources, total

GangKey = NewType("GangKey", str)  # "namespace/name"
#: Separates the kind from the name in the name of an implicit PodGroup. No Kubernetes name
#: contains it, so the gang of the Job `train` (`job:train`) never equals the PodGroup `train`.
IMPLICIT = ":"


class Phase(Enum):
    """The phases that Volcano writes into the status of a PodGroup."""

    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


#: The phases of a gang of which no member has run yet.
UNSPECIFIED = frozenset({Phase.PENDING, Phase.INQUEUE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The gang that a pod names, or its implicit gang when it names none.

    An implicit gang has no object of its own. All pods of one controller (a Job, a ReplicaSet, a
    StatefulSet) form one, and a pod without a controller forms one by itself.
    """

    key: GangKey
    #: The pod requests to start together with others; False for an ordinary pod.
    named: bool = False
    #: The size of a gang whose pods declare it themselves, without a PodGroup.
    min_member: int | None = None
    #: A native scheduling.k8s.io group: kube-scheduler assembles it, this extender only counts it.
    native: bool = False
    #: The queue the pod names, for gangs without a PodGroup.
    queue: str = ""
    #: Why the pod cannot be used as it is (a sentence), empty when it can.
    problem: str = ""
    #: A note for the user (a sentence), mostly empty.
    remark: str = ""
    #: The part of the pod that exceeds what this extender reads (a phrase), mostly empty.
    excess: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A group of pods: at least *min_member* of them start together, or none starts."""

    namespace: str
    name: str
    min_member: int = 1
    uid: str = ""
    #: Minimum per role (minTaskMember).
    min_by_role: Mapping[str, int] = field(default_factory=dict)
    #: What enqueueing checks and reserves; None means "always enqueue".
    min_resources: Resources | None = None
    #: The part of it that counts in ResourceQuotas but not on nodes: `limits.cpu`, `count/pods`.
    min_limits: Resources = NOTHING
    #: As written; empty when the queue comes from the namespace.
    queue: str = ""
    priority_class: str = ""
    created: float = 0.0
    phase: Phase = Phase.PENDING
    #: The status has no phase, as with kube-batch, which enqueues every gang.
    is_phaseless: bool = False
    #: How long the gang runs, as its author declares, in seconds; 0 when not declared.
    lasts_s: float = 0.0
    #: Only the annotations that are read.
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    #: The API group of its CRD; empty for an implicit PodGroup.
    dialect: str = ""
    #: Why the object cannot be used (a sentence), empty when it can.
    problem: str = ""
    #: The parts of it that have no effect here (a sentence), empty when all have.
    remark: str = ""
    #: Its namespace is exempt, so the group has no effect.
    exempt: bool = False
    #: The part of it that exceeds what this extender reads (a phrase), mostly empty.
    excess: str = ""
    #: `namespace/name`; read very often, so it is computed once.
    key: GangKey = field(init=False, default=GangKey(""), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", GangKey(f"{self.namespace}/{self.name}"))

    @property
    def role_minima(self) -> dict[str, int]:
        """Return the minimum of each role, none where they add up to more than *min_member*.

        This is Volcano's rule: for such a group *min_member* alone counts.
        """
        if not self.min_by_role:
            return {}
        minima = {role: least for role, least in self.min_by_role.items() if least > 0}
        return minima if sum(minima.values()) <= self.min_member else {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Gang:
    """A PodGroup, its members sorted by uid, and its effective queue and priority."""

    group: PodGroup
    pods: tuple[Pod, ...] = ()
    #: The effective queue, after namespace policy; what an invalid gang occupies counts there too.
    queue: str = "default"
    priority: int = 0
    #: Why the gang cannot be scheduled at all; None when it can.
    problem: Problem | None = None
    #: A note for the user (a sentence), part of every verdict; mostly empty.
    remark: str = ""
    #: End of its backoff in seconds since the epoch; 0 without a backoff.
    backing_off_until: float = 0.0
    #: Caches results that depend on nothing but this gang, such as the order of its tasks.
    memo: Memo = field(default_factory=Memo, repr=False)

    @property
    def key(self) -> GangKey:
        """Return `namespace/name`."""
        return self.group.key

    @cached_property
    def by_status(self) -> Mapping[Status, tuple[Pod, ...]]:
        """Return the members by their status."""
        groups: dict[Status, list[Pod]] = {}
        for pod in self.pods:
            groups.setdefault(pod.status, []).append(pod)
        return {status: tuple(pods) for status, pods in groups.items()}

    @cached_property
    def waiting(self) -> tuple[Pod, ...]:
        """Return the pending members without scheduling gates."""
        return tuple(pod for pod in self.by_status.get(Status.PENDING, ()) if not pod.gated)

    @cached_property
    def schedulers(self) -> frozenset[str]:
        """Return the scheduler names of the waiting members."""
        return frozenset(pod.scheduler for pod in self.waiting)

    @cached_property
    def is_exempt(self) -> bool:
        """Return whether all waiting members are exempt: kube-scheduler alone places them."""
        return bool(self.waiting) and all(pod.is_exempt for pod in self.waiting)

    @cached_property
    def ready(self) -> int:
        """Count the members towards `minMember`: on a node, with a reservation, or succeeded."""
        return sum(len(pods) for status, pods in self.by_status.items() if status in READY_SET)

    @cached_property
    def placeholders(self) -> int:
        """Count the reservations for members that do not exist yet; *ready* counts them too."""
        return sum(pod.is_placeholder for pod in self.by_status.get(Status.ALLOCATED, ()))

    @cached_property
    def scheduled(self) -> int:
        """Count the members that are bound or running according to the API server."""
        return sum(len(pods) for status, pods in self.by_status.items() if status in SCHEDULED_SET)

    @cached_property
    def on_nodes(self) -> int:
        """Count the members that occupy a node or have a reservation on one."""
        return sum(len(pods) for status, pods in self.by_status.items() if status in ALLOCATED_SET)

    @cached_property
    def bound_or_done(self) -> int:
        """Count the members towards `minMember` without reservations: scheduled or succeeded."""
        return self.scheduled + len(self.by_status.get(Status.SUCCEEDED, ()))

    @cached_property
    def is_below_minimum(self) -> bool:
        """Return whether some members are scheduled, but too few; never for an invalid gang."""
        return (
            self.problem is None
            and self.scheduled > 0
            and self.bound_or_done < self.group.min_member
        )

    @cached_property
    def runs_since(self) -> float | None:
        """Return when the gang reached its minimum, by the times of its pods; None below it.

        Members that started later do not change it.
        """
        least = max(1, self.group.min_member)
        if not self.scheduled or self.bound_or_done < least:
            return None
        counted = SCHEDULED_SET | {Status.SUCCEEDED}
        starts = (max(pod.began, pod.created) for pod in self.pods if pod.status in counted)
        return sorted(starts)[least - 1]

    @cached_property
    def terminating(self) -> frozenset[PodUid]:
        """Return the scheduled members that carry the condition DisruptionTarget."""
        return frozenset(
            pod.uid for pod in self.pods if pod.terminating and pod.status in SCHEDULED_SET
        )

    @cached_property
    def allocated(self) -> Resources:
        """Return the sum of what its members occupy, without releasing ones."""
        return total(
            pod.requests
            for status, pods in self.by_status.items()
            if status in ALLOCATED_SET
            for pod in pods
        )

    @cached_property
    def pending(self) -> Resources:
        """Return the requests of its pending members, gated ones too.

        Nothing for an invalid or an exempt gang.
        """
        if self.problem is not None or self.is_exempt:
            return NOTHING
        return total(pod.requests for pod in self.by_status.get(Status.PENDING, ()))


VOLCANO = "scheduling.volcano.sh"
COSCHEDULING = "scheduling.x-k8s.io"
KUBE_BATCH = "scheduling.sigs.dev"
KUBE_BATCH_INCUBATOR = "scheduling.incubator.k8s.io"
#: Groups that kube-scheduler assembles itself; this extender counts them and admits them.
NATIVE = "scheduling.k8s.io"
#: No PodGroup object: an implicit PodGroup.
UNWRITTEN = ""
#: Of two objects with the same name, the one of the first API group here counts.
MOST_TRUSTED_FIRST = (VOLCANO, COSCHEDULING, KUBE_BATCH, KUBE_BATCH_INCUBATOR, UNWRITTEN)
#: PodGroups without a priority class of their own; the priority comes from their pods.
WITHOUT_PRIORITY = frozenset({COSCHEDULING, NATIVE, UNWRITTEN})
#: The version of each that is read and written.
VERSIONS = {
    VOLCANO: "v1beta1",
    COSCHEDULING: "v1alpha1",
    KUBE_BATCH: "v1alpha2",
    KUBE_BATCH_INCUBATOR: "v1alpha1",
}

"""Gangs: a PodGroup with its members at one moment, and which gang a pod belongs to."""

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
#: Separates a shadow's kind from its name; no Kubernetes name can contain it, so the gang of
#: the Job `train` (`job:train`) is never mistaken for the PodGroup `train`.
IMPLICIT = ":"


class Phase(Enum):
    """Volcano's words for the life of a PodGroup."""

    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


#: What is told of a gang of which no part has run in anybody's eyes.
UNSPECIFIED = frozenset({Phase.PENDING, Phase.INQUEUE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The gang a pod itself names, or the shadow gang it falls into when it names none.

    A shadow gang needs no object of its own: all pods of one controller (a Job, a ReplicaSet, a
    StatefulSet) are one, and a pod without a controller is one by itself.
    """

    key: GangKey
    #: The pod asks to be started together with others; False for an ordinary pod.
    named: bool = False
    #: The size of a gang that its pods declare themselves, without any PodGroup.
    min_member: int | None = None
    #: A native scheduling.k8s.io group: kube-scheduler assembles it, we only count it.
    native: bool = False
    #: The queue the pod names, for gangs without a PodGroup.
    queue: str = ""
    #: Why the pod cannot be used as it is (a sentence), empty when it can.
    problem: str = ""
    #: What else people should know of it (a sentence), mostly empty.
    remark: str = ""
    #: What of the pod is more than we read (a phrase), mostly empty.
    excess: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A promise: at least *min_member* pods run at once, or none of them starts."""

    namespace: str
    name: str
    min_member: int = 1
    uid: str = ""
    #: Minimum per role (minTaskMember).
    min_by_role: Mapping[str, int] = field(default_factory=dict)
    #: What enqueueing reserves; None means "always enqueue".
    min_resources: Resources | None = None
    #: What of it takes no room on a node but counts in quotas: `limits.cpu`, `count/pods`.
    min_limits: Resources = NOTHING
    #: As written; empty when the group leaves it to its namespace.
    queue: str = ""
    priority_class: str = ""
    created: float = 0.0
    phase: Phase = Phase.PENDING
    #: Nobody ever wrote a phase: kube-batch's way, which keeps no gang out of its queue.
    is_phaseless: bool = False
    #: For how long it will run, as its author says, in seconds; 0 when it does not say.
    lasts_s: float = 0.0
    #: Only the annotations somebody reads.
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    #: Which family of CRDs it was written in; empty for a shadow of pods without any.
    dialect: str = ""
    #: Why the object itself cannot be used (a sentence), empty when it can.
    problem: str = ""
    #: What of it has no effect here (a sentence), empty when all of it has.
    remark: str = ""
    #: Its namespace is exempt, so it promises nothing.
    exempt: bool = False
    #: What of it is more than we read (a phrase), mostly empty.
    excess: str = ""
    #: `namespace/name`; asked for all the time, so it is written once.
    key: GangKey = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", GangKey(f"{self.namespace}/{self.name}"))

    @property
    def role_minima(self) -> dict[str, int]:
        """Give the minimum of each role, none where they add up to more than *min_member*.

        Volcano's rule: such a group is held to *min_member* alone.
        """
        if not self.min_by_role:
            return {}
        minima = {role: least for role, least in self.min_by_role.items() if least > 0}
        return minima if sum(minima.values()) <= self.min_member else {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Gang:
    """A PodGroup, its members sorted by uid, and what the cluster's policy makes of it."""

    group: PodGroup
    pods: tuple[Pod, ...] = ()
    #: The queue it really belongs to, after namespace policy; what an invalid gang occupies counts
    #: there too.
    queue: str = "default"
    priority: int = 0
    #: Why it cannot be considered at all; None when it can.
    problem: Problem | None = None
    #: What else people should know of it (a sentence), told with every verdict; mostly empty.
    remark: str = ""
    #: Seconds since the epoch until which it must not be tried again; 0 when it may.
    backing_off_until: float = 0.0
    #: A place for answers that depend on nothing but this gang, such as the order of its tasks.
    memo: Memo = field(default_factory=Memo, repr=False)

    @property
    def key(self) -> GangKey:
        """Give `namespace/name`."""
        return self.group.key

    @cached_property
    def by_status(self) -> Mapping[Status, tuple[Pod, ...]]:
        """Group the members by how far they are."""
        groups: dict[Status, list[Pod]] = {}
        for pod in self.pods:
            groups.setdefault(pod.status, []).append(pod)
        return {status: tuple(pods) for status, pods in groups.items()}

    @cached_property
    def waiting(self) -> tuple[Pod, ...]:
        """Members that need a node and may be given one."""
        return tuple(pod for pod in self.by_status.get(Status.PENDING, ()) if not pod.gated)

    @cached_property
    def schedulers(self) -> frozenset[str]:
        """Name the schedulers that have to bring those who wait."""
        return frozenset(pod.scheduler for pod in self.waiting)

    @cached_property
    def is_exempt(self) -> bool:
        """Ask whether all who wait for a node wait for kube-scheduler alone."""
        return bool(self.waiting) and all(pod.is_exempt for pod in self.waiting)

    @cached_property
    def ready(self) -> int:
        """Count the members that stand for `minMember`: on a node, promised one, or succeeded."""
        return sum(len(pods) for status, pods in self.by_status.items() if status in READY_SET)

    @cached_property
    def placeholders(self) -> int:
        """Count the places kept for members that do not exist yet; *ready* counts them too."""
        return sum(pod.is_placeholder for pod in self.by_status.get(Status.ALLOCATED, ()))

    @cached_property
    def scheduled(self) -> int:
        """Count the members the API server shows on a node."""
        return sum(len(pods) for status, pods in self.by_status.items() if status in SCHEDULED_SET)

    @cached_property
    def on_nodes(self) -> int:
        """Count the members that occupy a node or were promised one."""
        return sum(len(pods) for status, pods in self.by_status.items() if status in ALLOCATED_SET)

    @cached_property
    def bound_or_done(self) -> int:
        """Count the members that stand for `minMember` without any promise: seated, or done."""
        return self.scheduled + len(self.by_status.get(Status.SUCCEEDED, ()))

    @cached_property
    def is_below_minimum(self) -> bool:
        """Ask whether some members run, but too few of them; an invalid gang waits for nobody."""
        return (
            self.problem is None
            and self.scheduled > 0
            and self.bound_or_done < self.group.min_member
        )

    @cached_property
    def runs_since(self) -> float | None:
        """Tell when the last member that it needs began, by what pods say; None while too few run.

        Who came after that makes it no younger.
        """
        least = max(1, self.group.min_member)
        if not self.scheduled or self.bound_or_done < least:
            return None
        firm = SCHEDULED_SET | {Status.SUCCEEDED}
        begun = (max(pod.began, pod.created) for pod in self.pods if pod.status in firm)
        return sorted(begun)[least - 1]

    @cached_property
    def has_terminating(self) -> frozenset[PodUid]:
        """Name the running members on which a scheduler wrote that they have to leave."""
        return frozenset(
            pod.uid for pod in self.pods if pod.terminating and pod.status in SCHEDULED_SET
        )

    @cached_property
    def allocated(self) -> Resources:
        """Add up what its members occupy (releasing ones not counted)."""
        return total(
            pod.requests
            for status, pods in self.by_status.items()
            if status in ALLOCATED_SET
            for pod in pods
        )

    @cached_property
    def pending(self) -> Resources:
        """Add up what its pending members ask for, gated ones too; an invalid gang gets nothing.

        Nor does an exempt one ask for anything.
        """
        if self.problem is not None or self.is_exempt:
            return NOTHING
        return total(pod.requests for pod in self.by_status.get(Status.PENDING, ()))


VOLCANO = "scheduling.volcano.sh"
COSCHEDULING = "scheduling.x-k8s.io"
KUBE_BATCH = "scheduling.sigs.dev"
KUBE_BATCH_INCUBATOR = "scheduling.incubator.k8s.io"
#: Groups that kube-scheduler assembles itself; we count them and let them pass.
NATIVE = "scheduling.k8s.io"
#: No object at all: pods make the gang by themselves.
UNWRITTEN = ""
#: Of two objects with the same name, the one that comes first here counts.
MOST_TRUSTED_FIRST = (VOLCANO, COSCHEDULING, KUBE_BATCH, KUBE_BATCH_INCUBATOR, UNWRITTEN)
#: Their PodGroups have no priority of their own; their pods speak for them.
WITHOUT_PRIORITY = frozenset({COSCHEDULING, NATIVE, UNWRITTEN})
#: The version of each in which we read and write.
VERSIONS = {
    VOLCANO: "v1beta1",
    COSCHEDULING: "v1alpha1",
    KUBE_BATCH: "v1alpha2",
    KUBE_BATCH_INCUBATOR: "v1alpha1",
}

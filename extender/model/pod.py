"""A pod: its identity, its requirements and its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import NewType

from extender.model.reason import Reason
from extender.model.resources import NOTHING, Resources

PodUid = NewType("PodUid", str)
#: Prefix of the uid of a placeholder for a pod that does not exist yet; no real uid has it.
PLACEHOLDER = "placeholder:"
#: Suffix of the message of kube-scheduler on a pod while the pod is woken. It makes the message
#: differ: otherwise kube-scheduler would not write its next message if that is the same.
WOKEN = " (kube-scheduler was called to look again)"
#: What kube-scheduler writes of a node without the capacity for a pod.
_LACKS_CAPACITY = ("Insufficient ", "Too many pods")
#: Prefixes of refusals of this extender inside messages of kube-scheduler.
_OWN_REASONS = tuple(f"{reason.value}:" for reason in Reason)
#: The pods that keep the cluster alive are here: always exempt.
SYSTEM_NAMESPACE = "kube-system"
_CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Status(Enum):
    """The status of a pod; ALLOCATED and BINDING exist only in this extender."""

    # Members are singletons. The hash of Enum is a slow Python function, and pods are many.
    __hash__ = object.__hash__

    PENDING = "Pending"
    ALLOCATED = "Allocated"  # it has a reservation on a node
    BINDING = "Binding"  # its bind waits, or is in flight, or is done and not yet observed
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


#: Occupies its node until it ends or is evicted.
ALLOCATED_SET = frozenset({Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING})
#: Counts towards `minMember`.
READY_SET = ALLOCATED_SET | {Status.SUCCEEDED}
#: Could still count towards `minMember`.
VALID_SET = READY_SET | {Status.PENDING}
#: Is on its node according to the API server: needs no reservation any more.
SCHEDULED_SET = frozenset({Status.BOUND, Status.RUNNING})
#: Uses capacity of its node.
OCCUPYING_SET = ALLOCATED_SET | {Status.RELEASING}
#: Will never need capacity again.
FINISHED_SET = frozenset({Status.SUCCEEDED, Status.FAILED})


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration; empty *key* with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a node selector term: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """All *labels* (matchExpressions) and *fields* (matchFields) must match; empty matches none."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node itself; *ip* 0.0.0.0 conflicts with every address."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # noqa: S104 (the wildcard address; nothing listens here)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The parts of a pod that decide which nodes it fits; identical pods share one.

    The decoder of pods interns shapes. So they compare by identity, and the nodes of a shape are
    computed once per shape.
    """

    requests: Resources = NOTHING
    selector: tuple[tuple[str, str], ...] = ()
    #: Required node affinity: any one term must match; None when there is no such rule.
    affinity: tuple[NodeTerm, ...] | None = None
    #: Preferred node affinity: (weight, term).
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod; *requests* of its shape include `pods: 1`."""

    uid: PodUid
    namespace: str
    name: str
    shape: Shape
    status: Status = Status.PENDING
    #: Its node or (ALLOCATED, BINDING) its reserved node; empty without one.
    node: str = ""
    role: str = ""
    #: The priority that the API server set.
    priority: int = 0
    #: A priority from an annotation, for the order within its gang alone.
    task_priority: int | None = None
    priority_class: str = ""
    #: Seconds since the epoch.
    created: float = 0.0
    #: When it terminates at the latest, if it was deleted (RELEASING); seconds since the epoch.
    leaves_by: float = 0.0
    #: Has scheduling gates: kube-scheduler does not schedule it.
    gated: bool = False
    preemptable: bool = True
    #: preemptionPolicy is not Never.
    may_preempt: bool = True
    #: Its scheduler uses this extender; the other pods only use capacity.
    ours: bool = True
    #: The name of its scheduler, if *ours*.
    scheduler: str = ""
    #: Its namespace is exempt (`--exempt-namespace`).
    exempt: bool = False
    #: status.nominatedNodeName.
    nominated: str = ""
    #: The queue in which it was bound, from its binding; empty without a node or when unknown.
    started_in: str = ""
    #: A scheduler is about to evict it and set the condition DisruptionTarget.
    terminating: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    #: How long it runs, as its author declares, in seconds; 0 when not declared. Unverified: no pod
    #: gets capacity because of it.
    lasts_s: float = 0.0
    #: The kubelet ends it after so many seconds (activeDeadlineSeconds); 0 without a deadline.
    deadline_s: float = 0.0
    #: The grace period after the deadline before it is killed; 0 without a deadline.
    grace_s: float = 0.0
    #: When it started on its node and when it ended, in seconds since the epoch; 0 before that.
    #: No part of equality: until its start is known, the planner uses its creation time.
    began: float = field(default=0.0, compare=False)
    ended: float = field(default=0.0, compare=False)
    #: The message of kube-scheduler when it last found no node (PodScheduled is False,
    #: Unschedulable). No decision depends on it, so it is no part of equality.
    refusal: str = field(default="", compare=False)
    #: The extender that woke it last; no decision depends on it either.
    woken_by: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Return `namespace/name` for messages; the code uses *uid*."""
        return f"{self.namespace}/{self.name}"

    @property
    def rank(self) -> int:
        """Return its priority among the members of its gang."""
        return self.priority if self.task_priority is None else self.task_priority

    @property
    def is_exempt(self) -> bool:
        """Return whether it is admitted at once and never evicted by this extender.

        Such a pod keeps the cluster alive, or its namespace is exempt.
        """
        return self.exempt or self.namespace == SYSTEM_NAMESPACE or self.priority_class in _CRITICAL

    @property
    def why_exempt(self) -> str:
        """Return why it is exempt (a phrase), empty when it is not."""
        if self.exempt or self.namespace == SYSTEM_NAMESPACE:
            return f"namespace {self.namespace} is exempt"
        return f"priority class {self.priority_class} is exempt" if self.is_exempt else ""

    @property
    def is_unmanaged(self) -> bool:
        """Return whether kube-scheduler alone decides: an exempt pod, or of another scheduler."""
        return not self.ours or self.is_exempt

    @property
    def is_placeholder(self) -> bool:
        """Return whether it stands for a pod that does not exist yet."""
        return self.uid.startswith(PLACEHOLDER)

    @property
    def requests(self) -> Resources:
        """Return its resource requests."""
        return self.shape.requests

    @property
    def most_s(self) -> float:
        """Return how long it can run at most; infinite without a deadline.

        The deadline of an existing pod can be shortened, but never extended.
        """
        return self.deadline_s + self.grace_s if self.deadline_s else inf

    @property
    def is_woken(self) -> bool:
        """Return whether its refusal is an old one with the mark of a wake-up."""
        return self.refusal.endswith(WOKEN)

    @property
    def fits_no_node(self) -> bool:
        """Return whether kube-scheduler itself found no node for it.

        A pod that this extender refused does not count: it is woken when it may start.
        """
        if self.status is not Status.PENDING or not self.refusal:
            return False
        return not any(reason in self.refusal for reason in _OWN_REASONS)

    @property
    def lacks_capacity(self) -> bool:
        """Return whether kube-scheduler found suitable nodes that only lack free capacity."""
        return self.fits_no_node and any(text in self.refusal for text in _LACKS_CAPACITY)

"""A pod as the plan sees it: who it is, what it needs, how far it is."""

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
#: Begins the uid of a place kept for a pod that does not exist yet; no real uid looks like it.
PLACEHOLDER = "placeholder:"
#: Ends what kube-scheduler said of a pod while it is called to say it again. Its next word, even
#: if it is the same, is written then: otherwise it writes nothing that is there already.
WOKEN = " (kube-scheduler was called to look again)"
#: How our own refusals begin inside kube-scheduler's words.
#: What kube-scheduler says of a node that has no room for a pod.
_NO_ROOM = ("Insufficient ", "Too many pods")
_OUR_WORDS = tuple(f"{reason.value}:" for reason in Reason)
#: Keeps the cluster itself alive: exempt whatever was set.
SYSTEM_NAMESPACE = "kube-system"
_CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Status(Enum):
    """How far a pod is; the first half of the words exists only between two sightings."""

    # Members are singletons; Enum's own hash is a Python function, and pods are many.
    __hash__ = object.__hash__

    PENDING = "Pending"
    PIPELINED = "Pipelined"  # a node is chosen, but its room is still being released
    ALLOCATED = "Allocated"  # a node is reserved by a ticket
    BINDING = "Binding"  # its bind is held, or on its way, or done and not yet seen
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


#: Occupies its node for good unless somebody evicts it.
ALLOCATED_SET = frozenset({Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING})
#: Counts towards `minMember`.
READY_SET = ALLOCATED_SET | {Status.SUCCEEDED}
#: Could still count towards `minMember`.
VALID_SET = READY_SET | {Status.PIPELINED, Status.PENDING}
#: Is in the API server's eyes on its node: no promise of ours is needed any more.
SCHEDULED_SET = frozenset({Status.BOUND, Status.RUNNING})
#: Takes up room on its node.
OCCUPYING_SET = ALLOCATED_SET | {Status.RELEASING}
#: Will never need room again.
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
    """All *labels* (matchExpressions) and *fields* (matchFields) must hold; empty matches none."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node itself; *ip* 0.0.0.0 clashes with every address."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # noqa: S104 (Kubernetes' word for any address; nothing listens here)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Everything about a pod that decides which nodes it fits; identical pods share one.

    Shapes are interned by whoever decodes pods, so they compare by identity and node questions
    can be answered once per shape.
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
    #: Where it is, or (ALLOCATED, BINDING) where it is about to be; empty when nowhere.
    node: str = ""
    role: str = ""
    #: As the API server admitted it.
    priority: int = 0
    #: What its author wrote instead, for the order within its gang alone.
    task_priority: int | None = None
    priority_class: str = ""
    #: Seconds since the epoch.
    created: float = 0.0
    #: When it is to be gone, if it was deleted (RELEASING); in the same seconds.
    leaves_by: float = 0.0
    #: Has scheduling gates: kube-scheduler will not look at it.
    gated: bool = False
    preemptable: bool = True
    #: preemptionPolicy is not Never.
    may_preempt: bool = True
    #: Its scheduler is one of ours; the others only use up room.
    ours: bool = True
    #: The name of that scheduler, if it is one of ours.
    scheduler: str = ""
    #: Its namespace was exempted (`--exempt-namespace`).
    exempt: bool = False
    #: status.nominatedNodeName.
    nominated: str = ""
    #: The queue it was bound in, as its binding says; empty without a node, or when nobody knows.
    started_in: str = ""
    #: A scheduler is about to make it leave its node, and has written so on it (DisruptionTarget).
    terminating: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    #: For how long it will run, as its author says, in seconds; 0 when it does not say. A claim:
    #: it gets nobody room.
    lasts_s: float = 0.0
    #: After so many seconds the kubelet ends it (activeDeadlineSeconds); 0 when it does not.
    deadline_s: float = 0.0
    #: For how long it may go on after that before it is killed; 0 where nobody ends it.
    grace_s: float = 0.0
    #: When it began on its node and when it ended, in seconds since the epoch; 0 while it did not.
    #: No part of equality: a plan goes by its creation until it hears of its beginning.
    began: float = field(default=0.0, compare=False)
    ended: float = field(default=0.0, compare=False)
    #: What kube-scheduler said when it last found no node (PodScheduled is False, Unschedulable).
    #: It decides nothing, so it is no part of equality.
    refusal: str = field(default="", compare=False)
    #: Which extender woke it last; decides nothing either.
    woken_by: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Give `namespace/name`, for people; the machine uses *uid*."""
        return f"{self.namespace}/{self.name}"

    @property
    def rank(self) -> int:
        """Its priority among the members of its gang."""
        return self.priority if self.task_priority is None else self.task_priority

    @property
    def is_exempt(self) -> bool:
        """Ask whether it waits for nobody and is never made to leave by us.

        It keeps the cluster itself alive, or its namespace was exempted.
        """
        return self.exempt or self.namespace == SYSTEM_NAMESPACE or self.priority_class in _CRITICAL

    @property
    def why_exempt(self) -> str:
        """Say why it is exempt (a phrase), empty when it is not."""
        if self.exempt or self.namespace == SYSTEM_NAMESPACE:
            return f"namespace {self.namespace} is exempt"
        return f"priority class {self.priority_class} is exempt" if self.is_exempt else ""

    @property
    def uses_no_resources(self) -> bool:
        """Ask whether where it goes is kube-scheduler's decision alone."""
        return not self.ours or self.is_exempt

    @property
    def is_placeholder(self) -> bool:
        """Ask whether it only keeps a place for a pod that is still to come."""
        return self.uid.startswith(PLACEHOLDER)

    @property
    def requests(self) -> Resources:
        """What it needs on its node."""
        return self.shape.requests

    @property
    def most_s(self) -> float:
        """For how long it can run, whatever its author does; endless where nobody ends it.

        A deadline can be shortened on a pod that exists, and never be lengthened.
        """
        return self.deadline_s + self.grace_s if self.deadline_s else inf

    @property
    def is_woken(self) -> bool:
        """Ask whether its refusal is an old one, with our mark that kube-scheduler was called."""
        return self.refusal.endswith(WOKEN)

    @property
    def fits_no_node(self) -> bool:
        """Ask whether kube-scheduler itself found no node for it.

        One that we refused is not lost: it is woken when its turn comes.
        """
        if self.status is not Status.PENDING or not self.refusal:
            return False
        return not any(word in self.refusal for word in _OUR_WORDS)

    @property
    def lacks_capacity(self) -> bool:
        """Ask whether kube-scheduler found nodes for it that are only full."""
        return self.fits_no_node and any(word in self.refusal for word in _NO_ROOM)

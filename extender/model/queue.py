"""Queues, namespaces and priority classes: what administrators, not tenants, define."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from extender.model.pod import NO_LABELS, SYSTEM_NAMESPACE
from extender.model.resources import CPU, MEMORY, NOTHING, Resources

DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"
#: The prefix of the priority classes that Kubernetes reserves for the cluster's own pods: the API
#: server refuses other classes with it.
SYSTEM_CLASSES = "system-"


class QueueState(Enum):
    """The state of a queue; only an open queue starts gangs."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A share of the cluster; resources that *capability* does not name are not limited."""

    name: str
    weight: int = 1
    capability: Resources = NOTHING
    guarantee: Resources = NOTHING
    #: Other queues may borrow its unused guarantee until the queue needs it.
    lends_guarantee: bool = False
    deserved: Resources = NOTHING
    priority: int = 0
    reclaimable: bool = True
    parent: str = ""
    state: QueueState = QueueState.OPEN
    created: float = 0.0
    uid: str = ""
    #: `volcano.sh/hierarchy` and `-weights`, for hierarchical DRF.
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    #: Why the queue cannot be used (a sentence), empty when it can.
    problem: str = ""
    #: Fields of it that have no effect here, each by its path.
    ignored_fields: tuple[str, ...] = ()

    @property
    def ceiling(self) -> Resources:
        """Return its capability; cpu and memory of zero mean that they are not limited."""
        return Resources(
            {name: a for name, a in self.capability.items() if a > 0 or name not in (CPU, MEMORY)}
        )

    @property
    def reserved(self) -> Resources:
        """Return what is reserved for the queue even while unused."""
        return NOTHING if self.lends_guarantee else self.guarantee


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceShare:
    """The limit and the guarantee of one namespace in one queue."""

    queue: str
    namespace: str
    #: Resources that it does not name are not limited; zero allows none at all.
    limit: Resources = NOTHING
    #: Reserved even while unused; a queue that lends its own guarantee does not lend this.
    guarantee: Resources = NOTHING

    @property
    def name(self) -> str:
        """Return its name in the accounting; no queue can have such a name."""
        return share_name(self.queue, self.namespace)


def share_text(queue: str, namespace: str) -> str:
    """Return the share of *namespace* in *queue* as a phrase."""
    return f"{namespace} in queue {queue}"


def share_name(queue: str, namespace: str) -> str:
    """Return the name of the share of *namespace* in *queue*."""
    return f"{queue}/{namespace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace with the policy that administrators wrote on it."""

    name: str
    uid: str = ""
    #: The queue of gangs that name none; empty when not set.
    queue: str = ""
    #: The queues that its gangs may use besides its home queue; None without a restriction.
    allowed: frozenset[str] | None = None
    #: The priority classes that its gangs may use; None when all but the system's own count, as
    #: far as the pods have them.
    classes: frozenset[str] | None = None
    #: Its limits and guarantees in single queues, by name of the queue.
    shares: tuple[NamespaceShare, ...] = ()
    #: Why no gang of the namespace may start (a sentence), empty when it may.
    problem: str = ""

    def allows(self, queue: str) -> bool:
        """Return whether the list of allowed queues includes *queue*."""
        return self.allowed is None or queue in self.allowed

    def ranks(self, priority_class: str) -> bool:
        """Return whether a PodGroup of the namespace may use *priority_class*.

        The system's own classes are for pods that keep the cluster alive. They count in the system
        namespace, or where administrators list them by name.
        """
        if self.classes is not None:
            return priority_class in self.classes
        return self.name == SYSTEM_NAMESPACE or not priority_class.startswith(SYSTEM_CLASSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A name for a priority."""

    name: str
    value: int = 0
    #: The class of pods that name none.
    is_default: bool = False
    #: preemptionPolicy is not Never.
    may_preempt: bool = True

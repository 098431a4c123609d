"""Queues, and what administrators, not tenants, may say of gangs: namespaces, priorities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from extender.model.pod import NO_LABELS
from extender.model.resources import NOTHING, Resources

DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"
#: Where the cluster's own pods live, and how the names of the priority classes begin that
#: Kubernetes keeps for them: nobody can create another such class.
SYSTEM_NAMESPACE = "kube-system"
SYSTEM_CLASSES = "system-"

#: Annotations of a Namespace, which only administrators can write.
HOME_QUEUE = "scheduling.volcano.sh/queue-name"
ALLOWED_QUEUES = "gang-extender.io/queues"
ALLOWED_CLASSES = "gang-extender.io/priority-classes"
LIMIT = "gang-extender.io/at-most"
GUARANTEE = "gang-extender.io/at-least"


class QueueState(Enum):
    """Only an open queue starts gangs."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A claim on the cluster; resources it does not name in *capability* are not limited."""

    name: str
    weight: int = 1
    capability: Resources = NOTHING
    guarantee: Resources = NOTHING
    #: Others may use what it leaves of its guarantee until it wants it back.
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
    #: Why it cannot be used (a sentence), empty when it can.
    problem: str = ""
    #: What is written in it and has no effect here, each as people would find it.
    ignored_fields: tuple[str, ...] = ()

    @property
    def reserved(self) -> Resources:
        """Give what is kept for it while it does not use it."""
        return NOTHING if self.lends_guarantee else self.guarantee


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceShare:
    """What one namespace may have of one queue, and what is kept for it there."""

    queue: str
    namespace: str
    #: At most; what it does not name is not limited, and zero is none at all.
    limit: Resources = NOTHING
    #: At least, used or not; a queue that lends its own guarantee does not lend this.
    guarantee: Resources = NOTHING

    @property
    def name(self) -> str:
        """Give the name under which it counts; no queue can be called so."""
        return share_name(self.queue, self.namespace)


def share_words(queue: str, namespace: str) -> str:
    """Say whose share of what it is."""
    return f"{namespace} in queue {queue}"


def share_name(queue: str, namespace: str) -> str:
    """Name what *namespace* has of *queue*."""
    return f"{queue}/{namespace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A tenant's place, with the policy its administrators wrote on it."""

    name: str
    uid: str = ""
    #: The queue of gangs that name none; empty when not said.
    queue: str = ""
    #: The queues its gangs may use, its home queue beside; None when nobody limits them.
    allowed: frozenset[str] | None = None
    #: The priority classes that count for its gangs; None when all but the system's own do, as far
    #: as their pods have them.
    classes: frozenset[str] | None = None
    #: What it may have of single queues, by name of the queue.
    shares: tuple[NamespaceShare, ...] = ()
    #: Why nothing of it may start (a sentence), empty when it may.
    problem: str = ""

    def allows(self, queue: str) -> bool:
        """Ask whether its list lets its gangs use *queue*."""
        return self.allowed is None or queue in self.allowed

    def ranks(self, priority_class: str) -> bool:
        """Ask whether a PodGroup here may have *priority_class*.

        The system's own classes are for what keeps the cluster alive: they count where that
        lives, or where administrators list them by name.
        """
        if self.classes is not None:
            return priority_class in self.classes
        return self.name == SYSTEM_NAMESPACE or not priority_class.startswith(SYSTEM_CLASSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A name for a priority."""

    name: str
    value: int = 0
    #: The one for those who name none.
    is_default: bool = False
    #: preemptionPolicy is not Never.
    may_preempt: bool = True

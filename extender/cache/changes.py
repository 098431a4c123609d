"""What can be heard of the cluster: the words in which watches, files and simulations speak.

A change carries a model object, never JSON. One source speaks for one kind (and, for PodGroups
and Queues, one dialect); what it replaces are its own objects only.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

from extender.model.gang import Membership, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.queue import Namespace, PriorityClass, Queue
from extender.model.snapshot import DisruptionBudget, Excess, ResourceQuota


class Kind(Enum):
    """The kinds of objects we follow; the value is Kubernetes' plural."""

    __hash__ = object.__hash__  # as with `Status`

    POD = "pods"
    NODE = "nodes"
    NAMESPACE = "namespaces"
    PRIORITY_CLASS = "priorityclasses"
    BUDGET = "poddisruptionbudgets"
    QUOTA = "resourcequotas"
    GROUP = "podgroups"
    QUEUE = "queues"


class SeenPod(msgspec.Struct, frozen=True):
    """A pod and the gang it belongs to."""

    pod: Pod
    membership: Membership


Item: TypeAlias = (
    SeenPod | Node | Namespace | PriorityClass | DisruptionBudget | ResourceQuota | PodGroup | Queue
)


class Upsert(msgspec.Struct, frozen=True):
    """An object is there, and this is all there is to it."""

    item: Item
    #: Which family of CRDs told us; a PodGroup knows its own.
    dialect: str = ""


class Delete(msgspec.Struct, frozen=True):
    """An object is gone: a pod by uid, the others by name or namespace/name."""

    kind: Kind
    key: str
    #: Who says so; None when it is gone in every dialect.
    dialect: str | None = None


Change: TypeAlias = Upsert | Delete


def kind_of(item: Item) -> Kind:
    """Name the kind of *item*."""
    return _KINDS[type(item)]


def key_of(item: Item) -> str:
    """Name *item* as a `Delete` of it would."""
    if isinstance(item, SeenPod):
        return item.pod.uid
    if isinstance(item, PodGroup | DisruptionBudget | ResourceQuota):
        return f"{item.namespace}/{item.name}"
    return item.name


def excess_of(item: Item) -> Excess | None:
    """Say in what *item* is larger than we read; None when it is not."""
    if isinstance(item, SeenPod):
        what, pod = item.membership.excess, item.pod
        return Excess(pod.namespace, "Pod", pod.name, what) if what else None
    if isinstance(item, PodGroup | DisruptionBudget) and item.excess:
        kind = "PodGroup" if isinstance(item, PodGroup) else "PodDisruptionBudget"
        return Excess(item.namespace, kind, item.name, item.excess)
    return None


_KINDS: dict[type, Kind] = {
    SeenPod: Kind.POD,
    Node: Kind.NODE,
    Namespace: Kind.NAMESPACE,
    PriorityClass: Kind.PRIORITY_CLASS,
    DisruptionBudget: Kind.BUDGET,
    ResourceQuota: Kind.QUOTA,
    PodGroup: Kind.GROUP,
    Queue: Kind.QUEUE,
}

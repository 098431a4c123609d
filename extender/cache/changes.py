"""Changes of the cluster, as watches, files and simulations report them, and the object stores.

A change carries a model object, never JSON. One source reports one kind (and, for PodGroups and
Queues, one dialect). A new list of a source replaces only the objects of that source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from extender.model.gang import MOST_TRUSTED_FIRST, GangKey, Membership, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid
from extender.model.queue import Namespace, PriorityClass, Queue
from extender.model.snapshot import DisruptionBudget, OverLimit, ResourceQuota


class Kind(Enum):
    """The kinds of objects the cache follows; the value is the plural name of the API."""

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
    """An object exists; *item* is its whole current state."""

    item: Item
    #: The dialect (family of CRDs) of the source; a PodGroup carries its own.
    dialect: str = ""


class Delete(msgspec.Struct, frozen=True):
    """An object is gone: a pod by uid, other objects by name or namespace/name."""

    kind: Kind
    key: str
    #: The dialect of the source; None when the object is gone in every dialect.
    dialect: str | None = None


Change: TypeAlias = Upsert | Delete


def kind_of(item: Item) -> Kind:
    """Return the kind of *item*."""
    return _KINDS[type(item)]


def key_of(item: Item) -> str:
    """Return the key of *item*, as in a `Delete` of it."""
    if isinstance(item, SeenPod):
        return item.pod.uid
    if isinstance(item, PodGroup | DisruptionBudget | ResourceQuota):
        return f"{item.namespace}/{item.name}"
    return item.name


def excess_of(item: Item) -> OverLimit | None:
    """Return which part of *item* exceeds a size limit; None when none does."""
    if isinstance(item, SeenPod):
        what, pod = item.membership.excess, item.pod
        return OverLimit(pod.namespace, "Pod", pod.name, what) if what else None
    if isinstance(item, PodGroup | DisruptionBudget) and item.excess:
        kind = "PodGroup" if isinstance(item, PodGroup) else "PodDisruptionBudget"
        return OverLimit(item.namespace, kind, item.name, item.excess)
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


log = logging.getLogger(__name__)
PodListener: TypeAlias = Callable[[PodUid, Pod | None], None]
GroupListener: TypeAlias = Callable[[GangKey, PodGroup | None], None]
NodeListener: TypeAlias = Callable[[str, Node | None], None]


@dataclass(slots=True)
class ChangeSet:
    """The effects of one change; None stands for a deleted object."""

    pods: list[tuple[PodUid, Pod | None]] = field(default_factory=list)
    groups: list[tuple[GangKey, PodGroup | None]] = field(default_factory=list)
    nodes: list[tuple[str, Node | None]] = field(default_factory=list)
    #: Whether the change may change the plan.
    changed: bool = False


class Listeners:
    """Called in the thread that applied the change, in the order of registration."""

    def __init__(self) -> None:
        self.change: list[Callable[[], None]] = []
        self.pod: list[PodListener] = []
        self.group: list[GroupListener] = []
        self.node: list[NodeListener] = []

    def notify(self, changes: ChangeSet) -> None:
        """Pass *changes* on; a listener that raises is logged, and the next one is called."""
        for uid, pod in changes.pods:
            for on_pod in self.pod:
                _call(on_pod, uid, pod)
        for key, group in changes.groups:
            for on_group in self.group:
                _call(on_group, key, group)
        for name, node in changes.nodes:
            for on_node in self.node:
                _call(on_node, name, node)
        if changes.changed:
            self.wake()

    def wake(self) -> None:
        """Notify the listeners that the plan may change."""
        for listener in self.change:
            _call(listener)


def _call(listener: Callable[..., None], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:
        # The cache must stay correct even if a listener fails.
        log.exception("a listener of the cache failed")


_RANK = {dialect: rank for rank, dialect in enumerate(MOST_TRUSTED_FIRST)}
Object = TypeVar("Object")
Contra = TypeVar("Contra", contravariant=True)
#: Called with the key, the previous object and the current one.
Effect: TypeAlias = Callable[[str, Object | None, Object | None, ChangeSet], None]


class StoreBackend(Protocol[Contra]):
    """The objects of one kind; one thread writes at a time."""

    def put(self, key: str, item: Contra, dialect: str, changes: ChangeSet) -> None:
        """Take in an object as it is now."""

    def drop(self, key: str, dialect: str | None, changes: ChangeSet) -> None:
        """Forget the object of *dialect* (None for all dialects)."""

    def keys(self, dialect: str | None) -> list[tuple[str, str]]:
        """Return the key and dialect of each object in *dialect* (None for all dialects)."""


class ObjectStore(Generic[Object]):
    """Objects by key, one per dialect; calls *effect* when the one in use changes."""

    def __init__(self, effect: Effect[Object]) -> None:
        self._effect = effect
        self._by_dialect: dict[str, dict[str, Object]] = {}
        self._chosen: dict[str, Object] = {}

    def get(self, key: str) -> Object | None:
        """Return the object in use; takes no lock."""
        return self._chosen.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._chosen

    def __iter__(self) -> Iterator[Object]:
        return iter(self._chosen.values())

    def keys(self, dialect: str | None) -> list[tuple[str, str]]:
        """Return the key and dialect of each object in *dialect* (None for all dialects)."""
        return [
            (key, each)
            for key, by_dialect in self._by_dialect.items()
            for each in by_dialect
            if dialect is None or each == dialect
        ]

    def put(self, key: str, item: Object, dialect: str, changes: ChangeSet) -> None:
        """Take in an object as it is now."""
        self._by_dialect.setdefault(key, {})[dialect] = item
        self._choose(key, changes)

    def drop(self, key: str, dialect: str | None, changes: ChangeSet) -> None:
        """Forget the object of *dialect* (None for all dialects)."""
        by_dialect = self._by_dialect.get(key, {})
        if dialect is None:
            by_dialect.clear()
        else:
            by_dialect.pop(dialect, None)
        if not by_dialect:
            self._by_dialect.pop(key, None)
        self._choose(key, changes)

    def _choose(self, key: str, changes: ChangeSet) -> None:
        by_dialect, old = self._by_dialect.get(key), self._chosen.get(key)
        if not by_dialect:
            if old is not None:
                del self._chosen[key]
                changes.changed = True
                self._effect(key, old, None, changes)
            return
        new = by_dialect[min(by_dialect, key=lambda dialect: _RANK.get(dialect, len(_RANK)))]
        if new != old:
            self._chosen[key] = new
            changes.changed = True
            self._effect(key, old, new, changes)


class OversizedObjects:
    """Objects that exceed a size limit, and in which part; one thread writes at a time."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], OverLimit] = {}
        self._sorted: tuple[OverLimit, ...] | None = ()

    def note(self, kind: str, key: str, excess: OverLimit | None) -> None:
        """Record the excess of an object; None when it is within the limits, or gone."""
        known = self._found.get((kind, key))
        if known == excess:
            return
        if excess is None:
            del self._found[kind, key]
        else:
            self._found[kind, key] = excess
        self._sorted = None

    def all(self) -> tuple[OverLimit, ...]:
        """Return all of them, sorted; the same tuple while nothing changes."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._found.values()))
        return self._sorted

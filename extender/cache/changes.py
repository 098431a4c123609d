"""What can be heard of the cluster: the words in which watches, files and simulations speak.

A change carries a model object, never JSON. One source speaks for one kind (and, for PodGroups
and Queues, one dialect); what it replaces are its own objects only.
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


def excess_of(item: Item) -> OverLimit | None:
    """Say in what *item* is larger than we read; None when it is not."""
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
    """What one change came to; None stands for gone."""

    pods: list[tuple[PodUid, Pod | None]] = field(default_factory=list)
    groups: list[tuple[GangKey, PodGroup | None]] = field(default_factory=list)
    nodes: list[tuple[str, Node | None]] = field(default_factory=list)
    #: There is something new to plan.
    changed: bool = False


class Listeners:
    """Called in the thread that brought the change, in the order in which they came."""

    def __init__(self) -> None:
        self.change: list[Callable[[], None]] = []
        self.pod: list[PodListener] = []
        self.group: list[GroupListener] = []
        self.node: list[NodeListener] = []

    def notify(self, news: ChangeSet) -> None:
        """Pass *news* on; a listener that fails is logged and keeps nobody else waiting."""
        for uid, pod in news.pods:
            for on_pod in self.pod:
                _call(on_pod, uid, pod)
        for key, group in news.groups:
            for on_group in self.group:
                _call(on_group, key, group)
        for name, node in news.nodes:
            for on_node in self.node:
                _call(on_node, name, node)
        if news.changed:
            self.wake()

    def wake(self) -> None:
        """Say that there is something new to plan."""
        for listener in self.change:
            _call(listener)


def _call(listener: Callable[..., None], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:
        # The mirror must stay true whatever becomes of those who look at it.
        log.exception("a listener of the mirror failed")


_RANK = {dialect: rank for rank, dialect in enumerate(MOST_TRUSTED_FIRST)}
Thing = TypeVar("Thing")
Contra = TypeVar("Contra", contravariant=True)
#: Told the key, the object that counted so far, and the one that counts now.
Effect: TypeAlias = Callable[[str, Thing | None, Thing | None, ChangeSet], None]


class StoreBackend(Protocol[Contra]):
    """The objects of one kind; one thread writes at a time."""

    def put(self, key: str, thing: Contra, dialect: str, news: ChangeSet) -> None:
        """Take in an object as it is now."""

    def drop(self, key: str, dialect: str | None, news: ChangeSet) -> None:
        """Forget what *dialect* (or anyone) told of an object."""

    def told(self, dialect: str | None) -> list[tuple[str, str]]:
        """Name everything told in *dialect* (or in any), each with its dialect."""


class ObjectStore(Generic[Thing]):
    """A store whose *effect* is told whenever the object that counts is another one."""

    def __init__(self, effect: Effect[Thing]) -> None:
        self._effect = effect
        self._told: dict[str, dict[str, Thing]] = {}
        self._chosen: dict[str, Thing] = {}

    def get(self, key: str) -> Thing | None:
        """Give the object that counts; takes no lock."""
        return self._chosen.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._chosen

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._chosen.values())

    def told(self, dialect: str | None) -> list[tuple[str, str]]:
        """Name everything told in *dialect* (or in any), each with its dialect."""
        return [
            (key, each)
            for key, told in self._told.items()
            for each in told
            if dialect is None or each == dialect
        ]

    def put(self, key: str, thing: Thing, dialect: str, news: ChangeSet) -> None:
        """Take in an object as it is now."""
        self._told.setdefault(key, {})[dialect] = thing
        self._choose(key, news)

    def drop(self, key: str, dialect: str | None, news: ChangeSet) -> None:
        """Forget what *dialect* (or anyone) told of an object."""
        told = self._told.get(key, {})
        if dialect is None:
            told.clear()
        else:
            told.pop(dialect, None)
        if not told:
            self._told.pop(key, None)
        self._choose(key, news)

    def _choose(self, key: str, news: ChangeSet) -> None:
        told, old = self._told.get(key), self._chosen.get(key)
        if not told:
            if old is not None:
                del self._chosen[key]
                news.changed = True
                self._effect(key, old, None, news)
            return
        new = told[min(told, key=lambda dialect: _RANK.get(dialect, len(_RANK)))]
        if new != old:
            self._chosen[key] = new
            news.changed = True
            self._effect(key, old, new, news)


class OversizedObjects:
    """Which objects are larger than we read, and in what; one thread writes at a time."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], OverLimit] = {}
        self._sorted: tuple[OverLimit, ...] | None = ()

    def note(self, kind: str, key: str, excess: OverLimit | None) -> None:
        """Hear how an object is now; None when it is not too large, or gone."""
        known = self._found.get((kind, key))
        if known == excess:
            return
        if excess is None:
            del self._found[kind, key]
        else:
            self._found[kind, key] = excess
        self._sorted = None

    def all(self) -> tuple[OverLimit, ...]:
        """Give them sorted; the same value while they are the same."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._found.values()))
        return self._sorted

"""Kubernetes objects as they are written, read into a snapshot, with errors that name the place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from extender.cache.changes import SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.cache.queue_policy import QueuePolicy
from extender.errors import InvalidInput, InvalidQuantity
from extender.kube.decode.decoder import ObjectDecoder, plain_error
from extender.kube.decode.resources import Resource, resources
from extender.model.gang import PodGroup
from extender.model.queue import Queue
from extender.model.resources import parse_quantity
from extender.model.snapshot import Snapshot
from extender.text import as_text, shown

#: Kinds that a cluster's state is read from, by Kubernetes' plural; others are passed over.
_KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "namespaces": "Namespace",
    "priorityclasses": "PriorityClass",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "resourcequotas": "ResourceQuota",
    "podgroups": "PodGroup",
    "queues": "Queue",
}
#: By API group and kind.
_Codecs: TypeAlias = Mapping[tuple[str, str], ObjectDecoder[Any]]
#: Where amounts stand, by kind; `*` goes through a list.
_AMOUNTS = {
    "Node": ("status.allocatable",),
    "PodGroup": ("spec.minResources",),
    "ResourceQuota": ("spec.hard", "status.hard", "status.used"),
    "Queue": ("spec.capability", "spec.deserved", "spec.guarantee.resource"),
    "Pod": tuple(
        f"spec.{path}"
        for path in (
            "containers.*.resources.requests",
            "containers.*.resources.limits",
            "initContainers.*.resources.requests",
            "initContainers.*.resources.limits",
            "resources.requests",
            "overhead",
        )
    ),
}


class Manifest(NamedTuple):
    """An object as it is written, and where."""

    place: str
    content: Mapping[str, Any]


@dataclass(slots=True)
class Objects:
    """What was written."""

    changes: list[Upsert] = field(default_factory=list)
    #: Kinds that were passed over, and how many of each.
    skipped: Counter[str] = field(default_factory=Counter)

    def snapshot(
        self,
        now: float | None = None,
        queues: QueuePolicy | None = None,
        *,
        budgets_are_gangs: bool = False,
    ) -> Snapshot:
        """Give the cluster as the objects describe it, by default when the newest was made."""
        moment = now if now is not None else max(map(_created, self.changes), default=0.0)
        cluster = Cluster(_Stopped(moment), queues, seen_s=0, budgets_are_gangs=budgets_are_gangs)
        for change in self.changes:
            cluster.apply(change)
        return cluster.snapshot(moment)


def manifests_of(document: Any, place: str) -> Iterator[Manifest]:
    """Give the objects of one document; *place* is named where one makes no sense."""
    for thing in _flat(document, place):
        yield Manifest(place, thing)


def decode(
    things: Iterable[Manifest],
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]] = frozenset(),
    exempt: frozenset[str] = frozenset(),
) -> Objects:
    """Read objects as the cluster would be told of them.

    Ours are pods of *schedulers* and, where there are any, nodes with one of *node_labels*. In
    *exempt* namespaces nothing is a gang.
    """
    codecs, found = _codecs(resources(schedulers, node_labels, exempt)), Objects()
    for place, thing in things:
        _read_one(thing, place, codecs, found)
    return found


def _codecs(followed: Iterable[Resource]) -> _Codecs:
    codecs = {}
    for resource in followed:
        group = resource.path.split("/")[2] if resource.path.startswith("/apis/") else ""
        codecs[group, _KINDS[resource.decoder.kind.value]] = resource.decoder
    return codecs


def _read_one(thing: Mapping[str, Any], path: str, codecs: _Codecs, found: Objects) -> None:
    kind, version = str(thing["kind"]), as_text(thing.get("apiVersion", ""))
    if kind not in _KINDS.values():
        found.skipped[kind] += 1
        return
    place = f"{path}: {kind} {_name(thing)}"
    _check_amounts(thing, place)
    codec = codecs.get((version.rpartition("/")[0], kind))
    if codec is None:
        found.skipped[f"{kind} of {version or None}"] += 1
        return
    try:
        # Through JSON, because that is what the codecs read; YAML's dates come out as Kubernetes'.
        data = msgspec.json.encode(_as_ready(thing) if kind == "Node" else thing)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{place}: cannot be JSON: {error}") from error
    try:
        found.changes.append(Upsert(codec.read(data), codec.dialect))
    except Exception as error:
        # Unlike a live one, an object that cannot be read can be mended first.
        raise InvalidInput(f"{place}: {plain_error(error)}") from error


def _as_ready(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take a node that somebody wrote by hand, without conditions, for a ready one."""
    status = node.get("status") or {}
    if not isinstance(status, Mapping):
        return node
    usual = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": status.get("capacity", {}),
    }
    return {**node, "status": {**usual, **status}}


def _flat(document: Any, path: str) -> Iterator[Mapping[str, Any]]:
    """Take lists apart, whatever they are called."""
    if document is None:
        return
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        raise InvalidInput(f"{path}: holds something that is no Kubernetes object: it has no kind")
    kind = document["kind"]
    items = document.get("items", "") or ()
    if not kind.endswith("List") or "items" not in document or not isinstance(items, Sequence):
        metadata = document.get("metadata")
        if not isinstance(metadata, Mapping):
            raise InvalidInput(f"{path}: {kind} without metadata is no Kubernetes object")
        if not isinstance(metadata.get("name"), str) or not metadata["name"]:
            raise InvalidInput(f"{path}: {kind}: metadata.name must be a text")
        yield document
        return
    usual = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "")}
    for item in items:
        yield from _flat({**usual, **item} if isinstance(item, Mapping) else item, path)


def _check_amounts(thing: Mapping[str, Any], place: str) -> None:
    for path in _AMOUNTS.get(str(thing["kind"]), ()):
        for where, amounts in _values_at(thing, path.split(".")):
            for name, text in amounts.items() if isinstance(amounts, Mapping) else ():
                try:
                    parse_quantity(text)
                except InvalidQuantity as error:
                    raise InvalidInput(f"{place}: {where}.{name}: {error}") from error
                except TypeError as error:  # a list, or a mapping
                    why = f"{shown(text)} is not a quantity"
                    raise InvalidInput(f"{place}: {where}.{name}: {why}") from error


def _values_at(thing: Any, path: Sequence[str], where: str = "") -> Iterator[tuple[str, Any]]:
    """Find what stands at *path*, with the way to it."""
    if not path:
        yield where, thing
    elif path[0] == "*":
        for number, each in enumerate(thing if isinstance(thing, list) else ()):
            yield from _values_at(each, path[1:], f"{where}[{number}]")
    elif isinstance(thing, Mapping) and path[0] in thing:
        yield from _values_at(thing[path[0]], path[1:], f"{where}.{path[0]}".lstrip("."))


def _name(thing: Mapping[str, Any]) -> str:
    metadata = thing["metadata"]
    name = str(metadata.get("name", "without a name"))
    return f"{as_text(metadata['namespace'])}/{name}" if metadata.get("namespace") else name


def _created(change: Upsert) -> float:
    item = change.item
    if isinstance(item, SeenPod):
        return item.pod.created
    return item.created if isinstance(item, PodGroup | Queue) else 0.0


class _Stopped:
    """A clock that stands still."""

    def __init__(self, moment: float) -> None:
        self.now = self.monotonic = lambda: moment

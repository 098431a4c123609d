"""Manifests of Kubernetes objects, decoded into a snapshot, with errors that name the place."""

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

#: The kinds that are decoded, by their plural name; others are skipped.
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
#: The paths of amounts by kind; `*` iterates over a list.
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
    """A manifest and its place."""

    place: str
    content: Mapping[str, Any]


@dataclass(slots=True)
class Objects:
    """Decoded objects."""

    changes: list[Upsert] = field(default_factory=list)
    #: The number of skipped objects by kind.
    skipped: Counter[str] = field(default_factory=Counter)

    def snapshot(
        self,
        now: float | None = None,
        queues: QueuePolicy | None = None,
        *,
        budgets_are_gangs: bool = False,
    ) -> Snapshot:
        """Return the snapshot of the objects, by default at the creation of the newest."""
        moment = now if now is not None else max(map(_created, self.changes), default=0.0)
        cluster = Cluster(_Stopped(moment), queues, seen_s=0, budgets_are_gangs=budgets_are_gangs)
        for change in self.changes:
            cluster.apply(change)
        return cluster.snapshot(moment)


def manifests_of(document: Any, place: str) -> Iterator[Manifest]:
    """Yield the objects of one document; errors name *place*."""
    for manifest in _flat(document, place):
        yield Manifest(place, manifest)


def decode(
    manifests: Iterable[Manifest],
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]] = frozenset(),
    exempt: frozenset[str] = frozenset(),
) -> Objects:
    """Decode manifests as watches do.

    Ours are pods of *schedulers* and, if there are any, nodes with one of *node_labels*. In
    *exempt* namespaces no pod belongs to a gang.
    """
    codecs, found = _codecs(resources(schedulers, node_labels, exempt)), Objects()
    for place, manifest in manifests:
        _read_one(manifest, place, codecs, found)
    return found


def _codecs(followed: Iterable[Resource]) -> _Codecs:
    codecs = {}
    for resource in followed:
        group = resource.path.split("/")[2] if resource.path.startswith("/apis/") else ""
        codecs[group, _KINDS[resource.decoder.kind.value]] = resource.decoder
    return codecs


def _read_one(manifest: Mapping[str, Any], path: str, codecs: _Codecs, found: Objects) -> None:
    kind, version = str(manifest["kind"]), as_text(manifest.get("apiVersion", ""))
    if kind not in _KINDS.values():
        found.skipped[kind] += 1
        return
    place = f"{path}: {kind} {_name(manifest)}"
    _check_amounts(manifest, place)
    codec = codecs.get((version.rpartition("/")[0], kind))
    if codec is None:
        found.skipped[f"{kind} of {version or None}"] += 1
        return
    try:
        # The decoders read JSON. YAML dates get the form of Kubernetes in it.
        data = msgspec.json.encode(_as_ready(manifest) if kind == "Node" else manifest)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{place}: cannot be JSON: {error}") from error
    try:
        found.changes.append(Upsert(codec.read(data), codec.dialect))
    except Exception as error:
        # Unlike a live object, an invalid manifest can be corrected first.
        raise InvalidInput(f"{place}: {plain_error(error)}") from error


def _as_ready(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Complete a hand-written node without conditions to a ready one."""
    status = node.get("status") or {}
    if not isinstance(status, Mapping):
        return node
    usual = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": status.get("capacity", {}),
    }
    return {**node, "status": {**usual, **status}}


def _flat(document: Any, path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the items of lists of any kind."""
    if document is None:
        return
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        raise InvalidInput(f"{path}: has something that is not a Kubernetes object: it has no kind")
    kind = document["kind"]
    items = document.get("items", "") or ()
    if not kind.endswith("List") or "items" not in document or not isinstance(items, Sequence):
        metadata = document.get("metadata")
        if not isinstance(metadata, Mapping):
            raise InvalidInput(f"{path}: {kind} without metadata is not a Kubernetes object")
        if not isinstance(metadata.get("name"), str) or not metadata["name"]:
            raise InvalidInput(f"{path}: {kind}: metadata.name must be a text")
        yield document
        return
    usual = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "")}
    for item in items:
        yield from _flat({**usual, **item} if isinstance(item, Mapping) else item, path)


def _check_amounts(manifest: Mapping[str, Any], place: str) -> None:
    for path in _AMOUNTS.get(str(manifest["kind"]), ()):
        for where, amounts in _values_at(manifest, path.split(".")):
            for name, text in amounts.items() if isinstance(amounts, Mapping) else ():
                try:
                    parse_quantity(text)
                except InvalidQuantity as error:
                    raise InvalidInput(f"{place}: {where}.{name}: {error}") from error
                except TypeError as error:  # a list, or a mapping
                    why = f"{shown(text)} is not a quantity"
                    raise InvalidInput(f"{place}: {where}.{name}: {why}") from error


def _values_at(manifest: Any, path: Sequence[str], where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values at *path*, each with its full path."""
    if not path:
        yield where, manifest
    elif path[0] == "*":
        for number, each in enumerate(manifest if isinstance(manifest, list) else ()):
            yield from _values_at(each, path[1:], f"{where}[{number}]")
    elif isinstance(manifest, Mapping) and path[0] in manifest:
        yield from _values_at(manifest[path[0]], path[1:], f"{where}.{path[0]}".lstrip("."))


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    name = str(metadata.get("name", "without a name"))
    return f"{as_text(metadata['namespace'])}/{name}" if metadata.get("namespace") else name


def _created(change: Upsert) -> float:
    item = change.item
    if isinstance(item, SeenPod):
        return item.pod.created
    return item.created if isinstance(item, PodGroup | Queue) else 0.0


class _Stopped:
    """A clock that does not advance."""

    def __init__(self, moment: float) -> None:
        self.now = self.monotonic = lambda: moment

"""Saved objects, as `kubectl get -o yaml` writes them and people edit them, read like live ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from extender.cache.changes import Item, Upsert
from extender.errors import BadInput
from extender.kube.decode.codec import Codec, plain
from extender.kube.decode.watched import resources

_KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "namespaces": "Namespace",
    "priorityclasses": "PriorityClass",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "podgroups": "PodGroup",
    "queues": "Queue",
}


class Saved:
    """Reads parsed documents; pods of *schedulers* are ours."""

    def __init__(self, schedulers: frozenset[str]) -> None:
        self._codecs: dict[tuple[str, str], Codec[Any]] = {}
        for resource in resources(schedulers):
            group = resource.path.split("/")[2] if resource.path.startswith("/apis/") else ""
            self._codecs[group, _KINDS[resource.codec.kind.value]] = resource.codec

    def changes(self, document: object) -> Iterator[Upsert]:
        """Read one document: an object, a list of them, or a kind we have no use for."""
        if document is None:
            return
        if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
            raise BadInput("a document has no kind; each must be a Kubernetes object or a List")
        kind, version = document["kind"], str(document.get("apiVersion", ""))
        if kind.endswith("List") and "items" in document:
            for item in document["items"] or ():
                whole = {"kind": kind.removesuffix("List"), "apiVersion": version}
                yield from self.changes({**whole, **item} if isinstance(item, Mapping) else item)
            return
        codec = self._codecs.get((version.rpartition("/")[0], kind))
        if codec is not None:
            yield Upsert(_read(codec, document), codec.dialect)


def _read(codec: Codec[Any], document: Mapping[Any, Any]) -> Item:
    """Read *document*; unlike a live one, an object that cannot be read can be mended first."""
    data = _encode(document)
    try:
        return codec.read(data)
    except Exception as error:
        raise BadInput(plain(error)) from error


def _encode(document: Mapping[Any, Any]) -> bytes:
    # Through JSON, because that is what the codecs read; YAML's dates come out as Kubernetes'.
    try:
        return msgspec.json.encode(document)
    except (TypeError, ValueError) as error:
        name = document.get("metadata")
        raise BadInput(f"{document.get('kind')} {name}: cannot be JSON: {error}") from error

"""Reads saved Kubernetes objects from files and directories, with errors that name the place."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from extender import yaml_loader
from extender.cache.changes import Kind, kind_of
from extender.cli.output import count
from extender.errors import InvalidInput
from extender.model.gang import IMPLICIT, Gang, Phase, PodGroup
from extender.model.queue import Namespace, PriorityClass
from extender.model.snapshot import Snapshot
from extender.planner.plan import Plan
from extender.planner.policy import Policy
from extender.whatif.manifests import Manifest, Objects, decode, manifests_of

#: The suffixes of the files that are read from a directory.
_SUFFIXES = (".json", ".yaml", ".yml")
_CHUNK = 1 << 20
#: A hundred thousand pods are about a gigabyte of YAML.
_MAX_BYTES = 2 << 30


def read(
    paths: Sequence[str],
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]] = frozenset(),
    exempt: frozenset[str] = frozenset(),
) -> Objects:
    """Read files of saved objects, or directories of them; `-` is standard input.

    Pods of *schedulers* are scheduled by the extender, and nodes with one of *node_labels*, where
    there are any, managed by it. In *exempt* namespaces no pod is in a gang.
    """
    return decode(read_manifests(paths), schedulers, node_labels, exempt)


def read_manifests(paths: Sequence[str], max_bytes: int = _MAX_BYTES) -> Iterator[Manifest]:
    """Yield the objects of files, as they are written there."""
    for path in chain.from_iterable(map(_files, paths)):
        for document in _documents(path, max_bytes):
            yield from manifests_of(document, path)


def _files(path: str) -> list[str]:
    """Return the files of a directory by name, or the file itself."""
    if path == "-" or not _is_folder(path):
        return [path]
    found = [each for each in sorted(Path(path).iterdir()) if each.suffix in _SUFFIXES]
    if not found:
        raise InvalidInput(f"{path}: has no file that ends in {', '.join(_SUFFIXES)}")
    return [str(each) for each in found]


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # opening it reports the reason, such as a name of thousands of characters
        return False


def _documents(path: str, max_bytes: int) -> Iterator[Any]:
    text = _text(path, max_bytes)
    if text.lstrip().startswith("{"):
        # `kubectl -o json` decodes twenty times faster; a text that is not JSON may still be YAML.
        with suppress(msgspec.DecodeError, RecursionError):
            yield msgspec.json.decode(text)
            return
    try:
        yield from yaml_loader.load_all(text, yaml_loader.SAVED)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: neither YAML nor JSON: {error}") from error


def _text(path: str, max_bytes: int) -> str:
    """Read a text up to *max_bytes*; raise for a binary file."""
    content = bytearray()
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                content += chunk
                if len(content) > max_bytes:
                    raise InvalidInput(f"{path}: is larger than any cluster, {max_bytes} bytes")
                if b"\0" in chunk:
                    raise InvalidInput(f"{path}: is not text in UTF-8")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not text in UTF-8") from error


#: The plugin that reads quotas.
_NEEDS_QUOTAS = "resourcequota"
#: The limit of names in a sentence.
_MAX_NAMES = 5


def missing(
    found: Objects,
    snapshot: Snapshot,
    plan: Plan,
    policy: Policy,
    *,
    budgets_are_gangs: bool = False,
) -> Iterator[str]:
    """Yield each kind that *found* lacks and that could change *plan*, with its effect."""
    items = [change.item for change in found.changes]
    kinds = {kind_of(item) for item in items}
    if snapshot.gangs and Kind.NODE not in kinds:
        yield "Nodes: without them nothing can start"
    known = {item.name for item in items if isinstance(item, Namespace)}
    if unknown := {gang.group.namespace for gang in snapshot.gangs.values()} - known:
        yield f"Namespaces ({_names(unknown)}): they set which queues their gangs use"
    classes = {item.name for item in items if isinstance(item, PriorityClass)}
    named = {item.priority_class for item in items if isinstance(item, PodGroup)}
    if unknown := named - classes - {""}:
        yield f"PriorityClasses ({_names(unknown)}): PodGroups name them and count as without one"
    if budgets_are_gangs and Kind.BUDGET not in kinds:
        where = {gang.group.namespace for gang in snapshot.gangs.values() if _has_no_group(gang)}
        if where:
            yield f"PodDisruptionBudgets ({_names(where)}): they make gangs of pods without a group"
    elif plan.evictions and Kind.BUDGET not in kinds:
        number = len(plan.evictions)
        evicted = f"{count(number, 'pod')} {'is' if number == 1 else 'are'} to be evicted"
        yield f"PodDisruptionBudgets: {evicted}, and a budget could forbid it"
    if Kind.QUOTA not in kinds and _NEEDS_QUOTAS in policy.plugins:
        states = snapshot.gangs.values()
        if unknown := {gang.group.namespace for gang in states if _needs_quotas(gang)}:
            effect = "gangs there create pods that a quota might not admit"
            yield f"ResourceQuotas ({_names(unknown)}): {effect}"


def _has_no_group(gang: Gang) -> bool:
    """Return whether the pods of *gang* name no group."""
    return IMPLICIT in gang.group.name and gang.group.min_member == 1


def _needs_quotas(gang: Gang) -> bool:
    """Return whether *gang* requests resources, is not enqueued, and lacks pods."""
    group = gang.group
    is_pending = gang.problem is None and group.phase is Phase.PENDING
    return is_pending and group.min_resources is not None and len(gang.pods) < group.min_member


def _names(names: set[str]) -> str:
    ordered = sorted(names)
    more = [f"{len(ordered) - _MAX_NAMES} more"] if len(ordered) > _MAX_NAMES else []
    return ", ".join([*ordered[:_MAX_NAMES], *more])

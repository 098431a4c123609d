"""Saved Kubernetes objects, read from files and folders, with errors that name the place."""

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
from extender.whatif.manifests import Manifest, Objects, decoded, manifests_of

#: Of a folder, files that end so are read.
_SUFFIXES = (".json", ".yaml", ".yml")
_CHUNK = 1 << 20
#: A hundred thousand pods are about a gigabyte of YAML.
_MOST_BYTES = 2 << 30


def read(
    paths: Sequence[str],
    schedulers: frozenset[str],
    node_labels: frozenset[tuple[str, str]] = frozenset(),
    exempt: frozenset[str] = frozenset(),
) -> Objects:
    """Read files of saved objects, or folders of them, `-` being standard input.

    Ours are pods of *schedulers* and, where there are any, nodes with one of *node_labels*. In
    *exempt* namespaces nothing is a gang.
    """
    return decoded(written_in(paths), schedulers, node_labels, exempt)


def written_in(paths: Sequence[str], most_bytes: int = _MOST_BYTES) -> Iterator[Manifest]:
    """Give what files hold, object by object and as it is written there."""
    for path in chain.from_iterable(map(_files, paths)):
        for document in _documents(path, most_bytes):
            yield from manifests_of(document, path)


def _files(path: str) -> list[str]:
    """Give the files of a folder, by name; a file is itself."""
    if path == "-" or not _is_folder(path):
        return [path]
    found = [each for each in sorted(Path(path).iterdir()) if each.suffix in _SUFFIXES]
    if not found:
        raise InvalidInput(f"{path}: holds no file that ends in {', '.join(_SUFFIXES)}")
    return [str(each) for each in found]


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # whoever opens it will say what is wrong: a name of thousands of letters
        return False


def _documents(path: str, most_bytes: int) -> Iterator[Any]:
    text = _text(path, most_bytes)
    if text.lstrip().startswith("{"):
        # `kubectl -o json`, read twenty times faster; what is no JSON may still be YAML.
        with suppress(msgspec.DecodeError, RecursionError):
            yield msgspec.json.decode(text)
            return
    try:
        yield from yaml_loader.load_all(text, yaml_loader.SAVED)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: neither YAML nor JSON: {error}") from error


def _text(path: str, most_bytes: int) -> str:
    """Read all of it, but not of something that never ends, nor of what is no text."""
    content = bytearray()
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                content += chunk
                if len(content) > most_bytes:
                    raise InvalidInput(f"{path}: is larger than any cluster, {most_bytes} bytes")
                if b"\0" in chunk:
                    raise InvalidInput(f"{path}: is not text in UTF-8")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not text in UTF-8") from error


#: The plugin that looks at quotas.
_NEEDS_QUOTAS = "resourcequota"
#: So many names are given.
_NAMED = 5


def missing(
    found: Objects,
    snapshot: Snapshot,
    plan: Plan,
    policy: Policy,
    *,
    budgets_are_gangs: bool = False,
) -> Iterator[str]:
    """Name each kind that *found* lacks and that could change *plan*, with what it would do."""
    items = [change.item for change in found.changes]
    kinds = {kind_of(item) for item in items}
    if snapshot.gangs and Kind.NODE not in kinds:
        yield "Nodes: without them nothing can start"
    known = {item.name for item in items if isinstance(item, Namespace)}
    if unknown := {gang.group.namespace for gang in snapshot.gangs.values()} - known:
        yield f"Namespaces ({_names(unknown)}): they say which queues their gangs use"
    classes = {item.name for item in items if isinstance(item, PriorityClass)}
    asked = {item.priority_class for item in items if isinstance(item, PodGroup)}
    if unknown := asked - classes - {""}:
        yield f"PriorityClasses ({_names(unknown)}): PodGroups name them and count as without one"
    if budgets_are_gangs and Kind.BUDGET not in kinds:
        where = {gang.group.namespace for gang in snapshot.gangs.values() if _names_none(gang)}
        if where:
            yield f"PodDisruptionBudgets ({_names(where)}): they make gangs of pods without a group"
    elif plan.evictions and Kind.BUDGET not in kinds:
        number = len(plan.evictions)
        who = f"{count(number, 'pod')} {'is' if number == 1 else 'are'} asked to leave"
        yield f"PodDisruptionBudgets: {who}, and a budget could forbid it"
    if Kind.QUOTA not in kinds and _NEEDS_QUOTAS in policy.plugins:
        states = snapshot.gangs.values()
        if unknown := {gang.group.namespace for gang in states if _is_judged_by_quotas(gang)}:
            what = "gangs there create pods that a quota might not admit"
            yield f"ResourceQuotas ({_names(unknown)}): {what}"


def _names_none(gang: Gang) -> bool:
    """Ask whether the pods of *gang* name no group."""
    return IMPLICIT in gang.group.name and gang.group.min_member == 1


def _is_judged_by_quotas(gang: Gang) -> bool:
    """Ask whether *gang* says what it needs, is not let in yet, and has not all of its pods."""
    group = gang.group
    is_outside = gang.problem is None and group.phase is Phase.PENDING
    return is_outside and group.min_resources is not None and len(gang.pods) < group.min_member


def _names(names: set[str]) -> str:
    ordered = sorted(names)
    more = [f"{len(ordered) - _NAMED} more"] if len(ordered) > _NAMED else []
    return ", ".join([*ordered[:_NAMED], *more])

"""Every field that is read and every command is fuzzed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from extender.cli.main import main
from extender.kube.decode.resources import Resource, resources
from tests.nightly.fuzz.edges.plan import saved
from tests.nightly.fuzz.edges.terminal import COMMANDS
from tests.nightly.fuzz.objects import OBJECTS, Object

WATCHED = resources(frozenset({"gang-scheduler"}))
EACH = pytest.mark.parametrize("resource", WATCHED, ids=lambda each: each.name)


def plural(resource: Resource) -> str:
    """Return the name of a resource without its dialect."""
    return resource.name.partition(".")[0]


def read(kind: inspect.Type, place: str = "") -> Iterator[str]:
    """Yield the path of every field that a decoder reads."""
    match kind:
        case inspect.StructType(fields=fields):
            for field in fields:
                yield f"{place}.{field.encode_name}"
                yield from read(field.type, f"{place}.{field.encode_name}")
        case inspect.UnionType(types=types):
            for each in types:
                yield from read(each, place)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            yield from read(item, f"{place}[]")


def present(thing: Any, place: str = "") -> Iterator[str]:
    """Yield the path of every field of a document that is not null or empty."""
    if place and thing not in (None, [], {}):
        yield place
    if isinstance(thing, dict):
        for key, each in thing.items():
            yield from present(each, f"{place}.{key}")
    elif isinstance(thing, list):
        for each in thing:
            yield from present(each, f"{place}[]")


def missing(resource: Resource, objects: Iterable[Object]) -> set[str]:
    """Return the fields that are read and are in none of *objects*."""
    looked_for = {*read(inspect.type_info(resource.decoder.raw))}
    return looked_for - {place for each in objects for place in present(each)}


@EACH
def test_every_field_is_in_an_object(resource: Resource) -> None:
    assert missing(resource, OBJECTS[plural(resource)]) == set()


@EACH
def test_unchanged_objects_can_be_read(resource: Resource) -> None:
    for each in OBJECTS[plural(resource)]:
        resource.decoder.read(msgspec.json.encode(each))


def test_missing_field_is_detected() -> None:
    pods = next(each for each in WATCHED if each.name == "pods")

    assert missing(pods, OBJECTS["pods"][:1]) >= {
        ".metadata.deletionTimestamp",
        ".metadata.annotations.pod-group.scheduling.sigs.k8s.io/name",
        ".spec.schedulingGates",
        ".spec.schedulingGroup.podGroupName",
        ".status.containerStatuses[].state.terminated.finishedAt",
    }


def test_all_objects_are_input_of_plan() -> None:
    assert len(saved()) == sum(map(len, OBJECTS.values()))


def test_every_command_is_fuzzed() -> None:
    assert {words[0] for words in COMMANDS.values()} >= {*main.commands}

"""The documents that commands print, and those that the extender sends.

The manual's page of the command line lists their fields, and tests compare these with what the
commands print. `extender.web.documents` has the kinds that the extender sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Struct, to_builtins

from extender.cli.connect import Address, get_document, other_version
from extender.cli.options import ObjectName
from extender.errors import InvalidInput
from extender.model.gang import IMPLICIT
from extender.web import documents
from extender.web.documents import means

VERSION = "gang-extender.io/v1"
Document = dict[str, Any]


def document(fields: Struct) -> Document:
    """Return *fields* as a document; the kind is the name of their class."""
    return {"apiVersion": VERSION, "kind": type(fields).__name__, **to_builtins(fields)}


class CountedQueue(documents.Queue, kw_only=True):
    """A queue with the number of its gangs."""

    waiting: Annotated[int, means("how many of its gangs wait or are invalid")]
    running: Annotated[int, means("how many of its gangs run")]


class GangList(Struct):
    """The document of `gangs`."""

    items: Annotated[list[documents.Gang], means("the gangs that match")]


class QueueList(Struct):
    """The document of `queues`."""

    items: Annotated[list[CountedQueue], means("the queues, each with the number of its gangs")]


class Picture(documents.Plan, kw_only=True):
    """The document of `top`."""

    queues: Annotated[Sequence[CountedQueue], means("every queue")]


class Difference(Struct):
    """A decision that differs."""

    about: Annotated[str, means("the gang, pod, queue or node")]
    was: Annotated[str, means("the recorded decision; of a Plan, that without the hypothesis")]
    now: Annotated[str, means("the new decision; of a Plan, that with the hypothesis")]


class Plan(documents.Plan, kw_only=True):
    """The document of `plan`; it is printed without its generation, which means nothing there."""

    findings: Annotated[list[documents.Finding], means("the misconfigurations that were found")]
    asked: Annotated[Sequence[str], means("with `--live`: the gangs of `-f`, as NAMESPACE/NAME")]
    differences: Annotated[list[Difference], means("what the hypothesis changes for all others")]


class Replay(Struct, kw_only=True):
    """The document of `replay`."""

    cycles: Annotated[int, means("how many cycles were planned again")]
    skipped: Annotated[
        int, means("how many are not in the recording, because the disk was too slow")
    ]
    first: Annotated[str | None, means("the time of the first")]
    last: Annotated[str | None, means("the time of the last")]
    versions: Annotated[list[str], means("the versions that made the recording")]
    differs_at: Annotated[str | None, means("the time of the first cycle that differs, or null")]
    differs_in_cycle: Annotated[int | None, means("its number, from 1, or null")]
    differences: Annotated[list[Difference], means("its different decisions, ten at most")]
    remarks: Annotated[
        list[str], means("where the recording is truncated, and which of its files are missing")
    ]


class Problem(Struct, kw_only=True):
    """A problem or a hint of `doctor`."""

    name: Annotated[
        str,
        means(
            "one word of [the list](reasons.md#checks-of-the-doctor), or the reason of a finding"
        ),
    ]
    severity: Annotated[
        str, means("`problem`, or `hint`: nothing breaks, and the exit code is not changed")
    ]
    where: Annotated[str, means("the object or the file, and the place in it")]
    seen: Annotated[str, means("what was found there")]
    meaning: Annotated[str, means("what fails, and when")]
    mend: Annotated[str, means("the line or command that fixes it")]


class NotChecked(Struct):
    """What `doctor` could not check."""

    what: Annotated[str, means("it is")]
    why: Annotated[str, means("it could not be checked")]


class Diagnosis(Struct):
    """The document of `doctor`."""

    found: Annotated[list[Problem], means("the problems and hints, problems first")]
    not_checked: Annotated[
        list[NotChecked], means("what could not be checked; empty if everything was")
    ]


def plan(address: Address) -> documents.Plan:
    """Return the last plan."""
    found = get_document(address, documents.Plan, "plan")
    if found is None:
        raise other_version(address, "it has no plan")
    return found


def snapshot(address: Address) -> Document:
    """Return the cluster as the last plan saw it, as a List of objects."""
    found = get_document(address, dict[str, Any], "snapshot") or {}
    if found.get("kind") != "List" or not isinstance(found.get("items"), list):
        raise other_version(address, "it has no list of objects")
    if not found["items"]:
        raise InvalidInput(
            f"the extender at {address} has not planned yet, or has no objects; try again soon"
        )
    return found


def explanation(address: Address, target: ObjectName) -> documents.Explanation | None:
    """Return the explanation of a gang, or of a pod's gang; None if there is neither."""
    for kind, path in (("gang", "gangs"), ("pod", "pods")):
        if target.kind in ("", kind):
            found = get_document(
                address, documents.Explanation, path, target.namespace, target.name
            )
            if found is not None:
                return found
    return None


def gang_of_owner(address: Address, owner: ObjectName) -> ObjectName | None:
    """Return the only gang of a Job, or another controller, of this name; it has no PodGroup."""
    names = [
        each.name
        for each in plan(address).gangs
        if each.namespace == owner.namespace and each.name.partition(IMPLICIT)[2] == owner.name
    ]
    return replace(owner, name=names[0]) if len(names) == 1 else None

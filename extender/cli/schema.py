"""The documents that programs read: every kind, and the meaning of each field.

The manual's page of the command line is generated from these, and tests compare them with what the
commands print. A field stays and keeps its meaning while VERSION stays; fields may be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from extender.cli.connect import Address, get_document
from extender.cli.options import ObjectName
from extender.errors import InvalidInput

VERSION = "gang-extender.io/v1"
Document = dict[str, Any]
Fields = Mapping[str, str]
_AMOUNTS = "amounts by resource, written as Kubernetes does"
_GANG = {
    "namespace": "the namespace of its PodGroup",
    "name": "the name of its PodGroup; an implicit PodGroup has a colon in it",
    "queue": "the queue whose share it uses",
    "min_member": "how many members must start at once",
    "members": "how many exist",
    "phase": "`Pending`, `Inqueue` or `Running`, as in the PodGroup's status",
    "verdict": "`running`, `admitted`, `waiting`, `invalid` or `finished`",
    "reason": "one word of [the list](reasons.md)",
    "message": "the reason in a sentence",
    "since": "when it began to wait or to run, or finished, or null",
    "estimate": "when it will start, if that is known ([estimates](estimates.md)), or null",
    "share": "its dominant share, from 0 to 1",
    "placements": "nodes by pod, for pods that may be bound",
    "pipelined": "nodes by pod, for pods that wait for victims to terminate",
}
_QUEUE = {
    "name": "the name of the Queue",
    "weight": "its weight",
    "deserved": _AMOUNTS,
    "allocated": "used by it and the queues below it",
    "own": "used by itself, without the queues below it",
    "requested": "used or requested",
    "borrowed": "used beyond what it deserves",
    "share": "the part of what it deserves that it uses, by the resource it uses most of",
    "overused": "whether it uses all it deserves",
}
_SHARE = {
    "queue": "the queue",
    "namespace": "the namespace",
    "at_most": "its limit",
    "at_least": "its guarantee",
    "allocated": "what it uses",
    "requested": "what it uses or requests",
}
_EVICTION = {
    "pod": "NAMESPACE/NAME of the victim",
    "node": "where it runs",
    "action": "`preempt` or `reclaim`",
    "for": "the gang that gets the capacity",
}
_HELD = {"amounts": _AMOUNTS, "for": "what it is kept for", "why": "the reason in a few words"}
_FINDING = {
    "kind": "the kind of the object",
    "name": "the name of the object",
    "reason": "one word of [the list](reasons.md#of-findings)",
    "message": "what is wrong, and the remedy",
}
_PLAN = {
    "queues": "every queue",
    "shares": "what namespaces have of queues, where that is limited or guaranteed",
    "gangs": "every gang",
    "binds": "nodes by NAMESPACE/POD",
    "evictions": "the victims",
    "idle": "the unused capacity",
    "held": "what of that is kept for others, or is on cordoned nodes",
    "schedulers": "the liveness of the kube-scheduler behind each scheduler name",
}
_EXPLANATION = {
    **_GANG,
    "priority": "the value of its PriorityClass",
    "lasted_s": "the seconds since then, or null",
    "reason_since": "since when this reason holds, or null",
    "reason_lasted_s": "the seconds since then, or null",
    "members_by_status": "how many of its pods are Pending, Running and so on",
    "missing": "how many members do not exist yet",
    "queue_figures": "its queue, as in QueueList",
    "share_figures": "the share of its namespace in that queue, or null",
    "needs": "for the members of one shape: the requests of one, and how many nodes can have it",
    "needs_count": "how many shapes there are; only some are listed",
    "ahead": "what is ahead of it: gang, queue and why",
    "ahead_count": "how many gangs are ahead of it; only some are listed",
    "victims": "the pods that are evicted for it",
    "protected": "how many pods are not evicted, by reason",
    "held": "idle capacity that is kept for others",
    "schedulers": "the liveness of the kube-scheduler that should place it",
    "would_start_with": "changes with which it starts in a trial",
    "is_trying": "whether these are still being computed",
    "history": "its steps: at, cycle, reason and message",
}
#: The fields of each kind besides apiVersion and kind.
DOCUMENTS: Mapping[str, Fields] = MappingProxyType(
    {
        "Explanation": _EXPLANATION,
        "GangList": {"items": "the gangs that match"},
        "QueueList": {"items": "the queues, each with the number of its gangs"},
        "Picture": {"generation": "the number of the plan", **_PLAN},
        "Plan": {
            **_PLAN,
            "findings": "the misconfigurations that were found",
            "asked": "with `--live`: the gangs of `-f`, as NAMESPACE/NAME",
            "differences": "what the hypothesis changes for all others",
        },
        "Replay": {
            "cycles": "how many cycles were planned again",
            "skipped": "how many are not in the recording, because the disk was too slow",
            "first": "the time of the first",
            "last": "the time of the last",
            "versions": "the versions that made the recording",
            "differs_at": "the time of the first cycle that differs, or null",
            "differs_in_cycle": "its number, from 1, or null",
            "differences": "its different decisions, ten at most",
            "remarks": "where the recording is truncated, and which of its files are missing",
        },
        "Diagnosis": {
            "found": "the problems and hints, problems first",
            "not_checked": "what could not be checked; empty if everything was",
        },
    }
)
#: The fields of the items of those lists.
ITEMS: Mapping[str, Fields] = MappingProxyType(
    {
        "gang": _GANG,
        "queue": _QUEUE,
        "queue of a QueueList": {
            **_QUEUE,
            "waiting": "how many of its gangs wait or are invalid",
            "running": "how many of its gangs run",
        },
        "share": _SHARE,
        "eviction": _EVICTION,
        "held": _HELD,
        "finding": _FINDING,
        "difference": {
            "about": "the gang, pod, queue or node",
            "was": "the recorded decision; of a Plan, that without the hypothesis",
            "now": "the new decision; of a Plan, that with the hypothesis",
        },
        "problem": {
            "name": "one word of [the list](doctor.md#every-problem), or the reason of a finding",
            "severity": "`problem`, or `hint`: nothing breaks, and the exit code is not changed",
            "where": "the object or the file, and the place in it",
            "seen": "what was found there",
            "meaning": "what fails, and when",
            "mend": "the line or command that fixes it",
        },
        "not checked": {"what": "it is", "why": "it could not be checked"},
    }
)
#: Fields that came after the first release: an older extender does not send them.
ADDED_LATER = frozenset(
    {
        "since",
        "estimate",
        "reason_since",
        "reason_lasted_s",
        "schedulers",
        "is_trying",
        "needs_count",
    }
)


def document(kind: str, fields: Document) -> Document:
    """Return *fields* as a document with its kind."""
    return {"apiVersion": VERSION, "kind": kind, **fields}


Amounts: TypeAlias = dict[str, str]


class _SchedulerDocument(msgspec.Struct):
    name: str
    liveness: str
    message: str = ""
    problem: str = ""


class _HeldDocument(msgspec.Struct):
    amounts: Amounts
    why: str


class _EstimateDocument(msgspec.Struct):
    message: str
    not_counted: str


class _GangDocument(msgspec.Struct):
    namespace: str
    name: str
    queue: str
    min_member: int
    members: int
    phase: str
    verdict: str
    reason: str
    message: str
    share: float
    placements: dict[str, str]
    pipelined: dict[str, str]


class _QueueDocument(msgspec.Struct):
    name: str
    weight: float
    deserved: Amounts
    allocated: Amounts
    own: Amounts
    requested: Amounts
    borrowed: Amounts
    share: float
    overused: bool


class _ShareDocument(msgspec.Struct):
    queue: str
    namespace: str
    at_most: Amounts
    at_least: Amounts
    allocated: Amounts
    requested: Amounts


class _PlanDocument(msgspec.Struct):
    generation: int
    queues: list[_QueueDocument]
    shares: list[_ShareDocument]
    gangs: list[_GangDocument]
    idle: Amounts
    held: list[_HeldDocument]
    schedulers: list[_SchedulerDocument] = []


class _NearestDocument(msgspec.Struct):
    node: str
    lacks: Amounts


class _NeedDocument(msgspec.Struct):
    members: int
    each: Amounts
    slots: int
    empty_slots: int
    obstacles: dict[str, int]
    nearest: list[_NearestDocument]


class _AheadDocument(msgspec.Struct):
    gang: str
    queue: str
    why: str


class _VictimDocument(msgspec.Struct):
    pod: str
    node: str


class _LineDocument(msgspec.Struct):
    at: str
    reason: str
    message: str


class _ExplanationDocument(_GangDocument):
    priority: int
    lasted_s: float | None
    members_by_status: dict[str, int]
    queue_figures: _QueueDocument | None
    share_figures: _ShareDocument | None
    needs: list[_NeedDocument]
    ahead: list[_AheadDocument]
    ahead_count: int
    victims: list[_VictimDocument]
    protected: dict[str, int]
    held: list[_HeldDocument]
    would_start_with: list[str]
    history: list[_LineDocument]
    reason_lasted_s: float | None = None
    schedulers: list[_SchedulerDocument] = []
    estimate: _EstimateDocument | None = None
    is_trying: bool = False
    needs_count: int = 0


_STRUCTS: dict[str, type[msgspec.Struct]] = {
    "Picture": _PlanDocument,
    "Explanation": _ExplanationDocument,
}


def is_valid(kind: str, found: Any) -> bool:
    """Return whether *found* is a document of that kind which can be printed."""
    try:
        msgspec.convert(found, _STRUCTS[kind])
    except msgspec.ValidationError:
        return False
    return True


def plan(address: Address) -> Document:
    """Return the last plan."""
    status, found = get_document(address, "plan")
    if status != 200 or not _has(found, DOCUMENTS["Picture"]) or not is_valid("Picture", found):
        raise _not_an_extender(address)
    for key, part in (("gangs", "gang"), ("queues", "queue"), ("shares", "share")):
        if not _all_have(found[key], part):
            raise _not_an_extender(address)
    return dict(found)


def snapshot(address: Address) -> Document:
    """Return the cluster as the last plan saw it, as a List of objects."""
    status, found = get_document(address, "snapshot")
    is_list = isinstance(found, Mapping) and found.get("kind") == "List"
    if status != 200 or not is_list or not isinstance(found.get("items"), list):
        raise _not_an_extender(address)
    if not found["items"]:
        raise InvalidInput(
            f"the extender at {address} has not planned yet, or has no objects; try again soon"
        )
    return dict(found)


def explanation(address: Address, target: ObjectName) -> Document | None:
    """Return the explanation of a gang, or of a pod's gang; None if there is neither."""
    if target.kind != "pod":
        status, found = get_document(address, "gangs", target.namespace, target.name)
        if status == 200:
            return _explained(found, address)
    if target.kind != "gang":
        status, found = get_document(address, "pods", target.namespace, target.name)
        if status == 200:
            return _explained(found, address)
    return None


def _explained(found: Any, address: Address) -> Document:
    if not (_has(found, DOCUMENTS["Explanation"]) and is_valid("Explanation", found)):
        raise _not_an_extender(address)
    return dict(found)


def _all_have(found: Any, part: str) -> bool:
    return isinstance(found, list) and all(_has(each, ITEMS[part]) for each in found)


def _has(found: Any, fields: Fields) -> bool:
    return isinstance(found, Mapping) and found.keys() >= fields.keys() - ADDED_LATER


def _not_an_extender(address: Address) -> InvalidInput:
    return InvalidInput(f"the server at {address} is not an extender of this version")

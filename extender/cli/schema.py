"""What programs read: every document with its kind, and what each of its fields means.

The manual's page of the command line is written from these, and tests compare them with what the
commands print. A field that is there stays and keeps its meaning while VERSION stays; others may
be added.
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
    "namespace": "where its PodGroup is",
    "name": "that of its PodGroup; with a colon in it, that of pods which make a gang without one",
    "queue": "whose share it uses",
    "min_member": "how many members start at once",
    "members": "how many exist",
    "phase": "`Pending`, `Inqueue` or `Running`, as in the PodGroup's status",
    "verdict": "`running`, `admitted`, `waiting`, `invalid` or `finished`",
    "reason": "one word of [the list](reasons.md)",
    "message": "the same in a sentence",
    "since": "when it began to wait, to run or to be over, or null",
    "estimate": "when it will start, if anybody can tell ([estimates](estimates.md)), or null",
    "share": "its dominant share, a part of one",
    "placements": "nodes by pod, for those that may be bound",
    "pipelined": "nodes by pod, for those whose room is still being made",
}
_QUEUE = {
    "name": "of the Queue",
    "weight": "its weight",
    "deserved": _AMOUNTS,
    "allocated": "used by it and the queues below it",
    "own": "used by itself",
    "requested": "used or wanted",
    "borrowed": "used beyond what it deserves",
    "share": "the part of what it deserves that it uses, by the resource it uses most of",
    "overused": "whether it uses all it deserves",
}
_SHARE = {
    "queue": "of which a namespace has a part",
    "namespace": "that has it",
    "at_most": "what it may use",
    "at_least": "what is kept for it",
    "allocated": "what it uses",
    "requested": "what it uses or wants",
}
_EVICTION = {
    "pod": "NAMESPACE/NAME of who is asked to leave",
    "node": "where it runs",
    "action": "`preempt` or `reclaim`",
    "for": "the gang that gets the room",
}
_KEPT = {"amounts": _AMOUNTS, "for": "whom it is kept for", "why": "in a few words"}
_FINDING = {
    "kind": "of the object",
    "name": "of the object",
    "reason": "one word of [the list](reasons.md#of-findings)",
    "message": "what makes no sense, and the mend",
}
_PLAN = {
    "queues": "every queue",
    "shares": "what namespaces have of queues, where that is limited or guaranteed",
    "gangs": "every gang",
    "binds": "nodes by NAMESPACE/POD",
    "evictions": "who is asked to leave",
    "idle": "what nobody uses",
    "kept": "what of that is kept for somebody, or is on cordoned nodes",
    "schedulers": "what we hear of the kube-scheduler behind each scheduler name",
}
_EXPLANATION = {
    **_GANG,
    "priority": "of its PriorityClass",
    "lasted_s": "how many seconds ago that was, or null",
    "reason_since": "when it came to stand so for this reason, or null",
    "reason_lasted_s": "how many seconds ago that was, or null",
    "members_by_status": "how many of its pods are Pending, Running and so on",
    "missing": "how many members do not exist yet",
    "queue_figures": "its queue, as in QueueList",
    "share_figures": "what its namespace has of that queue, or null",
    "needs": "for members of one shape each: what one asks for and how many nodes have room",
    "needs_count": "how many shapes there are; only some are listed",
    "ahead": "who goes first: gang, queue and why",
    "ahead_count": "how many go first; only some are listed",
    "victims": "who is asked to leave for it",
    "protected": "how many pods are left alone, by why",
    "kept": "idle room that is kept for others",
    "schedulers": "what we hear of the kube-scheduler that should place it",
    "would_start_with": "changes that were tried and would let it start",
    "is_trying": "whether that is still being worked out, for longer than was waited",
    "story": "what happened so far: at, cycle, word and text",
}
#: The fields of each kind beside apiVersion and kind, and by whom it is printed.
DOCUMENTS: Mapping[str, Fields] = MappingProxyType(
    {
        "Explanation": _EXPLANATION,
        "GangList": {"items": "the gangs that were asked for"},
        "QueueList": {"items": "the queues, each with the number of its gangs"},
        "Picture": {"generation": "the number of the plan", **_PLAN},
        "Plan": {
            **_PLAN,
            "findings": "what makes no sense as it is written",
            "asked": "with `--live`: the gangs of `-f`, as NAMESPACE/NAME",
            "differences": "what changes for all others by what was supposed",
        },
        "Replay": {
            "passes": "how many were planned again",
            "skipped": "how many are not in the recording, because the disk was behind",
            "first": "when the first of them was made",
            "last": "when the last of them was made",
            "versions": "that made the recording",
            "differs_at": "when the pass was made that differs first, or null",
            "differs_in_pass": "its number, from 1, or null",
            "differences": "what it decides differently, ten at most",
            "remarks": "where the recording was cut off, and which of its files went meanwhile",
        },
        "Diagnosis": {
            "found": "the traps and hints, traps first",
            "not_looked_at": "what could not be seen; without anything here all of it was",
        },
    }
)
#: The fields of what lies in lists of those.
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
        "kept": _KEPT,
        "finding": _FINDING,
        "difference": {
            "about": "the gang, pod, queue or node",
            "was": "what was decided then; of a Plan, without what is supposed",
            "now": "what is decided now; of a Plan, with it",
        },
        "trap": {
            "name": "one word of [the list](doctor.md#every-trap), or the reason of a finding",
            "severity": "`trap`, or `hint`: nothing breaks, and the exit code does not tell",
            "where": "the object or the file, and the place in it",
            "seen": "what is written there, or was heard",
            "meaning": "what goes wrong, and when",
            "mend": "the line or command that helps",
        },
        "thing not looked at": {"what": "it is", "why": "it could not be seen"},
    }
)
#: Fields that came after the first ones: an extender that does not give them is one all the same.
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
    """Give *fields* as a document that says what it is."""
    return {"apiVersion": VERSION, "kind": kind, **fields}


Amounts: TypeAlias = dict[str, str]


class _SchedulerDocument(msgspec.Struct):
    name: str
    voice: str
    words: str = ""
    complaint: str = ""


class _HeldDocument(msgspec.Struct):
    amounts: Amounts
    why: str


class _EstimateDocument(msgspec.Struct):
    words: str
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
    kept: list[_HeldDocument]
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
    word: str
    text: str


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
    kept: list[_HeldDocument]
    would_start_with: list[str]
    story: list[_LineDocument]
    reason_lasted_s: float | None = None
    schedulers: list[_SchedulerDocument] = []
    estimate: _EstimateDocument | None = None
    is_trying: bool = False
    needs_count: int = 0


_SAID: dict[str, type[msgspec.Struct]] = {
    "Picture": _PlanDocument,
    "Explanation": _ExplanationDocument,
}


def is_valid(kind: str, found: Any) -> bool:
    """Ask whether *found* is a document of that kind which can be printed."""
    try:
        msgspec.convert(found, _SAID[kind])
    except msgspec.ValidationError:
        return False
    return True


def plan(address: Address) -> Document:
    """Give the last plan."""
    status, found = get_document(address, "plan")
    if status != 200 or not _has(found, DOCUMENTS["Picture"]) or not is_valid("Picture", found):
        raise _stranger(address)
    for key, part in (("gangs", "gang"), ("queues", "queue"), ("shares", "share")):
        if not _are(found[key], part):
            raise _stranger(address)
    return dict(found)


def snapshot(address: Address) -> Document:
    """Give the cluster as the last plan saw it, as a List of objects."""
    status, found = get_document(address, "snapshot")
    is_list = isinstance(found, Mapping) and found.get("kind") == "List"
    if status != 200 or not is_list or not isinstance(found.get("items"), list):
        raise _stranger(address)
    if not found["items"]:
        raise InvalidInput(
            f"the extender at {address} has not planned yet, or sees nothing; ask again in a moment"
        )
    return dict(found)


def explanation(address: Address, meant: ObjectName) -> Document | None:
    """Give all there is to say about a gang, or about that of a pod; None if there is neither."""
    if meant.kind != "pod":
        status, found = get_document(address, "gangs", meant.namespace, meant.name)
        if status == 200:
            return _explained(found, address)
    if meant.kind != "gang":
        status, found = get_document(address, "pods", meant.namespace, meant.name)
        if status == 200:
            return _explained(found, address)
    return None


def _explained(found: Any, address: Address) -> Document:
    if not (_has(found, DOCUMENTS["Explanation"]) and is_valid("Explanation", found)):
        raise _stranger(address)
    return dict(found)


def _are(found: Any, part: str) -> bool:
    return isinstance(found, list) and all(_has(each, ITEMS[part]) for each in found)


def _has(found: Any, fields: Fields) -> bool:
    return isinstance(found, Mapping) and found.keys() >= fields.keys() - ADDED_LATER


def _stranger(address: Address) -> InvalidInput:
    return InvalidInput(f"what answers at {address} is not an extender of this version")

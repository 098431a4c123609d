"""What an extender answers, as the documents that commands need; anything else is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.cli.ask import Address, ask
from extender.cli.live.spoken import is_said
from extender.cli.printed.documents import ADDED_LATER, KINDS, PARTS, Document, Fields
from extender.cli.typed.names import Named
from extender.errors import BadInput


def plan(address: Address) -> Document:
    """Give the last plan."""
    status, found = ask(address, "plan")
    if status != 200 or not _has(found, KINDS["Picture"]) or not is_said("Picture", found):
        raise _stranger(address)
    for key, part in (("gangs", "gang"), ("queues", "queue"), ("shares", "share")):
        if not _are(found[key], part):
            raise _stranger(address)
    return dict(found)


def snapshot(address: Address) -> Document:
    """Give the cluster as the last plan saw it, as a List of objects."""
    status, found = ask(address, "snapshot")
    is_list = isinstance(found, Mapping) and found.get("kind") == "List"
    if status != 200 or not is_list or not isinstance(found.get("items"), list):
        raise _stranger(address)
    if not found["items"]:
        raise BadInput(
            f"the extender at {address} has not planned yet, or sees nothing; ask again in a moment"
        )
    return dict(found)


def explanation(address: Address, meant: Named) -> Document | None:
    """Give all there is to say about a gang, or about that of a pod; None if there is neither."""
    if meant.kind != "pod":
        status, found = ask(address, "gangs", meant.namespace, meant.name)
        if status == 200:
            return _explained(found, address)
    if meant.kind != "gang":
        status, found = ask(address, "pods", meant.namespace, meant.name)
        if status == 200:
            return _explained(found, address)
    return None


def _explained(found: Any, address: Address) -> Document:
    if not (_has(found, KINDS["Explanation"]) and is_said("Explanation", found)):
        raise _stranger(address)
    return dict(found)


def _are(found: Any, part: str) -> bool:
    return isinstance(found, list) and all(_has(each, PARTS[part]) for each in found)


def _has(found: Any, fields: Fields) -> bool:
    return isinstance(found, Mapping) and found.keys() >= fields.keys() - ADDED_LATER


def _stranger(address: Address) -> BadInput:
    return BadInput(f"what answers at {address} is not an extender of this version")

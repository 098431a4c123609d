"""What somebody supposes: a gang, changes, or both, read from an address with bounds on all of it.

Names are checked as the API server would, because nobody should be told about a gang that could
never be written. What changes are called is checked where they are applied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from extender.errors import BadInput, BadQuantity
from extender.model import quantity
from extender.text.plain import shown

#: In the place of an address that is too long to be read.
TOO_LONG = "too-long"
#: Everything that an address may say, in the order of the form.
FIELDS = (
    *("name", "namespace", "queue", "members", "least", "cpu", "memory", "others", "priority"),
    *("with", "without"),
)
MOST_MEMBERS = 1000
MOST_CHANGES = 10

_MOST_OTHERS = 8
_HIGHEST = 1_000_000_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._/]{0,251}[A-Za-z0-9])?")
_LONGEST_QUEUE = 253
_NUMBER = re.compile(r"-?[0-9]{1,10}")


class SupposedGang(NamedTuple):
    """A gang of pods that are alike."""

    name: str
    namespace: str
    #: Empty leaves it to the namespace.
    queue: str
    members: int
    least: int
    #: What each member asks for, by resource, as it was written.
    each: tuple[tuple[str, str], ...]
    #: None is that of those who name no class.
    priority: int | None


class Supposition(NamedTuple):
    """All that is supposed at once; those that are alike are asked once."""

    gang: SupposedGang | None
    withs: tuple[str, ...]
    withouts: tuple[str, ...]


def read(given: Mapping[str, Sequence[str]]) -> Supposition | None:
    """Read the fields of an address; None when it supposes nothing."""
    if TOO_LONG in given:
        raise BadInput("what is asked is too long for an address; suppose less at once")
    typed = {name: " ".join(given.get(name, ())).strip() for name in FIELDS}
    withs, withouts = (_changes(name, typed[name]) for name in ("with", "without"))
    gang = _gang(typed)
    return Supposition(gang, withs, withouts) if gang or withs or withouts else None


def _changes(field: str, text: str) -> tuple[str, ...]:
    found = tuple(text.split())
    if len(found) > MOST_CHANGES:
        raise BadInput(f"{field}: {len(found)} changes are too many; write up to {MOST_CHANGES}")
    return found


def _gang(typed: Mapping[str, str]) -> SupposedGang | None:
    name = typed["name"]
    if not name:
        for field in ("members", "least", "cpu", "memory", "others", "priority", "queue"):
            if typed[field]:
                raise BadInput(f"{field} is said of a gang without a name; name it, such as train")
        return None
    _check("name", name, _NAME, "a-z, 0-9, - and .")
    namespace = typed["namespace"] or "default"
    _check("namespace", namespace, _NAMESPACE, "a-z, 0-9 and -")
    if len(typed["queue"]) > _LONGEST_QUEUE:
        raise BadInput(f"queue: the name of a queue has up to {_LONGEST_QUEUE} characters")
    members = _number("members", typed["members"] or "1", 1, MOST_MEMBERS)
    return SupposedGang(
        name=name,
        namespace=namespace,
        queue=typed["queue"],
        members=members,
        least=_number("least", typed["least"] or str(members), 1, members),
        each=_amounts(typed),
        priority=_number("priority", typed["priority"], -_HIGHEST, _HIGHEST)
        if typed["priority"]
        else None,
    )


def _check(field: str, text: str, form: re.Pattern[str], letters: str) -> None:
    if not form.fullmatch(text):
        raise BadInput(f"{field}: {shown(text)} cannot be one; write up to 63 of {letters}")


def _number(field: str, text: str, least: int, most: int) -> int:
    if _NUMBER.fullmatch(text) and least <= int(text) <= most:
        return int(text)
    raise BadInput(f"{field}: {shown(text)} is not a number from {least} to {most}")


def _amounts(typed: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {name: _amount(name, typed[name]) for name in ("cpu", "memory") if typed[name]}
    others = typed["others"].replace(",", " ").split()
    if len(others) > _MOST_OTHERS:
        raise BadInput(f"others: {len(others)} are too many; write up to {_MOST_OTHERS}")
    for each in others:
        name, is_said, amount = each.partition("=")
        if not is_said or not _RESOURCE.fullmatch(name):
            raise BadInput(f"others: {shown(each)} is no amount; write it like nvidia.com/gpu=1")
        found[name] = _amount(f"others: {name}", amount)
    return tuple(found.items())


def _amount(field: str, text: str) -> str:
    try:
        if quantity.parse(text) >= 0:
            return text
    except BadQuantity:
        pass
    raise BadInput(f"{field}: {shown(text)} is not an amount, such as 2 or 64Gi")

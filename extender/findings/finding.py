"""A finding: a misconfiguration that an administrator can fix."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

QUEUE = "Queue"
NAMESPACE = "Namespace"
POLICY = "Policy"
ACCOUNT = "ServiceAccount"
#: The one reason that several kinds share: a field that has no effect here.
IGNORED_FIELD = "IgnoredField"
#: Limit of the names searched for the nearest: each costs some microseconds, 1,500 cost 40 ms.
_MOST_NAMES = 2000
#: Results that are cached, and the number of names with a hint in one audit.
_MAX_CACHED = 256
MOST_HINTS = 50
#: The service account lacks a permission.
PERMISSION_MISSING = "PermissionMissing"


class Problem(NamedTuple):
    """The meaning of a reason of findings; the manual prints it."""

    #: What is wrong with the object.
    wrong: str
    #: The effect until it is fixed.
    until_mended: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with an object, and the fix."""

    #: `Queue`, `Namespace`, `Policy` for the policy file, `ServiceAccount` for the own account.
    kind: str
    name: str
    #: One word, the same in event, condition, metric and command.
    reason: str
    #: One sentence that names the object and the fix.
    message: str


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the nearest known name as the end of a sentence; empty when none is near."""
    names = tuple(sorted(known))
    near = _nearest(word, names) if len(names) <= _MOST_NAMES else ""
    return f"; did you mean {near}?" if near else ""


@lru_cache(_MAX_CACHED)
def _nearest(word: str, names: tuple[str, ...]) -> str:
    """Return the nearest name; cached, because every change of a node repeats the audit."""
    return next(iter(difflib.get_close_matches(word, names, n=1)), "")


class NearNames:
    """The nearest names of unknown ones; a limited number in one audit, each searched once."""

    def __init__(self) -> None:
        self._hints: dict[str, str] = {}

    def hints(self, names: list[str], known: Collection[str]) -> str:
        """Return the nearest known names as the end of a sentence."""
        return "".join(self._hint(name, known) for name in names)

    def _hint(self, name: str, known: Collection[str]) -> str:
        # A priority class and a queue may share a name, and have different nearest names.
        word = f"{id(known)} {name}"
        if word not in self._hints and len(self._hints) < MOST_HINTS:
            self._hints[word] = did_you_mean(name, known)
        return self._hints.get(word, "")

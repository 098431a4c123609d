"""One thing an administrator wrote that cannot mean what it says."""

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
#: The one reason that several kinds share: something that is written does nothing here.
IGNORED_FIELD = "IgnoredField"
#: Among more names nobody looks for the nearest: each costs some microseconds, 40 ms for 1,500.
_MOST_NAMES = 2000
#: Answers that are remembered; for so many words of one audit the nearest name is looked for.
_REMEMBERED = 256
MOST_HINTS = 50
#: The account we act as lacks a right.
PERMISSION_MISSING = "PermissionMissing"


class Problem(NamedTuple):
    """What a reason of findings stands for; the manual prints it."""

    #: What is wrong with the object.
    wrong: str
    #: What we do about it until somebody mends it.
    until_mended: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with an object that people wrote, and the mend."""

    #: `Queue`, `Namespace`, `Policy` for the policy file, `ServiceAccount` for whom we act as.
    kind: str
    name: str
    #: One word, the same in event, condition, metric and command.
    reason: str
    #: One sentence that names the thing and the mend.
    message: str


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give the nearest known name as the end of a sentence; empty when none is near."""
    names = tuple(sorted(known))
    near = _nearest(word, names) if len(names) <= _MOST_NAMES else ""
    return f"; did you mean {near}?" if near else ""


@lru_cache(_REMEMBERED)
def _nearest(word: str, names: tuple[str, ...]) -> str:
    """Search once: an audit comes with every change of a node, and finds the same."""
    return next(iter(difflib.get_close_matches(word, names, n=1)), "")


class NearNames:
    """The nearest names of those that nobody has; of so many in one audit, each searched once."""

    def __init__(self) -> None:
        self._hints: dict[str, str] = {}

    def hints(self, names: list[str], known: Collection[str]) -> str:
        """Give the nearest known names as the end of a sentence."""
        return "".join(self._hint(name, known) for name in names)

    def _hint(self, name: str, known: Collection[str]) -> str:
        # A class may be called like a queue, and is told of by another name.
        word = f"{id(known)} {name}"
        if word not in self._hints and len(self._hints) < MOST_HINTS:
            self._hints[word] = did_you_mean(name, known)
        return self._hints.get(word, "")

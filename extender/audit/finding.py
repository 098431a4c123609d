"""One thing an administrator wrote that cannot mean what it says."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

QUEUE = "Queue"
NAMESPACE = "Namespace"
POLICY = "Policy"
ACCOUNT = "ServiceAccount"

#: The one reason that several kinds share: something that is written does nothing here.
WITHOUT_EFFECT = "WithoutEffect"
#: Among more names nobody looks for the nearest: each costs some microseconds.
_MOST_NAMES = 2000
#: The account we act as lacks a right.
RIGHT_MISSING = "RightMissing"


class Flaw(NamedTuple):
    """What a reason of findings stands for; the manual prints it."""

    #: What is wrong with the object.
    wrong: str
    #: What we do about it until somebody mends it.
    meanwhile: str


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
    names = sorted(known)
    if len(names) > _MOST_NAMES:
        return ""
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""

"""A trap: something that is set up so that gangs will not start, or not whole, and the mend."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Whether the exit code says so."""

    TRAP = "trap"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Trap:
    """One that we know; the manual prints it."""

    #: One word, the same for ever: scripts look for it.
    name: str
    #: What it means: what goes wrong, and when.
    meaning: str
    #: What to do, in general; whoever is caught is told the exact line or command.
    mend: str
    severity: Severity = Severity.TRAP

    def at(self, where: str, seen: str, mend: str = "") -> Caught:
        """Say that somebody stepped into it."""
        return Caught(self, where, seen, mend or self.mend)


@dataclass(frozen=True, slots=True)
class Caught:
    """A trap that is set."""

    trap: Trap
    #: The object or the file, and the place in it.
    where: str
    #: What is written there, or what was heard.
    seen: str
    #: The exact line or command.
    mend: str

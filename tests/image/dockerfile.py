"""Reads a Dockerfile as far as ours goes: stages, instructions, their words."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step, its continued lines joined."""

    verb: str
    text: str

    @property
    def flags(self) -> dict[str, str]:
        """Give the flags of the instruction itself, `--from=build` and the like."""
        leading = re.match(r"(--\S+\s+)*", self.text)
        assert leading is not None
        found = (word.removeprefix("--").partition("=") for word in leading[0].split())
        return {name: value for name, _, value in found}

    @property
    def body(self) -> str:
        """Give what follows the flags."""
        return re.sub(r"^(--\S+\s+)*", "", self.text)

    @property
    def words(self) -> list[str]:
        """Split the body as a shell would; the exec form is JSON."""
        words: list[str] = (
            json.loads(self.body) if self.body.startswith("[") else shlex.split(self.body)
        )
        return words


@dataclass(slots=True)
class Stage:
    """What one FROM begins."""

    base: str
    name: str
    steps: list[Instruction] = field(default_factory=list)

    def all(self, verb: str) -> list[Instruction]:
        return [step for step in self.steps if step.verb == verb]

    def last(self, verb: str) -> Instruction:
        return self.all(verb)[-1]


def stages(text: str) -> list[Stage]:
    """Read every stage, in order; a comment or a blank line says nothing to Docker."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    found: list[Stage] = []
    for line in joined.splitlines():
        verb, _, rest = line.partition(" ")
        if verb == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name))
        else:
            found[-1].steps.append(Instruction(verb, rest.strip()))
    return found


def ours() -> list[Stage]:
    return stages((ROOT / "Dockerfile").read_text())

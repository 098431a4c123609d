"""A story as data: what happens, and who stands where after each step of it.

A story is one YAML file in `files/`:

| key | meaning |
|---|---|
| `about` | what it tells, in a sentence |
| `alike` | lists of gangs that differ in nothing but their names |
| `patience` | `starvation.after` of the policy in force; without it the policy is the usual one |
| `steps` | each a list of things to `do`, and `then`: the outcome for everybody in the story |

Which of gangs that are alike goes first is nobody's promise. So they are called by what became of
them, from the first step on: the first name is for one that is gone, then come those that run, and
then those that wait.

An outcome is one of `runs 3`, `runs 2 of 3` (the others are beyond the minimum, and wait), `waits
REASON`, `runs 2 of 4 REASON` (fewer than the minimum, or pods without a gang of which some wait),
and `gone`; a gang for which room is kept has `, room is kept` behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from extender.model.reason import Reason

FILES = Path(__file__).parent / "files"

#: Somebody of a story -> what became of it.
Outcome: TypeAlias = Mapping[str, str]

#: What concerns the cluster and is to be heard of before anything else happens.
OF_THE_CLUSTER = frozenset({"node", "queue", "class", "edit", "state", "cordon", "uncordon"})
OF_TENANTS = frozenset(
    {"gang", "gangs", "pods", "group", "more", "least", "ungate", "delete", "lose"}
)

_REASON = rf"(?:{'|'.join(reason.value for reason in Reason)})"
_OUTCOME = re.compile(
    rf"gone|(?:runs \d+(?: of \d+)?(?: {_REASON})?|waits {_REASON})(?:, room is kept)?"
)
_KEYS = frozenset({"about", "alike", "patience", "steps"})


class BadStory(Exception):
    """A story that cannot be told, and why."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens, in this order, and where everybody stands then."""

    do: tuple[tuple[str, Any], ...]
    then: Outcome


@dataclass(frozen=True, slots=True)
class Story:
    """What is told, twice."""

    name: str
    about: str
    steps: tuple[Step, ...]
    alike: tuple[tuple[str, ...], ...] = ()
    patience: str = ""


def stories() -> Iterator[Story]:
    """Give all of them by name."""
    for path in sorted(FILES.glob("*.yaml")):
        yield read(path.stem, path.read_text())


def read(name: str, text: str) -> Story:
    """Read one story."""
    written = yaml.safe_load(text)
    unknown = sorted(written.keys() - _KEYS)
    if unknown:
        raise BadStory(f"story {name}: nobody reads {', '.join(unknown)}; write {sorted(_KEYS)}")
    return Story(
        name=name,
        about=written["about"],
        steps=tuple(_step(name, number, step) for number, step in enumerate(written["steps"], 1)),
        alike=tuple(tuple(names) for names in written.get("alike", ())),
        patience=written.get("patience", ""),
    )


def _step(name: str, number: int, written: Mapping[str, Any]) -> Step:
    done = tuple(next(iter(each.items())) for each in written["do"])
    for verb, _ in done:
        if verb not in OF_THE_CLUSTER | OF_TENANTS:
            raise BadStory(f"story {name}, step {number}: nobody knows how to do {verb!r}")
    then = {str(who): str(outcome) for who, outcome in written["then"].items()}
    for who, outcome in then.items():
        if not _OUTCOME.fullmatch(outcome):
            raise BadStory(f"story {name}, step {number}: {who} cannot end as {outcome!r}")
    return Step(done, then)

"""A story as data: what happens, and the outcome of each workload after every step.

A story is one YAML file in `files/`:

| key | meaning |
|---|---|
| `about` | its subject, in a sentence |
| `alike` | lists of gangs that differ only in their names |
| `patience` | `starvation.after` of the policy; without it the policy is the default one |
| `steps` | each a list of actions to `do`, and `then`: the outcome of each workload |

Which of several equal gangs goes first is not defined. So they are named by their outcome, from the
first step on: the first name is for one that is gone, then come those that run, and then those
that wait.

An outcome is one of `runs 3`, `runs 2 of 3` (the others are beyond the minimum, and wait), `waits
REASON`, `runs 2 of 4 REASON` (fewer than the minimum, or pods without a gang of which some wait),
and `gone`; `, capacity is reserved` follows for a gang for which capacity is reserved.
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

#: Workload of a story -> its outcome.
Outcome: TypeAlias = Mapping[str, str]

#: Actions that the extender must know of before anything else happens.
OF_THE_CLUSTER = frozenset({"node", "queue", "class", "edit", "state", "cordon", "uncordon"})
OF_TENANTS = frozenset(
    {"gang", "gangs", "pods", "group", "more", "least", "ungate", "delete", "lose"}
)

_REASON = rf"(?:{'|'.join(reason.value for reason in Reason)})"
_OUTCOME = re.compile(
    rf"gone|(?:runs \d+(?: of \d+)?(?: {_REASON})?|waits {_REASON})(?:, capacity is reserved)?"
)
_KEYS = frozenset({"about", "alike", "patience", "steps"})


class InvalidStory(Exception):
    """A story is invalid."""


@dataclass(frozen=True, slots=True)
class Step:
    """Actions in order, and the outcomes after them."""

    do: tuple[tuple[str, Any], ...]
    then: Outcome


@dataclass(frozen=True, slots=True)
class Story:
    """A story that runs on both clusters."""

    name: str
    about: str
    steps: tuple[Step, ...]
    alike: tuple[tuple[str, ...], ...] = ()
    patience: str = ""


def stories() -> Iterator[Story]:
    """Yield all stories by name."""
    for path in sorted(FILES.glob("*.yaml")):
        yield read(path.stem, path.read_text())


def read(name: str, text: str) -> Story:
    """Read one story."""
    written = yaml.safe_load(text)
    unknown = sorted(written.keys() - _KEYS)
    if unknown:
        raise InvalidStory(f"story {name}: unknown key {', '.join(unknown)}; write {sorted(_KEYS)}")
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
            raise InvalidStory(f"story {name}, step {number}: unknown action {verb!r}")
    then = {str(workload): str(outcome) for workload, outcome in written["then"].items()}
    for workload, outcome in then.items():
        if not _OUTCOME.fullmatch(outcome):
            raise InvalidStory(f"story {name}, step {number}: {workload} cannot end as {outcome!r}")
    return Step(done, then)

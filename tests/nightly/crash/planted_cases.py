"""Planted faults of the extender that the walk must report, to test its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.nightly.faults import bindings, calls, partial_gangs
from tests.nightly.faults.fault_points import Fault, FaultPoint

from .scenes import SCENES
from .time_breaches import GIVEN_UP, WRONG_END
from .walk import Lanes, Outcome, Try, print_outcome


@dataclass(frozen=True, slots=True)
class PlantedCase:
    """A scene and a fault with which a planted fault must break a rule."""

    scene: str
    #: The rules of which it must break one; a scene without an end is not enough.
    shows: frozenset[str]
    point: FaultPoint | None = None

    def under(self, plant: str) -> Try:
        (scene,) = (each for each in SCENES if each.name == self.scene)
        return Try(scene, self.point, plant)


CASES: dict[str, tuple[PlantedCase, ...]] = {
    "unknown-is-failed": (
        PlantedCase("gang", frozenset({calls.UNTRUE}), FaultPoint("bind", 2, Fault.LOST)),
    ),
    "one-short": (PlantedCase("missing", frozenset({WRONG_END, partial_gangs.RULE})),),
    "never-given-back": (PlantedCase("missing", frozenset({bindings.LEAK})),),
    "no-ceiling": (PlantedCase("ceiling", frozenset({bindings.CEILING})),),
    "hold-forgotten": (PlantedCase("missing", frozenset({GIVEN_UP, calls.UNANSWERED})),),
}


def tries_of(plants: Sequence[str]) -> list[Try]:
    """Return every case of these plants."""
    return [case.under(plant) for plant in plants for case in CASES[plant]]


def walk_planted(folder: Path, plants: Sequence[str], keep: Path | None = None) -> int:
    """Run the cases of each plant; return 1 if one was not detected."""
    with Lanes(folder, 1) as lanes:
        outcomes = lanes.run(tries_of(plants), print_outcome, keep=keep)
    print("\n| plant | at | detected as |\n|---|---|---|")
    for each in outcomes:
        where = f"{each.tried.scene.name}: {each.tried.point or 'no fault'}"
        print(f"| {each.tried.plant} | {where} | {detected_as(each)} |")
    missed = undetected(outcomes, plants)
    for plant in missed:
        wanted = " or ".join(sorted(frozenset().union(*(case.shows for case in CASES[plant]))))
        print(f"{plant} was not detected as {wanted}")
    return int(bool(missed))


def detected_as(outcome: Outcome) -> str:
    """Return the broken rules, each once."""
    return ", ".join(_rules(outcome)) or "NOT DETECTED"


def undetected(outcomes: Sequence[Outcome], plants: Sequence[str]) -> list[str]:
    """Return the plants that broke none of their rules in one of their cases."""
    broken = {each.tried: set(_rules(each)) for each in outcomes}
    return [
        plant
        for plant in plants
        if not all(case.shows & broken.get(case.under(plant), set()) for case in CASES[plant])
    ]


def _rules(outcome: Outcome) -> list[str]:
    return list(dict.fromkeys(words.partition(": ")[0] for words in outcome.breaches))

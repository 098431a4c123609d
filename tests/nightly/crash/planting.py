"""Plants: faults of our own making that the walk must report, or it judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.faults import Fault, FaultPoint
from tests.nightly.faults import calls, rooms, wholeness

from .excuses import GIVEN_UP, WRONG_END
from .scenes import SCENES
from .walk import Lanes, Outcome, Try, say


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a plant shows: a scene, and the fault that it cannot bear."""

    scene: str
    #: The rules of which it must break one: that a scene comes to no end has many reasons.
    shows: frozenset[str]
    point: FaultPoint | None = None

    def under(self, plant: str) -> Try:
        (scene,) = (each for each in SCENES if each.name == self.scene)
        return Try(scene, self.point, plant)


WHERE: dict[str, tuple[Spot, ...]] = {
    "unknown-is-failed": (
        Spot("gang", frozenset({calls.UNTRUE}), FaultPoint("bind", 2, Fault.LOST)),
    ),
    "one-short": (Spot("missing", frozenset({WRONG_END, wholeness.RULE})),),
    "never-given-back": (Spot("missing", frozenset({rooms.LEAK})),),
    "no-ceiling": (Spot("ceiling", frozenset({rooms.CEILING})),),
    "hold-forgotten": (Spot("missing", frozenset({GIVEN_UP, calls.UNANSWERED})),),
}


def tries_of(plants: Sequence[str]) -> list[Try]:
    """Every spot of these plants."""
    return [spot.under(plant) for plant in plants for spot in WHERE[plant]]


def walk_planted(folder: Path, plants: Sequence[str], keep: Path | None = None) -> int:
    """Walk the spots of each plant; 1 when one of them was not seen."""
    with Lanes(folder, 1) as lanes:
        outcomes = lanes.run(tries_of(plants), say, keep=keep)
    print("\n| taken out | at | seen as |\n|---|---|---|")
    for each in outcomes:
        where = f"{each.tried.scene.name}: {each.tried.point or 'no fault'}"
        print(f"| {each.tried.plant} | {where} | {seen_as(each)} |")
    missed = unseen(outcomes, plants)
    for plant in missed:
        wanted = " or ".join(sorted(frozenset().union(*(spot.shows for spot in WHERE[plant]))))
        print(f"{plant} was not seen as {wanted}")
    return int(bool(missed))


def seen_as(outcome: Outcome) -> str:
    """Name what broke, each rule once."""
    return ", ".join(_rules(outcome)) or "NOT SEEN"


def unseen(outcomes: Sequence[Outcome], plants: Sequence[str]) -> list[str]:
    """The plants that somewhere broke none of the rules as which they must show."""
    broken = {each.tried: set(_rules(each)) for each in outcomes}
    return [
        plant
        for plant in plants
        if not all(spot.shows & broken.get(spot.under(plant), set()) for spot in WHERE[plant])
    ]


def _rules(outcome: Outcome) -> list[str]:
    return list(dict.fromkeys(words.partition(": ")[0] for words in outcome.breaches))

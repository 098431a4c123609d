"""Plants: faults of our own making that the walk must report, or it judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.faults import Fault, Point

from .scenes import SCENES
from .walk import Lanes, Outcome, Try, say


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a plant shows: a scene, and the fault that it cannot bear."""

    scene: str
    point: Point | None = None

    def under(self, plant: str) -> Try:
        (scene,) = (each for each in SCENES if each.name == self.scene)
        return Try(scene, self.point, plant)


WHERE: dict[str, tuple[Spot, ...]] = {
    "unknown-is-failed": (Spot("gang", Point("bind", 2, Fault.LOST)),),
    "one-short": (Spot("missing"),),
    "never-given-back": (Spot("missing"),),
    "no-ceiling": (Spot("ceiling"),),
    "hold-forgotten": (Spot("missing"),),
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
    return int(bool(unseen(outcomes, plants)))


def seen_as(outcome: Outcome) -> str:
    """Name what broke, each rule once."""
    rules = dict.fromkeys(words.partition(": ")[0] for words in outcome.breaches)
    return ", ".join(rules) or "NOT SEEN"


def unseen(outcomes: Sequence[Outcome], plants: Sequence[str]) -> list[str]:
    """The plants that nobody noticed."""
    noticed = {each.tried.plant for each in outcomes if each.breaches}
    return [plant for plant in plants if plant not in noticed]

"""docs/internals/reliability.md is correct about the crash points."""

from __future__ import annotations

import re
from pathlib import Path

from tests.nightly.crash.__main__ import arguments
from tests.nightly.crash.planted_cases import CASES
from tests.nightly.crash.scenes import SCENES
from tests.nightly.crash.walk import BOUNDS
from tests.nightly.faults.planted import PLANTS, SHORT_SILENCE_S

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "internals" / "reliability.md").read_text().partition("## Crash points")[2]
TEXT = " ".join(PAGE.split())
_NUMBERS = {13: "Thirteen", 14: "Fourteen", 15: "Fifteen", 16: "Sixteen", 17: "Seventeen"}


def test_page_has_the_number_of_scenes() -> None:
    assert f"{_NUMBERS[len(SCENES)]} short scenes" in TEXT


def test_the_page_names_every_plant() -> None:
    assert re.findall(r"^\| `([a-z-]+)`:", PAGE, re.MULTILINE) == list(PLANTS)


def test_page_has_the_shortened_timeout() -> None:
    assert f"started with {SHORT_SILENCE_S:g}." in TEXT


def test_commands_of_the_page_are_valid() -> None:
    lines = re.findall(r"`python -m tests\.nightly\.crash([^`]*)`", PAGE)
    options = {word for line in lines for word in line.split() if word.startswith("--")}
    for line in lines:
        arguments().parse_args(line.split())

    assert {"--limit", "--seed", "--sites", "--faults", "--lanes", "--planted"} <= options


def test_page_has_the_rules_that_plants_break() -> None:
    rows = re.findall(r"^\| `([a-z-]+)`: [^|]+ \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)

    documented = {plant: frozenset(words.split(", or ")) for plant, words in rows}
    assert documented == {plant: case.shows for plant, (case,) in CASES.items()}


def test_page_has_the_limit_of_restarts() -> None:
    assert f"must be ready again within {BOUNDS.ready_s:g} seconds" in TEXT

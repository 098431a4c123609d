"""What docs/reliability.md says of the crash points is so."""

from __future__ import annotations

import re
from pathlib import Path

from tests.nightly.crash.__main__ import arguments
from tests.nightly.crash.planting import WHERE
from tests.nightly.crash.scenes import SCENES
from tests.nightly.crash.walk import BOUNDS
from tests.nightly.faults.planted import PLANTS, QUICK_EARS_S

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reliability.md").read_text().partition("## Crash points")[2]
_NUMBERS = {13: "Thirteen", 14: "Fourteen", 15: "Fifteen", 16: "Sixteen", 17: "Seventeen"}


def test_the_page_counts_the_scenes() -> None:
    assert f"{_NUMBERS[len(SCENES)]} short scenes" in PAGE


def test_the_page_names_every_plant() -> None:
    assert re.findall(r"^\| `([a-z-]+)`:", PAGE, re.MULTILINE) == list(PLANTS)


def test_the_page_tells_the_span_that_is_shortened() -> None:
    assert f"started with {QUICK_EARS_S:g}." in PAGE


def test_the_command_takes_every_line_of_the_page() -> None:
    lines = re.findall(r"`python -m tests\.nightly\.crash([^`]*)`", PAGE)
    options = {word for line in lines for word in line.split() if word.startswith("--")}
    for line in lines:
        arguments().parse_args(line.split())

    assert {"--limit", "--seed", "--sites", "--faults", "--lanes", "--planted"} <= options


def test_the_page_tells_as_what_every_plant_must_show() -> None:
    rows = re.findall(r"^\| `([a-z-]+)`: [^|]+ \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)

    told = {plant: frozenset(words.split(", or ")) for plant, words in rows}
    assert told == {plant: spot.shows for plant, (spot,) in WHERE.items()}


def test_the_page_tells_how_soon_whoever_was_killed_must_be_ready() -> None:
    assert f"must be ready again within {BOUNDS.ready_s:g} seconds" in PAGE

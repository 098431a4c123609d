"""What docs/sizing.md advises holds for what it measured, and for what the overlay asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from extender.model import quantity
from tests.tables.series import exported

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "sizing.md").read_text()
MIB = 2**20
#: Pods, MB taken, MB at most.
MEASURED = [
    tuple(int(cell.replace(",", "")) for cell in row)
    for row in re.findall(
        r"^\| [\d,]+ \| ([\d,]+) \| [\d,]+ \| (\d+) MB \| (\d+) MB \|$", PAGE, re.MULTILINE
    )
]


def formula(resource: str) -> tuple[float, float]:
    """Give the two numbers of the formula: what is always needed, and what comes with more."""
    (cell,) = re.findall(rf"^\| `{resource}` \| ([^|]+) \|", PAGE, re.MULTILINE)
    base, more = re.findall(r"[\d.]+", cell)[:2]
    return float(base), float(more)


def in_the_overlay(kind: str, name: str) -> int:
    """Give what the container of the extender asks for, in bytes or thousandths of a core."""
    path = ROOT / "manifests" / "overlays" / "second-scheduler" / "deployment.yaml"
    (pods,) = [
        thing["spec"]["template"]["spec"]
        for thing in yaml.safe_load_all(path.read_text())
        if thing["kind"] == "Deployment"
    ]
    (extender,) = [each for each in pods["containers"] if each["name"] == "extender"]
    written = extender["resources"][kind][name]
    (shown,) = re.findall(rf"^\| `{kind}.{name}` \| [^|]+ \| (\S+) \|", PAGE, re.MULTILINE)
    assert shown == written
    return round(float(quantity.parse(written)) * (1000 if name == "cpu" else 1))


def enough_for(resource: str) -> int:
    (cell,) = re.findall(
        rf"^\| `{resource}` \| [^|]+ \| [^|]+ \| ([\d,]+) pods", PAGE, re.MULTILINE
    )
    return int(cell.replace(",", ""))


def test_the_formulas_cover_what_was_measured() -> None:
    assert len(MEASURED) == 6
    (base, more), (most, most_more) = formula("requests.memory"), formula("limits.memory")
    for pods, taken, at_most in MEASURED:
        assert taken <= base + more * pods / 1000
        assert at_most <= most + most_more * pods / 1000


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_the_memory_of_the_overlay_is_enough_for_what_the_page_says(kind: str) -> None:
    base, more = formula(f"{kind}.memory")
    given = in_the_overlay(kind, "memory") / MIB

    assert base + more * enough_for(f"{kind}.memory") / 1000 == pytest.approx(given, rel=0.01)


def test_the_cpu_of_the_overlay_is_enough_for_what_the_page_says() -> None:
    base, more = formula("requests.cpu")

    pods = enough_for("requests.cpu")
    assert base + more * pods == pytest.approx(in_the_overlay("requests", "cpu"), rel=0.05)


def test_the_series_to_watch_exist() -> None:
    below = PAGE.partition("| watch |")[2]
    watched = re.findall(r"^\| `(\w+)` \|", below, re.MULTILINE)

    assert watched
    assert set(watched) <= {each.name for each in exported()[1]}


def test_the_figures_of_the_plan_and_the_start_are_those_of_the_page_on_performance() -> None:
    measured = (ROOT / "docs" / "performance.md").read_text()

    for figure in ("244 ms", "32 ms", "8 to 11 s"):
        assert figure in PAGE
        assert figure in measured

"""docs/holds.md says what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from extender.holds.machine.assembly import ASSEMBLY_MOVES, HOLD_MOVES, AssemblyState, HoldState

from .drawing import PAGE, draw


def test_the_drawn_parts_are_as_the_code_has_them():
    page = PAGE.read_text()

    assert page.count(": drawn -->") == 4
    assert draw(page) == page, "run: python -m tests.holds.drawing"


def test_every_race_names_the_tests_that_show_it_and_they_exist():
    tests = Path(__file__).parents[1]
    kinds = ("holds", "kube/*", "system")
    folders = [path for kind in kinds for path in tests.glob(f"{kind}/test_*.py")]
    played = names_of_tests(folders)
    for_real = names_of_tests(tests.glob("cluster/test_*.py"))
    races = PAGE.read_text().partition("## Races")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in races.splitlines() if line.startswith("| ")][1:]

    assert len(rows) >= 25
    for race, _, in_the_machine, on_the_cluster in rows:
        shown = [named(in_the_machine), named(on_the_cluster)]
        assert any(shown), race
        assert shown[0] <= played, race
        assert shown[1] <= for_real, race


def named(text: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", text))


def names_of_tests(files: Iterable[Path]) -> set[str]:
    written = "".join(path.read_text() for path in files)
    return set(re.findall(r"^def (test_\w+)", written, re.MULTILINE))


def test_every_state_has_its_moves_and_its_own_sentence():
    assert set(HOLD_MOVES) == set(HoldState)
    assert set(ASSEMBLY_MOVES) == set(AssemblyState)
    for states in (HoldState, AssemblyState):
        assert len({state.value for state in states}) == len(states)
        assert all(state.value.endswith(".") for state in states)

"""docs/holds.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from extender.holds.states import ASSEMBLY_MOVES, HOLD_MOVES, AssemblyState, HoldState

from .drawing import PAGE, draw


def test_the_drawn_parts_are_as_the_code_has_them():
    page = PAGE.read_text()

    assert page.count(": drawn -->") == 4
    assert draw(page) == page, "run: python -m tests.holds.drawing"


def test_every_test_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    written = set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))

    assert len(named) > 25
    assert named <= written


def test_every_state_has_its_moves_and_its_own_sentence():
    assert set(HOLD_MOVES) == set(HoldState)
    assert set(ASSEMBLY_MOVES) == set(AssemblyState)
    for states in (HoldState, AssemblyState):
        assert len({state.value for state in states}) == len(states)
        assert all(state.value.endswith(".") for state in states)

"""What the manual lists is what the code has, and every word of the code is explained."""

from __future__ import annotations

import re

import pytest
from prometheus_client import generate_latest

from extender.model.reason import Happening, Reason
from tests.unit.docs.tables.manual import PAGES, WRITERS
from tests.unit.docs.tables.parts import DOCS, names, rewritten, table
from tests.unit.docs.tables.series import exported

TROUBLE = "troubleshooting.md"


@pytest.mark.parametrize("page", PAGES)
def test_the_written_parts_of_a_page_are_as_the_code_has_them(page: str) -> None:
    text = (DOCS / page).read_text()

    assert names(text), f"{page} has no written part"
    assert rewritten(text, WRITERS) == text, "run: .venv/bin/python -m tests.unit.docs.tables"


def test_every_part_that_can_be_written_has_one_place_in_the_manual() -> None:
    placed = [name for page in DOCS.glob("*.md") for name in names(page.read_text())]

    assert sorted(placed) == sorted(WRITERS)


def test_every_series_that_is_exported_is_in_the_table() -> None:
    metrics, listed = exported()
    printed = generate_latest(metrics.registry).decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", printed, re.MULTILINE))
    told = {each.name: each.kind for each in listed}

    assert len(told) > 40
    # Beside a counter or a histogram the library exports when it began to count.
    assert told == {name: kind for name, kind in kinds.items() if not name.endswith("_created")}


def test_every_series_says_what_it_means_in_a_sentence() -> None:
    for each in exported()[1]:
        # What every Python program exports is worded by the library.
        if not each.name.startswith(("process_", "python_")):
            assert each.meaning.endswith("."), each.name


@pytest.mark.parametrize("each", [*Reason, *Happening], ids=lambda each: each.value)
def test_every_reason_says_what_it_means_and_what_helps(each: Reason | Happening) -> None:
    assert each.meaning
    assert each.mend


def test_the_page_about_trouble_has_an_entry_for_every_reason_and_for_no_other() -> None:
    below = (DOCS / TROUBLE).read_text().partition("\n## By reason\n")[2].partition("\n## ")[0]

    assert re.findall(r"^### (\w+)$", below, re.MULTILINE) == [each.value for each in Reason]


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_an_entry_says_what_helps_and_shows_what_explain_prints(reason: Reason) -> None:
    entry = (
        (DOCS / TROUBLE).read_text().partition(f"\n### {reason.value}\n")[2].partition("\n##")[0]
    )

    assert names(entry) == [f"explain {reason.value}"]
    assert f"{reason.value}: " in entry
    assert entry.partition("<!--")[0].strip(), "says nothing in its own words"


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert table(("a",), [("x|y",)]) == "| a |\n|---|\n| x\\|y |\n"

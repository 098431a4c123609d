"""Tables at any width never lose text."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from extender.cli.output import Columns, clean

CONSOLE = Console(file=StringIO(), width=200)
WHY = "needs 8 x 1 cpu; 4 slots free: 2 nodes short of cpu"


def table() -> Columns:
    made = Columns("NAME", "QUEUE", "MEMBERS", "WHY", numbers=("MEMBERS",))
    made.add("train-with-a-long-name", "research", 8, WHY)
    made.add("b", "nightly", 12, "runs")
    return made


def printed(made: Columns, width: int | None) -> list[str]:
    return [line.plain for line in made.lines(CONSOLE, width)]


@pytest.mark.parametrize("width", [None, 200])
def test_a_wide_table_has_one_line_a_row(width: int | None) -> None:
    assert printed(table(), width) == [
        "NAME                    QUEUE     MEMBERS  WHY",
        f"train-with-a-long-name  research        8  {WHY}",
        "b                       nightly        12  runs",
    ]


def test_a_narrower_table_wraps_the_last_column() -> None:
    assert printed(table(), 70) == [
        "NAME                    QUEUE     MEMBERS  WHY",
        "train-with-a-long-name  research        8  needs 8 x 1 cpu; 4 slots",
        "                                           free: 2 nodes short of cpu",
        "b                       nightly        12  runs",
    ]


def test_a_very_narrow_table_stacks_the_columns() -> None:
    assert printed(table(), 30) == [
        "train-with-a-long-name",
        "  QUEUE research",
        "  MEMBERS 8",
        "  WHY needs 8 x 1 cpu; 4 slots",
        "    free: 2 nodes short of",
        "    cpu",
        "b",
        "  QUEUE nightly",
        "  MEMBERS 12",
        "  WHY runs",
    ]


words = st.text(st.characters(min_codepoint=33, max_codepoint=0x2000, categories=("L", "N", "P")))


@given(
    rows=st.lists(st.tuples(words, words, words), min_size=1, max_size=4),
    width=st.integers(20, 250),
)
def test_every_character_is_printed_at_every_width(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    made = Columns("A", "B", "C")
    for row in rows:
        made.add(*row)

    lines = printed(made, width)

    wanted = "".join("".join(map(clean, row)) for row in rows)
    for letter in set(wanted):
        assert "".join(lines).count(letter) >= wanted.count(letter)
    assert all(line.cell_len <= width for line in made.lines(CONSOLE, width))

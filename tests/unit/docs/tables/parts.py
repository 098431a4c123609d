"""The generated parts of a page, between invisible marks.

`<!-- rights: generated -->` begins the part *rights* with the mark *generated*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[4]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


class Part(NamedTuple):
    """A part of a page; its text ends in a line break."""

    page: Path
    name: str
    text: str


def _pattern(mark: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- ([\w ]+): {mark} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def parts(mark: str) -> list[Part]:
    """Return every part with this mark."""
    return [
        Part(page, name, text)
        for page in PAGES
        for _, name, text, _ in _pattern(mark).findall(page.read_text())
    ]


def rewrite(mark: str, written: Mapping[str, str]) -> None:
    """Write the texts of *written* into the pages; other parts stay unchanged."""
    for page in {each.page for each in parts(mark)}:
        page.write_text(
            _pattern(mark).sub(
                lambda found: f"{found[1]}{written.get(found[2], found[3])}{found[4]}",
                page.read_text(),
            )
        )


def differences(mark: str, written: Mapping[str, str]) -> list[str]:
    """Describe each part that differs from *written*, is on no page, or has no writer."""
    placed = parts(mark)
    names = [each.name for each in placed]
    stale = [
        f"{each.page.relative_to(ROOT)}: {each.name}"
        for each in placed
        if each.text != written.get(each.name)
    ]
    return stale + [f"{name} is on no page" for name in written if name not in names]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table; a bar inside a cell is escaped, as it would end the cell."""
    lines = [list(head), ["---"] * len(head)]
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    shown = (
        "| " + " | ".join(line) + " |" if line != lines[1] else "|---" * len(line) + "|"
        for line in lines
    )
    return "\n".join(shown) + "\n"

"""The parts of a page that are written from the code, between marks that no reader sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

DOCS = Path(__file__).parents[4] / "docs"

#: The name of a part -> its text, which ends in a line break.
Writers: TypeAlias = dict[str, Callable[[], str]]

_PART = re.compile(r"(<!-- ([\w ]+): generated -->\n).*?(<!-- end -->)", re.DOTALL)


def names(page: str) -> list[str]:
    """Name the parts that *page* has a place for."""
    return [name for _, name, _ in _PART.findall(page)]


def rewritten(page: str, writers: Writers) -> str:
    """Give *page* with every part as the code has it now."""
    return _PART.sub(lambda part: f"{part[1]}{writers[part[2]]()}{part[3]}", page)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table; a bar inside a cell would end it."""
    lines = [list(head), ["---"] * len(head)]
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    shown = (
        "| " + " | ".join(line) + " |" if line != lines[1] else "|---" * len(line) + "|"
        for line in lines
    )
    return "\n".join(shown) + "\n"

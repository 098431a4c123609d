"""The pages of the manual, and their fenced blocks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]
)
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- [\w ]+: (?:generated|simulated) -->\n.*?<!-- end -->\n?", re.DOTALL)


class Block(NamedTuple):
    """A fenced block; *place* is `PAGE:LINE`."""

    page: Path
    place: str
    language: str
    text: str

    @property
    def title(self) -> str:
        """Return the comment in its first line: the name of a file, or what the block is."""
        first = self.text.partition("\n")[0]
        return first.removeprefix("# ") if first.startswith("# ") else ""


@cache
def text(page: Path) -> str:
    """Return the text of *page*."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of *page* in order."""
    for found in _FENCE.finditer(text(page)):
        line = text(page).count("\n", 0, found.start()) + 1
        place = f"{page.relative_to(ROOT)}:{line}"
        yield Block(page, place, found[2], textwrap.dedent(found[3]))


def prose(page: Path) -> str:
    """Return *page* without generated parts and fenced blocks; lines keep their numbers."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    return _FENCE.sub(blank, _GENERATED.sub(blank, text(page)))

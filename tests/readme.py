"""Code blocks and console commands of the README."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the code blocks of *language*."""
    return re.findall(rf"^```{language}\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return the commands that the consoles show, without their prompt."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

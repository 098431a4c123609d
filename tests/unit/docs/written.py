"""The tests that there are, by name: for pages that say which test shows something."""

from __future__ import annotations

import re
from pathlib import Path

_MODULES = Path(__file__).parent.rglob("test_*.py")
_DEFINITION = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)

TESTS = {name for module in _MODULES for name in _DEFINITION.findall(module.read_text())}


def named(page: str) -> set[str]:
    """Give the tests that a page names."""
    return set(re.findall(r"`(test_\w+)`", page))
